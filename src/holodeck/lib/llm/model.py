"""The interface of a chat model: what judges and simulated users talk to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from holodeck.models.cases.messages import Message
from holodeck.models.token_usage import TokenUsage, UsageMeter


@dataclass(frozen=True)
class ChatRequest:
    """One request to a model."""

    messages: Sequence[Message]
    schema: Mapping[str, Any] | None = None
    """JSON schema of the response, for endpoints that enforce one; None for text."""
    is_json: bool = False
    """Whether the response must be some JSON object."""
    top_logprobs: int | None = None
    """Number of alternatives of each token to return with their probabilities."""
    max_tokens: int | None = None
    """Limit of this response; None leaves it to the model's settings."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token of a response."""

    text: str
    probability: float | None
    """None if the endpoint does not say."""
    alternatives: tuple[tuple[str, float], ...] = ()
    """The likeliest tokens at this place with their probabilities; mostly it is one of them."""


@dataclass(frozen=True)
class ChatResponse:
    """A model's response."""

    text: str
    usage: TokenUsage = field(default_factory=TokenUsage)
    tokens: Sequence[Token] = ()
    """The tokens of the response; empty if the endpoint does not return them."""
    is_cut: bool = False
    """Whether the response ended at the limit of tokens."""
    waited_s: float = 0.0
    """Seconds that the request waited for a slot."""
    is_filtered: bool = False
    """Whether a content filter of the provider ended the response."""

    @property
    def token_probabilities(self) -> Mapping[str, float] | None:
        """Probability of each alternative of the first token; None if the endpoint does not say."""
        if not self.tokens:
            return None
        first = self.tokens[0]
        own = {} if first.probability is None else {first.text: first.probability}
        return own | dict(reversed(first.alternatives)) or None


class ChatModel(Protocol):
    """A model that answers any number of requests concurrently, on any event loop."""

    @property
    def name(self) -> str:
        """Provider and model, as in reports."""
        ...

    async def answer(self, request: ChatRequest) -> ChatResponse:
        """Return the model's response. Raises BackendError."""
        ...

    async def close(self) -> None:
        """Close what belongs to the running event loop; the model may be used again."""
        ...


RequestListener = Callable[[int, ChatResponse | None], None]
"""Called with the number of requests that were sent, and the response; None without one."""


@dataclass
class _RequestCount:
    sent: int = 0


_request_count: ContextVar[_RequestCount | None] = ContextVar(
    "holodeck_request_count", default=None
)


def note_request() -> None:
    """Count a request that is about to be sent; called by models."""
    requests = _request_count.get()
    if requests is not None:
        requests.sent += 1


_meter: ContextVar[UsageMeter | None] = ContextVar("holodeck_usage", default=None)


@contextmanager
def count_usage() -> Iterator[UsageMeter]:
    """Count what judges, simulated users and attackers use inside the block, and in its tasks."""
    meter = UsageMeter()
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)


def current_meter() -> UsageMeter | None:
    """Return the meter of the innermost `count_usage`; None outside of it."""
    return _meter.get()


def record_cache_hit() -> None:
    """Count a cached response, for which no request was sent."""
    meter = current_meter()
    if meter is not None:
        meter.cache_hits += 1


def count_requests(
    meter: UsageMeter,
    model: str,
    requests: int,
    response: ChatResponse | None,
    seconds: float = 0.0,
) -> None:
    """Add the requests for a response to a meter; the last failed if there is no response."""
    if response is None:
        meter.add_failed(requests)
    else:
        meter.add(response.usage, model, requests=requests, failed=requests - 1, seconds=seconds)


def record_response(requests: int, response: ChatResponse | None) -> None:
    """Count the requests for a response in the current meter."""
    meter = current_meter()
    if meter is not None:
        count_requests(meter, "", requests, response)


async def ask_model(
    model: ChatModel, request: ChatRequest, listener: RequestListener = record_response
) -> ChatResponse:
    """Return the model's response. Raises BackendError.

    The listener is called in any case, also if the call is cancelled.
    """
    requests, response = _RequestCount(), None
    token = _request_count.set(requests)
    try:
        response = await model.answer(request)
        return response
    finally:
        _request_count.reset(token)
        # A response proves one request, even from a model that does not count.
        listener(max(requests.sent, int(response is not None)), response)
