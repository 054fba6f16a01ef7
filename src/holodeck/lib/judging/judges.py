"""From a model of the configuration to a judge that can be asked."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck.config.environment import cache_dir, hub_url, offline, proxy_for
from holodeck.errors import ModelStoreError
from holodeck.lib.judging.judge import Judge
from holodeck.lib.llm.limits import build_limiters, call_limits
from holodeck.lib.llm.model import ChatModel
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider, ProviderEnum

if TYPE_CHECKING:
    from holodeck.lib.local_models.runtime import EmbeddingModel
    from holodeck.lib.local_models.store import ModelStore

UNSAID = {"temperature": 0.0, "max_tokens": None}
"""Settings of a judge that its configuration does not give: the same verdict each time, and no
limit that would cut its JSON."""


class Judges:
    """The judges of a run: one for each model, whoever asks for it.

    Args:
        execution: Time limits and retries; their defaults if not given.
        base_dir: Where relative paths to weights start; the working folder if not given.
        is_offline: Whether weights of local models may not be fetched, whatever `execution` says.
    """

    def __init__(
        self,
        execution: ExecutionConfig | None = None,
        base_dir: Path | None = None,
        *,
        is_offline: bool = False,
    ) -> None:
        self._base_dir = base_dir or Path.cwd()
        self._limits = call_limits(execution)
        self._limiters = build_limiters(execution)
        self._is_offline = is_offline or bool(execution and execution.offline)
        self._judges: dict[str, Judge] = {}
        self._no_embeddings: str | None = None

    def of(self, llm: LLMProvider, *, is_agents_own: bool = False) -> Judge:
        """The judge on a model. Raises ConfigError.

        Of the agent's own model, the sampling settings are the agent's and not the judge's.
        """
        llm = with_judge_defaults(llm, is_agents_own=is_agents_own)
        key = f"{llm!r} {llm.api_key.get_secret_value() if llm.api_key else ''}"
        if key not in self._judges:
            self._judges[key] = Judge(self._model(llm))
        return self._judges[key]

    def model(
        self, llm: LLMProvider, kind: str = "simulator", *, is_agents_own: bool = False
    ) -> ChatModel:
        """A model for other work than judging, which has slots of its own. Raises ConfigError.

        What its configuration does not say is as for judges. Whoever asks closes it.
        """
        return self._model(with_judge_defaults(llm, is_agents_own=is_agents_own), kind)

    def _model(self, llm: LLMProvider, kind: str = "judge") -> ChatModel:
        if llm.provider is ProviderEnum.LOCAL:
            return self._local(llm)
        # Imported here because most runs ask no judge.
        from holodeck.lib.llm.client import HttpChatModel  # noqa: PLC0415

        return HttpChatModel(llm, self._limits, self._limiters, kind, proxy_for)

    def _local(self, llm: LLMProvider) -> ChatModel:
        # Imported here because most judges are elsewhere.
        from holodeck.lib.local_models.chat import LocalChatModel
        from holodeck.lib.ui.live import DownloadProgress  # noqa: PLC0415

        store = _store(self._is_offline)
        weights = partial(store.resolve, base_dir=self._base_dir, progress=DownloadProgress())
        return LocalChatModel(llm, weights, self._limits.timeout)

    def embeddings(self) -> "EmbeddingModel":
        """The model that compares meanings; see `embedding_model`.

        What cannot be fetched for one case is not tried again for the next.
        """
        if self._no_embeddings is not None:
            raise ModelStoreError(self._no_embeddings)
        try:
            return embedding_model(is_offline=self._is_offline)
        except ModelStoreError as error:
            self._no_embeddings = str(error)
            raise

    async def close(self) -> None:
        """Let go of the connections of the running event loop."""
        for judge in self._judges.values():
            await judge.close()


def embedding_model(*, is_offline: bool = False) -> "EmbeddingModel":
    """The model that compares meanings, its weights fetched if they are not there yet; it blocks.

    Raises ModelStoreError and MissingExtra.
    """
    # Imported here because most runs compare no meanings.
    from holodeck.lib.local_models.catalog import EMBEDDING_MODEL
    from holodeck.lib.local_models.runtime import EmbeddingModel
    from holodeck.lib.ui.live import DownloadProgress  # noqa: PLC0415

    return EmbeddingModel.load(_store(is_offline).ensure(EMBEDDING_MODEL, DownloadProgress()))


def _store(is_offline: bool) -> "ModelStore":
    from holodeck.lib.local_models.store import ModelStore

    return ModelStore(cache_dir(), is_offline or offline(), hub_url())


def with_judge_defaults(llm: LLMProvider, *, is_agents_own: bool) -> LLMProvider:
    """The model with the settings of judges, except for those that it was given as one."""
    kept = frozenset() if is_agents_own else llm.model_fields_set
    return llm.model_copy(
        update={name: value for name, value in UNSAID.items() if name not in kept}
    )
