"""Judge models: send a prompt, and check the JSON of the answer before it is used."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

from holodeck.errors import (
    BackendError,
    ConfigError,
    EvaluationError,
    HoloDeckError,
)
from holodeck.lib.llm.errors import RequestError
from holodeck.lib.llm.json_answer import parse_json_answer
from holodeck.lib.llm.model import (
    ChatModel,
    ChatRequest,
    ChatResponse,
    RequestListener,
    Token,
    ask_model,
    count_requests,
    current_meter,
)
from holodeck.lib.llm.retry import Wait, on_wait
from holodeck.lib.observability import names, span
from holodeck.lib.processes.threads import is_cancelled
from holodeck.lib.support.text import one_line
from holodeck.lib.ui.activity import activity
from holodeck.models.cases.messages import Message, text_of
from holodeck.models.token_usage import TokenUsage, UsageMeter

logger = logging.getLogger(__name__)

JsonObject = dict[str, Any]
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
        meter, prompts, started = current_meter(), _prompts.get(), time.perf_counter()
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
    waited_s = 0.0 if response is None else response.waited_s
    count_requests(meter, judge, requests, response, max(0.0, seconds - waited_s))


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
