"""A model behind an endpoint, in OpenAI's words or in Anthropic's."""

import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from holodeck.lib.chat.anthropic import anthropic_body, anthropic_completion
from holodeck.lib.chat.client import ChatClient, RequestStats
from holodeck.lib.chat.completion import Completion, parse_completion
from holodeck.lib.chat.endpoint import Endpoint, ProxyFor
from holodeck.lib.chat.faults import ChatFault
from holodeck.lib.chat.limits import CallLimits
from holodeck.lib.chat.model import ChatRequest, ChatResponse
from holodeck.lib.chat.settings import drop_none, sampling
from holodeck.lib.chat.strict import strict_format
from holodeck.lib.limiter import Limiters
from holodeck.models.llm import LLMProvider, ProviderEnum

logger = logging.getLogger(__name__)

JsonObject = dict[str, Any]

REFUSED = frozenset({400, 404, 422})
"""What an endpoint answers that does not know a part of the request."""


class HttpChatModel:
    """A model behind an endpoint, through the client that agents use, too.

    A part of a request that an endpoint refuses, such as the format of the answer, is left out
    from then on: what an answer holds is checked by whoever asks.

    Args:
        llm: The model; its sampling settings hold for every question.
        limits: How long a try may take, and how often it is made again.
        limiters: The slots that requests share.
        kind: The kind of work, each of which has slots of its own.
        proxy_for: Names the proxy on the way to a URL.

    Raises:
        ConfigError: The key or the endpoint makes no sense. Nothing is sent.
    """

    def __init__(
        self,
        llm: LLMProvider,
        limits: CallLimits,
        limiters: Limiters,
        kind: str = "judge",
        proxy_for: ProxyFor | None = None,
    ) -> None:
        speaks_anthropic = llm.provider is ProviderEnum.ANTHROPIC
        read: Callable[[bytes], Completion] = (
            anthropic_completion if speaks_anthropic else parse_completion
        )
        self._llm = llm
        self._body = anthropic_body if speaks_anthropic else openai_body
        self._client = ChatClient(
            Endpoint.of(llm, proxy_for), llm.name, limits, limiters, kind, read
        )
        self._refused: set[str] = set()

    @property
    def name(self) -> str:
        """Provider and model."""
        return f"{self._llm.provider.value}/{self._llm.name}"

    async def answer(self, question: ChatRequest) -> ChatResponse:
        """The model's answer, retried where trying again can help. Raises ChatFault."""
        request_stats = RequestStats()
        while True:
            body = self._body(self._llm, question)
            sent = {key: value for key, value in body.items() if key not in self._refused}
            try:
                completion = await self._client.complete(json.dumps(sent), request_stats)
            except ChatFault as error:
                if not self._drop(error, sent):
                    raise
            else:
                return ChatResponse(
                    completion.text or "",
                    request_stats.usage,
                    completion.token_probabilities,
                    completion.is_cut,
                    request_stats.waited_s,
                )

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        await self._client.close()

    def _drop(self, error: ChatFault, sent: Mapping[str, Any]) -> bool:
        """Note the part of a request that the endpoint named in its refusal, if it did."""
        if error.status not in REFUSED:
            return False
        words = str(error)
        part = next((one for one in _DROPPABLE if one in sent and _NAMES[one] in words), None)
        if part is None:
            return False
        logger.info("%s: asked without %s from now on: %s", self.name, part, error)
        self._refused |= {part, "top_logprobs"} if part == "logprobs" else {part}
        return True


_NAMES = {
    "response_format": "response_format",
    "top_logprobs": "logprobs",
    "logprobs": "logprobs",
    "temperature": "temperature",
    "top_p": "top_p",
}
_DROPPABLE = tuple(_NAMES)


def openai_body(llm: LLMProvider, question: ChatRequest) -> JsonObject:
    """A question as a chat completion request."""
    if question.max_tokens is not None:
        llm = llm.model_copy(update={"max_tokens": question.max_tokens})
    wants_chances = question.top_logprobs is not None
    return drop_none(
        {
            "model": llm.name,
            "messages": list(question.messages),
            **sampling(llm, _format(question)),
            "logprobs": True if wants_chances else None,
            "top_logprobs": question.top_logprobs,
        }
    )


def _format(question: ChatRequest) -> JsonObject | None:
    if question.schema is not None:
        return strict_format(question.schema)
    return {"type": "json_object"} if question.is_json else None
