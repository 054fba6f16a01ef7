"""Where judges and simulated users of cases keep their answers, and when these are given again."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holodeck.config.environment import cache_dir
from holodeck.config.loader import ConfigLoader
from holodeck.config.secrets import collect
from holodeck.errors import ConfigError
from holodeck.lib.judging.judges import with_judge_defaults
from holodeck.lib.redact import Redactor
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig, Setting
from holodeck.models.llm import LLMProvider
from holodeck.models.test_case import TestCaseModel

if TYPE_CHECKING:
    from holodeck.lib.conversation.response_cache import ResponseCache


class CaseCaches:
    """Makes the keepers of an agent's cases.

    Args:
        agent: The agent under test.
        settings: Those of the run; without any, nothing is kept.
        loader: Knows the variables whose values no file may hold.
    """

    def __init__(
        self,
        agent: Agent,
        settings: ExecutionConfig | None = None,
        loader: ConfigLoader | None = None,
    ) -> None:
        self._agent = agent
        self._loader = loader or ConfigLoader()
        self._mode = "off" if settings is None else settings.cache_mode or "auto"
        self._folder = Path() if settings is None else _folder(agent, settings)

    def of(self, case: TestCaseModel, llm: LLMProvider, where: str) -> "ResponseCache | None":
        """Who keeps what the model says in a case; None if it is asked each time.

        Raises ConfigError for a case that is to be replayed and says not under which key.
        """
        if self._mode == "off":
            return None
        if case.cache_key is None:
            if self._mode == "replay":
                raise ConfigError(
                    where, "to replay, the case needs a 'cache_key'; write one, or use --cache-key"
                )
            return None
        # Imported here because most runs keep nothing.
        from holodeck.lib.conversation.recordings import Recordings  # noqa: PLC0415
        from holodeck.lib.conversation.response_cache import ResponseCache, model_cache_facts  # noqa: PLC0415

        model = with_judge_defaults(llm, is_agents_own=llm is self._agent.model)
        recordings = Recordings(self._folder, case.cache_key, self._cleaned)
        return ResponseCache(recordings, self._mode, model_cache_facts(model))

    def _cleaned(self, value: dict[str, Any]) -> dict[str, Any]:
        return self._redactor.redact_report(value)

    @cached_property
    def _redactor(self) -> Redactor:
        """Made when something is written, as most runs keep nothing."""
        return Redactor(collect(self._agent, self._loader.environment(self._agent.base_dir)))


def _folder(agent: Agent, settings: ExecutionConfig) -> Path:
    """The folder of the answers; one named in a file starts from the folder of the agent.yaml."""
    if settings.cache_dir is None:
        return cache_dir() / "scenarios"
    start = agent.base_dir if settings.is_from_file("cache_dir") else Path()
    chosen = start.absolute() / Path(settings.cache_dir).expanduser()
    # The variable names the folder for all that is kept, models included.
    is_variable = settings.source_of("cache_dir").startswith(Setting.variable("cache_dir"))
    return chosen / "scenarios" if is_variable else chosen
