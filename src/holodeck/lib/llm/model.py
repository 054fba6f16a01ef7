"""The interface of a chat model: what judges and simulated users talk to."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from holodeck.models.token_usage import TokenUsage


@dataclass(frozen=True)
class ChatRequest:
    """What a model is asked."""

    messages: Sequence[Mapping[str, Any]]
    """As OpenAI has them: `role` and `content`."""
    schema: Mapping[str, Any] | None = None
    """JSON schema of the answer, where the endpoint can hold a model to one; None for text."""
    is_json: bool = False
    """Whether the answer is to be any JSON object."""
    top_logprobs: int | None = None
    """How many alternatives of the first token to tell, with their chances; None for none."""
    max_tokens: int | None = None
    """Most tokens of this answer; None leaves it to the model's own settings."""


@dataclass(frozen=True)
class ChatResponse:
    """What a model answered."""

    text: str
    usage: TokenUsage = field(default_factory=TokenUsage.zero)
    token_probabilities: Mapping[str, float] | None = None
    """How likely each first token was, 0 to 1; None where that is not told."""
    is_cut: bool = False
    """Whether the answer ended at the limit of tokens."""
    waited_s: float = 0.0
    """Seconds that the request waited for its turn."""


class ChatModel(Protocol):
    """Whoever answers questions; any number at once, on any event loop."""

    @property
    def name(self) -> str:
        """What reports call it: provider and model."""
        ...

    async def answer(self, question: ChatRequest) -> ChatResponse:
        """The model's answer. Raises BackendError."""
        ...

    async def close(self) -> None:
        """Let go of what belongs to the running event loop; may be used again."""
        ...


RequestListener = Callable[[int, ChatResponse | None], None]
"""Told how many requests were sent, and the answer; None where there is none."""


@dataclass
class _Requests:
    sent: int = 0


_requests: ContextVar[_Requests | None] = ContextVar("holodeck_requests", default=None)


def note_request() -> None:
    """Count a request that goes to a model now; for models."""
    requests = _requests.get()
    if requests is not None:
        requests.sent += 1


async def ask_model(model: ChatModel, question: ChatRequest, note: RequestListener) -> ChatResponse:
    """The model's answer. Raises BackendError.

    `note` is told of the requests in any case, also where the answer is not waited for any more.
    """
    requests, said = _Requests(), None
    token = _requests.set(requests)
    try:
        said = await model.answer(question)
        return said
    finally:
        _requests.reset(token)
        # A model that answers was asked, whether or not it counts.
        note(max(requests.sent, int(said is not None)), said)
