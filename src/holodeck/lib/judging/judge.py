"""Judge models: send a prompt, and check the JSON of the answer before it is used."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holodeck.errors import (
    BackendError,
    ConfigError,
    EvaluationError,
    HoloDeckError,
    ModelStoreError,
)
from holodeck.lib.llm.errors import RequestError
from holodeck.lib.llm.json_answer import parse_json_answer
from holodeck.lib.llm.limits import NO_OPTIONS, RequestOptions, build_limiters, call_limits
from holodeck.lib.llm.model import (
    ChatModel,
    ChatRequest,
    ChatResponse,
    RequestListener,
    Token,
    ask_model,
)
from holodeck.lib.llm.retry import Wait, on_wait
from holodeck.lib.observability import names, span
from holodeck.lib.processes.threads import is_cancelled
from holodeck.lib.support.environment import cache_dir, hub_url, offline, proxy_for, set_variables
from holodeck.lib.support.text import one_line
from holodeck.lib.ui.activity import activity
from holodeck.lib.ui.live import DownloadProgress
from holodeck.models.cases.messages import Message, text_of
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.models.token_usage import TokenUsage, UsageMeter

if TYPE_CHECKING:
    from holodeck.lib.local_models.runtime import EmbeddingModel
    from holodeck.lib.local_models.store import ModelStore

logger = logging.getLogger(__name__)

JsonObject = dict[str, Any]
TellJudges = Callable[[str, str, str], None]
"""Tells other processes what became of a request to the judge with that key."""
Parser = Callable[[Any], Any]
"""Converts the JSON of an answer; raises ValueError with a message for the judge."""

MAX_REFUSALS = 3
"""After this many permanent errors in a row, the judge is not asked again. A rejected API key of a
judge that never answered counts at once."""
MAX_FAILURES = 10
"""After this many failed attempts in a row, none of them answered, the judge is not asked again."""
MIN_ATTEMPTS = 3
"""A request that failed so often, or for good, must be among them: a burst of first attempts may be
refused by a service that answers the retries."""
MAX_QUOTED = 160

MAX_PROMPTS = 5
MAX_PROMPT = 4000
"""Prompts that are kept for each metric, and the characters of each."""

_meter: ContextVar[UsageMeter | None] = ContextVar("holodeck_judging", default=None)
_prompts: ContextVar[list[str] | None] = ContextVar("holodeck_judge_prompts", default=None)


@contextmanager
def keep_judge_prompts() -> Iterator[list[str]]:
    """Keep the first prompts of judges inside the block and in tasks that it starts."""
    prompts: list[str] = []
    token = _prompts.set(prompts)
    try:
        yield prompts
    finally:
        _prompts.reset(token)


def _prompt_text(request: ChatRequest) -> str:
    text = "\n\n".join(f"{message['role']}:\n{text_of(message)}" for message in request.messages)
    return text if len(text) <= MAX_PROMPT else f"{text[:MAX_PROMPT]}… ({len(text)} characters)"


@contextmanager
def count_judge_usage() -> Iterator[UsageMeter]:
    """Count the requests to judges inside the block and in tasks that it starts."""
    meter = UsageMeter()
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)


class Judge:
    """Asks a model for verdicts.

    Every answer is checked against the schema of the request. An invalid answer is sent back once,
    with what is wrong with it; a second invalid answer is an EvaluationError. Scores outside their
    range are invalid and never clamped.
    """

    def __init__(self, model: ChatModel, tell: Callable[[str, str], None] | None = None) -> None:
        """Ask a model.

        Args:
            model: The model.
            tell: Called with what became of requests, for judges of the same model in other
                processes: their `note_elsewhere`.
        """
        self._model = model
        self._tell: Callable[[str, str], None] = tell or (lambda *_: None)
        self._refusals = 0
        self._failures = 0
        self._in_flight: set[asyncio.Future[ChatResponse]] = set()
        self._refusal: str | None = None
        self._has_answered = False

    @property
    def name(self) -> str:
        """The provider and name of the model."""
        return self._model.name

    async def ask(
        self,
        messages: Sequence[Message],
        schema: Mapping[str, Any],
        parse: Parser | None = None,
        *,
        is_trial: bool = False,
    ) -> Any:
        """Return the JSON of the judge's answer, valid by `schema` and converted by `parse`.

        Whether a model takes images or gives probabilities shows only when it is asked: a trial
        that it refuses does not count against the judge. Raises EvaluationError.
        """
        answer, _ = await self.ask_with_tokens(messages, schema, parse, is_trial=is_trial)
        return answer

    async def ask_with_tokens(
        self,
        messages: Sequence[Message],
        schema: Mapping[str, Any],
        parse: Parser | None = None,
        *,
        top_logprobs: int | None = None,
        is_trial: bool = False,
    ) -> tuple[Any, Sequence[Token]]:
        """Do what `ask` does, and return the tokens of the answer with their alternatives, too.

        There are no tokens if the endpoint does not return them. Raises EvaluationError.
        """

        def parse_valid(value: Any) -> Any:
            validate_against_schema(value, schema)
            return value if parse is None else parse(value)

        request = ChatRequest(messages, schema=schema, top_logprobs=top_logprobs)
        response = await self._send(request, is_trial=is_trial)
        try:
            return parse_valid(_json_of(response)), response.tokens
        except ValueError as error:
            fault = str(error)
            logger.info("%s: invalid answer, asking once more: %s", self.name, fault)
        response = await self._send(_correction(request, response, fault))
        try:
            return parse_valid(_json_of(response)), response.tokens
        except ValueError as error:
            text = response.text
            quoted = repr(one_line(text, MAX_QUOTED)) if text.strip() else "nothing"
            raise EvaluationError(
                f"the judge {self.name} did not answer as asked, twice: {error};"
                f" it answered {quoted}"
            ) from error

    async def ask_for_text(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int | None = None,
        top_logprobs: int | None = None,
        is_trial: bool = False,
    ) -> ChatResponse:
        """Return the judge's answer as unchecked text; for `is_trial` see `ask`.

        Raises EvaluationError.
        """
        request = ChatRequest(messages, max_tokens=max_tokens, top_logprobs=top_logprobs)
        response = await self._send(request, is_trial=is_trial)
        if response.is_filtered:
            raise EvaluationError(f"the judge {self.name}: {_FILTERED}")
        return response

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        await self._model.close()

    async def _send(self, request: ChatRequest, *, is_trial: bool = False) -> ChatResponse:
        if self._refusal is not None:
            raise EvaluationError(self._refusal)
        meter, prompts, started = _meter.get(), _prompts.get(), time.perf_counter()
        if prompts is not None and len(prompts) < MAX_PROMPTS:
            prompts.append(_prompt_text(request))

        def count(requests: int, response: ChatResponse | None) -> None:
            if meter is not None:
                _meter_request(meter, self.name, requests, response, time.perf_counter() - started)

        try:
            with activity("judging"), span(names.JUDGE, {names.JUDGE_MODEL: self.name}):
                response = await self._ask_unless_down(request, count)
        except (ConfigError, EvaluationError):
            raise
        except HoloDeckError as error:
            message = f"the judge {self.name}: {error}"
            if not (is_trial and is_refused_request(error)):
                self._record_refusal(error, message)
            raise EvaluationError(message) from error
        if self._refusals or self._failures or not self._has_answered:
            self._tell("answered", "")
        self._note_answer()
        return response

    def _note_answer(self) -> None:
        self._refusals, self._failures, self._has_answered = 0, 0, True

    def note_elsewhere(self, what: str, detail: str) -> None:
        """Count what became of a request in another process, which decides what follows."""
        match what:
            case "answered":
                self._note_answer()
            case "failed":
                self._failures += 1
            case "refused":
                self._refusals += 1
            case "not refused":
                self._refusals = 0
            case "given up":
                self._stop(detail)

    async def _ask_unless_down(
        self, request: ChatRequest, listener: RequestListener
    ) -> ChatResponse:
        """Return the model's response. Raises EvaluationError once the judge is given up."""
        token = on_wait.set(partial(self._record_wait, on_wait.get()))
        try:
            task = asyncio.ensure_future(ask_model(self._model, request, listener))
        finally:
            on_wait.reset(token)
        self._in_flight.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if self._refusal is None or is_cancelled():
                raise
            raise EvaluationError(self._refusal) from None
        finally:
            self._in_flight.discard(task)

    def _record_wait(self, listener: Callable[[Wait], None] | None, wait: Wait) -> None:
        """Count an attempt that failed and is to be repeated."""
        if listener is not None:
            listener(wait)
        self._record_failure(wait.reason, is_repeated=wait.retry >= MIN_ATTEMPTS)

    def _record_failure(self, reason: str, *, is_repeated: bool) -> None:
        """Count an attempt without an answer that might have succeeded; after many, stop asking."""
        self._failures += 1
        self._tell("failed", "")
        if is_repeated and self._failures >= MAX_FAILURES:
            failed = f"{self._failures} attempts in a row failed"
            self._give_up(f"the judge {self.name} is down: {failed}; {reason}")

    def _record_refusal(self, error: HoloDeckError, message: str) -> None:
        """Stop asking after a rejected API key, or after several permanent errors in a row.

        A judge that has answered before may reject this request only.
        """
        is_permanent = isinstance(error, BackendError) and error.permanent
        if is_permanent or self._refusals:
            self._tell("refused" if is_permanent else "not refused", "")
        self._refusals = self._refusals + 1 if is_permanent else 0
        is_key = isinstance(error, BackendError) and error.refusal == "key"
        limit = 1 if is_key and not self._has_answered else MAX_REFUSALS
        if self._refusals >= limit:
            self._give_up(message)
        elif not is_permanent:
            self._record_failure(str(error), is_repeated=True)

    def _give_up(self, message: str) -> None:
        """Answer every request with this error, also those that are waiting to be repeated."""
        if self._refusal is not None:
            return
        logger.error("the judge is not asked any more: %s", message)
        self._tell("given up", message)
        self._stop(message)

    def _stop(self, message: str) -> None:
        self._refusal = message
        for task in self._in_flight:
            task.cancel()


def is_refused_request(error: BaseException | None) -> bool:
    """Whether a model refused this request only, so that another may be answered."""
    return (
        isinstance(error, RequestError)
        and error.status is not None
        and not (error.permanent or error.is_transient)
    )


def _meter_request(
    meter: UsageMeter, judge: str, requests: int, response: ChatResponse | None, seconds: float
) -> None:
    if requests:
        meter.by_model.setdefault(judge, TokenUsage())
    if response is None:
        meter.add_failed(requests)
    else:
        seconds = max(0.0, seconds - response.waited_s)
        meter.add(response.usage, judge, requests=requests, failed=requests - 1, seconds=seconds)


_FILTERED = "a content filter ended the answer"


def _json_of(response: ChatResponse) -> Any:
    """Parse the JSON of an answer. Raises ValueError with a message for the judge."""
    if response.is_cut:
        raise ValueError("the answer was cut off at the limit of tokens")
    if response.is_filtered:
        raise ValueError(_FILTERED)
    return parse_json_answer(response.text)


def validate_against_schema(value: Any, schema: Mapping[str, Any]) -> None:
    """Raise ValueError, with a message for the judge, for a value that is invalid by the schema."""
    # Imported here because only judged runs need it, and it takes 50 ms.
    import jsonschema

    validator = jsonschema.validators.validator_for(schema)(schema)
    error = jsonschema.exceptions.best_match(validator.iter_errors(value))
    if error is not None:
        path = ".".join(map(str, error.absolute_path))
        raise ValueError(f"{path}: {error.message}" if path else error.message)


def _correction(request: ChatRequest, response: ChatResponse, fault: str) -> ChatRequest:
    """Return the request again, followed by the invalid answer and what is wrong with it."""
    text = f"That cannot be used: {fault}. Answer again, with nothing but the JSON asked for."
    messages: list[Message] = [
        *request.messages,
        {"role": "assistant", "content": response.text or "(nothing)"},
        {"role": "user", "content": text},
    ]
    return replace(request, messages=messages)


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
        is_offline: Whether downloading weights is forbidden, whatever `execution` says.
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
            return LocalChatModel(llm, weights, self._limits.timeout)
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
