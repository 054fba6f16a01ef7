"""A model that judges: asked for JSON, believed only when the answer is what was asked for."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holodeck.config.environment import cache_dir, hub_url, offline, proxy_for
from holodeck.errors import (
    BackendError,
    ConfigError,
    EvaluationError,
    HoloDeckError,
    ModelStoreError,
)
from holodeck.lib.llm.json_answer import parse_json_answer
from holodeck.lib.llm.limits import build_limiters, call_limits
from holodeck.lib.llm.model import ChatModel, ChatRequest, ChatResponse, RequestListener, ask_model
from holodeck.lib.text import one_line
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.models.token_usage import TokenUsage

if TYPE_CHECKING:
    from holodeck.lib.local_models.runtime import EmbeddingModel
    from holodeck.lib.local_models.store import ModelStore


logger = logging.getLogger(__name__)

JsonObject = dict[str, Any]
Messages = Sequence[Mapping[str, Any]]
Reader = Callable[[Any], Any]
"""Turns the JSON of an answer into a value; raises ValueError in words for the judge."""

MOST_REFUSALS = 3
"""So many questions in a row that a judge's endpoint refuses for good end the asking; of a key
that was never accepted, the first."""
MOST_QUOTED = 160


@dataclass
class JudgeUsage:
    """What judging has cost: counted apart from what the agent costs."""

    calls: int = 0
    """Requests that were sent, whatever came of them."""
    failed: int = 0
    """Those of the calls that were not answered."""
    usage: TokenUsage = field(default_factory=TokenUsage.zero)
    seconds: float = 0.0
    """Of asking, without the wait for a slot."""
    judge: str | None = None
    """The model that was asked."""

    def add(self, judge: str, calls: int, said: ChatResponse | None, seconds: float) -> None:
        """Count the calls that one question took, and its answer if there was one."""
        self.calls += calls
        self.failed += calls - (said is not None)
        self.judge = judge if calls else self.judge
        if said is not None:
            self.usage += said.usage
            self.seconds += max(0.0, seconds - said.waited_s)


_spent: ContextVar[JudgeUsage | None] = ContextVar("holodeck_judging", default=None)


@contextmanager
def count_judge_usage(spent: JudgeUsage) -> Iterator[JudgeUsage]:
    """Count what judges are asked inside the block, in tasks that it starts, too."""
    token = _spent.set(spent)
    try:
        yield spent
    finally:
        _spent.reset(token)


class Judge:
    """Asks one model for verdicts.

    Every answer is checked against the schema that it was asked for. One that is something else is
    shown to the judge once, with what is wrong; a second one is an EvaluationError. Scores are
    never bent into their range.
    """

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self._refusals = 0
        self._refusal: str | None = None
        self._has_answered = False

    @property
    def name(self) -> str:
        """The model: provider and name."""
        return self._model.name

    async def ask(
        self, messages: Messages, schema: Mapping[str, Any], read: Reader | None = None
    ) -> Any:
        """The JSON of the judge's answer, valid by `schema`; what `read` makes of it, if given.

        Raises EvaluationError.
        """
        question = ChatRequest(messages, schema=schema)
        return await self._believed(question, _reader(schema, read))

    async def ask_loosely(self, messages: Messages, read: Reader) -> Any:
        """What `read` makes of the JSON object that the judge answers. Raises EvaluationError.

        For prompts that say themselves what the JSON is to hold.
        """
        return await self._believed(ChatRequest(messages, is_json=True), read)

    async def say(
        self, messages: Messages, *, max_tokens: int | None = None, top_logprobs: int | None = None
    ) -> ChatResponse:
        """The judge's answer as text, unchecked. Raises EvaluationError."""
        return await self._said(
            ChatRequest(messages, max_tokens=max_tokens, top_logprobs=top_logprobs)
        )

    async def close(self) -> None:
        """Let go of the connections of the running event loop."""
        await self._model.close()

    async def _believed(self, question: ChatRequest, read: Reader) -> Any:
        said = await self._said(question)
        try:
            return read(_parsed(said))
        except ValueError as error:
            wrong = str(error)
            logger.info("%s: asked once more: %s", self.name, wrong)
        said = await self._said(_again(question, said, wrong))
        try:
            return read(_parsed(said))
        except ValueError as error:
            raise EvaluationError(
                f"the judge {self.name} did not answer as asked, twice: {error};"
                f" it said {_quoted(said.text)}"
            ) from error

    async def _said(self, question: ChatRequest) -> ChatResponse:
        if self._refusal is not None:
            raise EvaluationError(self._refusal)
        try:
            said = await ask_model(self._model, question, self._noting())
        except ConfigError:
            raise
        except HoloDeckError as error:
            told = f"the judge {self.name}: {error}"
            self._note_refusal(error, told)
            raise EvaluationError(told) from error
        self._refusals, self._has_answered = 0, True
        return said

    def _noting(self) -> RequestListener:
        """Counts a question that is put now, for whoever counts."""
        spent, started = _spent.get(), time.perf_counter()

        def note(calls: int, said: ChatResponse | None) -> None:
            if spent is not None:
                spent.add(self.name, calls, said, time.perf_counter() - started)

        return note

    def _note_refusal(self, error: HoloDeckError, told: str) -> None:
        """Ask no more after a refused key, or after several refusals in a row.

        One that has answered before may object to this question alone.
        """
        permanent = isinstance(error, BackendError) and error.permanent
        self._refusals = self._refusals + 1 if permanent else 0
        is_key = isinstance(error, BackendError) and error.refusal == "key"
        most = 1 if is_key and not self._has_answered else MOST_REFUSALS
        if self._refusals >= most and self._refusal is None:
            self._refusal = told
            logger.error("the judge is not asked any more: %s", told)


def _parsed(said: ChatResponse) -> Any:
    """The JSON of an answer. Raises ValueError in words for the judge."""
    if said.is_cut:
        raise ValueError("the answer was cut off at the limit of tokens")
    return parse_json_answer(said.text)


def _reader(schema: Mapping[str, Any], read: Reader | None) -> Reader:
    def checked(value: Any) -> Any:
        validate_against_schema(value, schema)
        return value if read is None else read(value)

    return checked


def validate_against_schema(value: Any, schema: Mapping[str, Any]) -> None:
    """Raise ValueError, in words for the judge, for a value that the schema does not allow."""
    # Imported here because only judged runs need it, and it takes 50 ms.
    import jsonschema

    validator = jsonschema.validators.validator_for(schema)(schema)
    error = jsonschema.exceptions.best_match(validator.iter_errors(value))
    if error is not None:
        place = ".".join(map(str, error.absolute_path))
        raise ValueError(f"{place}: {error.message}" if place else error.message)


def _again(question: ChatRequest, said: ChatResponse, wrong: str) -> ChatRequest:
    """The question once more, with the answer that was none and what is wrong with it."""
    wish = f"That cannot be used: {wrong}. Answer again, with nothing but the JSON asked for."
    messages = [
        *question.messages,
        {"role": "assistant", "content": said.text or "(nothing)"},
        {"role": "user", "content": wish},
    ]
    return ChatRequest(messages, question.schema, question.is_json, max_tokens=question.max_tokens)


def _quoted(text: str) -> str:
    return repr(one_line(text, MOST_QUOTED)) if text.strip() else "nothing"


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
