"""The judges of a run, and the models that they and simulated users ask."""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck.errors import ModelStoreError
from holodeck.lib.judging.judge import Judge
from holodeck.lib.llm.limits import NO_OPTIONS, RequestOptions, build_limiters, call_limits
from holodeck.lib.llm.model import ChatModel
from holodeck.lib.support.environment import cache_dir, hub_url, offline, proxy_for, set_variables
from holodeck.lib.ui.live import DownloadProgress
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider, ProviderEnum

if TYPE_CHECKING:
    from holodeck.lib.local_models.runtime import EmbeddingModel
    from holodeck.lib.local_models.store import ModelStore

TellJudges = Callable[[str, str, str], None]
"""Tells other processes what became of a request to the judge with that key."""
JUDGE_DEFAULTS = {"temperature": 0.0, "max_tokens": None}
"""Settings of a judge that its configuration omits: reproducible verdicts, and no token limit that
would cut off the JSON."""


LITELLM_VARIABLES = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION"}
"""Keep LiteLLM from downloading a list of prices, and from reading `.env` files on its own."""


class Judges:
    """The judges of a run; metrics with the same model share a judge.

    Args:
        execution: Time limits and retries; defaults if omitted.
        base_dir: The folder that relative paths to weights start from; the working folder by
            default.
    """

    def __init__(
        self, execution: ExecutionConfig | None = None, base_dir: Path | None = None
    ) -> None:
        self._base_dir = base_dir or Path.cwd()
        self._limits = call_limits(execution)
        self._limiters = build_limiters(execution)
        self._is_offline = bool(execution and execution.offline)
        self._judges: dict[str, Judge] = {}
        self._tell: TellJudges | None = None
        self._elsewhere: dict[str, list[tuple[str, str]]] = {}
        """What was told of judges that are not used here yet, by their keys."""
        self._embeddings_error: str | None = None

    def of(self, llm: LLMProvider, *, is_agents_own: bool = False) -> Judge:
        """Return the judge of a model. Raises ConfigError.

        The sampling settings of the agent's own model are the agent's and not the judge's.
        """
        llm = with_judge_defaults(llm, is_agents_own=is_agents_own)
        secret = llm.api_key.get_secret_value() if llm.api_key else ""
        key = sha256(f"{llm!r} {secret}".encode()).hexdigest()
        if key not in self._judges:
            judge = Judge(self.chat_model(llm), partial(self._tell_others, key))
            for what, detail in self._elsewhere.pop(key, ()):
                judge.note_elsewhere(what, detail)
            self._judges[key] = judge
        return self._judges[key]

    def share(self, tell: TellJudges) -> None:
        """From now on, tell other processes what became of the requests to each judge."""
        self._tell = tell

    def _tell_others(self, key: str, what: str, detail: str) -> None:
        if self._tell is not None:
            self._tell(key, what, detail)

    def note_elsewhere(self, key: str, what: str, detail: str) -> None:
        """Count what became of a request of another process."""
        if key in self._judges:
            self._judges[key].note_elsewhere(what, detail)
        else:
            self._elsewhere.setdefault(key, []).append((what, detail))

    def model(
        self,
        llm: LLMProvider,
        kind: str = "simulator",
        *,
        is_agents_own: bool = False,
        options: RequestOptions = NO_OPTIONS,
    ) -> ChatModel:
        """Return a model for other work, with the defaults of judges but slots of its own.

        The caller closes it. Raises ConfigError.
        """
        return self.chat_model(with_judge_defaults(llm, is_agents_own=is_agents_own), kind, options)

    def chat_model(
        self, llm: LLMProvider, kind: str = "judge", options: RequestOptions = NO_OPTIONS
    ) -> ChatModel:
        """Return a model with no other settings than its own. The caller closes it.

        Raises ConfigError.
        """
        if llm.provider is ProviderEnum.LOCAL:
            # Imported here because few judges run locally.
            from holodeck.lib.local_models.chat import LocalChatModel

            store = _store(self._is_offline)
            weights = partial(store.resolve, base_dir=self._base_dir, progress=DownloadProgress())
            return LocalChatModel(llm, weights, self._limits.timeout, kind)
        # Imported here because most runs ask no judge.
        from holodeck.lib.llm.chat_models import (  # noqa: PLC0415
            HttpChatModel,
            LibraryChatModel,
            create_with_client,
            create_with_litellm,
        )

        if options.client is not None:
            create = create_with_client(options)
        elif llm.protocol == "litellm":
            set_variables(LITELLM_VARIABLES)
            create = create_with_litellm(llm, options)
        else:
            return HttpChatModel(llm, self._limits, self._limiters, kind, proxy_for, options)
        return LibraryChatModel(llm, create, self._limits, self._limiters, kind, options)

    def embeddings(self) -> "EmbeddingModel":
        """Return the embedding model; a failed download is not tried again for every case."""
        if self._embeddings_error is not None:
            raise ModelStoreError(self._embeddings_error)
        try:
            return embedding_model(is_offline=self._is_offline)
        except ModelStoreError as error:
            self._embeddings_error = str(error)
            raise

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        for judge in self._judges.values():
            await judge.close()


def embedding_model(*, is_offline: bool = False) -> "EmbeddingModel":
    """Load the embedding model, downloading its weights if necessary; it blocks.

    Raises ModelStoreError and MissingExtra.
    """
    # Imported here because most runs need no embeddings.
    from holodeck.lib.local_models.catalog import EMBEDDING_MODEL
    from holodeck.lib.local_models.runtime import EmbeddingModel

    return EmbeddingModel.load(_store(is_offline).ensure(EMBEDDING_MODEL, DownloadProgress()))


def _store(is_offline: bool) -> "ModelStore":
    from holodeck.lib.local_models.store import ModelStore

    return ModelStore(cache_dir(), is_offline or offline(), hub_url())


def with_judge_defaults(llm: LLMProvider, *, is_agents_own: bool) -> LLMProvider:
    """Return the model with the judge's defaults for settings that it does not give as a judge."""
    given = frozenset() if is_agents_own else llm.model_fields_set
    return llm.model_copy(
        update={name: value for name, value in JUDGE_DEFAULTS.items() if name not in given}
    )
