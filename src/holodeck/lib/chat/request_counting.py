"""Asking a model, with every request counted that goes to it, be it answered or not."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from holodeck.lib.chat.model import ChatModel, ChatRequest, ChatResponse

Note = Callable[[int, ChatResponse | None], None]
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


async def ask_model(model: ChatModel, question: ChatRequest, note: Note) -> ChatResponse:
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
