"""Models for judges and simulated users: behind an endpoint, or called by a Python library."""

import inspect
import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.llm.client import ChatClient, RequestSender, RequestStats
from holodeck.lib.llm.completion import (
    Completion,
    anthropic_body,
    openai_body,
)
from holodeck.lib.llm.endpoint import Endpoint, ProxyFor, drop_none, endpoint_key
from holodeck.lib.llm.errors import RequestError
from holodeck.lib.llm.formats import parse_anthropic_message, parse_completion
from holodeck.lib.llm.limiter import Limiter, Limiters, time_limit
from holodeck.lib.llm.limits import NO_OPTIONS, CallLimits, RequestOptions
from holodeck.lib.llm.model import ChatRequest, ChatResponse
from holodeck.lib.llm.provider_errors import request_error
from holodeck.lib.llm.request_handler import answer_json
from holodeck.lib.llm.retry import RetryConfig
from holodeck.lib.observability import names, span
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.support.text import instance_of
from holodeck.lib.ui.activity import loading
from holodeck.models.llm import LLMProvider, ProviderEnum

logger = logging.getLogger(__name__)

REFUSED_STATUS = frozenset({400, 404, 422})
"""Statuses of an endpoint that does not know a part of the request."""
_OPTIONAL_PARTS = {
    "response_format": "response_format",
    "top_logprobs": "logprobs",
    "logprobs": "logprobs",
    "temperature": "temperature",
    "top_p": "top_p",
}
"""Parts that a request can do without, and the word for each in a refusal."""
_LOGPROBS = frozenset({"logprobs", "top_logprobs"})
FEW_ALTERNATIVES = 5
"""How many alternatives of a token every endpoint returns that returns any."""
_ALTERNATIVES_LIMIT = re.compile(r"top_logprobs.*\d")
"""A refusal that names how many are allowed."""


class CompletionModel(ABC):
    """A model for judges and simulated users, whatever sends its requests.

    If an endpoint refuses an optional part of a request, such as the response format, the model
    leaves that part out from then on. Callers check the response themselves.

    Args:
        llm: The model; its sampling settings apply to every request.
        options: What is special about its requests.
    """

    def __init__(self, llm: LLMProvider, options: RequestOptions = NO_OPTIONS) -> None:
        is_anthropic = llm.protocol == "anthropic"
        self._llm = llm
        self._options = options
        self._build_body = anthropic_body if is_anthropic else openai_body
        self._refused_parts: set[str] = set()
        self._has_few_alternatives = False

    @property
    def name(self) -> str:
        """Provider and model."""
        return self._llm.label

    async def answer(self, request: ChatRequest) -> ChatResponse:
        """Return the model's response, retried where that may help. Raises RequestError."""
        stats = RequestStats()
        body = self._options.change_body(self._build_body(self._llm, request))
        suspects: frozenset[str] = frozenset()
        while True:
            sent = self._acceptable(body, suspects)
            try:
                completion = await self._complete(sent, stats)
            except RequestError as error:
                if self._note_refused_part(error, sent):
                    continue
                # a request for one word exists for the probabilities, and its caller knows another
                is_suspect = request.schema is not None and "logprobs" in sent
                if not is_suspect or error.status not in REFUSED_STATUS:
                    raise
                suspects = _LOGPROBS
            else:
                self._refused_parts |= suspects
                return ChatResponse(
                    completion.text or "",
                    stats.meter.usage,
                    completion.tokens,
                    completion.is_cut,
                    stats.waited_s,
                    completion.is_filtered,
                )

    @abstractmethod
    async def _complete(self, body: Mapping[str, Any], stats: RequestStats) -> Completion:
        """Return the completion for a request body. Raises RequestError."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections of the running event loop."""

    def _acceptable(self, body: Mapping[str, Any], suspects: Set[str]) -> dict[str, Any]:
        """Return a request without the parts that the endpoint refuses, or may refuse."""
        without = self._refused_parts | suspects
        sent = {key: value for key, value in body.items() if key not in without}
        if self._has_few_alternatives and "top_logprobs" in sent:
            sent["top_logprobs"] = min(sent["top_logprobs"], FEW_ALTERNATIVES)
        return sent

    def _note_refused_part(self, error: RequestError, sent: Mapping[str, Any]) -> bool:
        """Remember the part of a request that the endpoint's refusal names, if it names one."""
        if error.status not in REFUSED_STATUS:
            return False
        message = str(error).replace("response format", "response_format")
        parts = (part for part, word in _OPTIONAL_PARTS.items() if part in sent and word in message)
        part = next(parts, None)
        if part is None:
            return False
        if _ALTERNATIVES_LIMIT.search(message) and sent.get("top_logprobs", 0) > FEW_ALTERNATIVES:
            self._has_few_alternatives = True
            return True
        logger.info("%s: requests leave out %s from now on: %s", self.name, part, error)
        self._refused_parts |= _LOGPROBS if part in _LOGPROBS else {part}
        return True


class HttpChatModel(CompletionModel):
    """A model behind an endpoint, called by our own client.

    Args:
        llm: The model; its sampling settings apply to every request.
        limits: Time limits and retries.
        limiters: The limiters of the run.
        kind: The kind of work; each kind has slots of its own.
        proxy_for: Returns the proxy for a URL.
        options: What is special about its requests.

    Raises:
        ConfigError: The key, the endpoint or a header is unusable. Nothing is sent.
    """

    def __init__(
        self,
        llm: LLMProvider,
        limits: CallLimits,
        limiters: Limiters,
        kind: str = "judge",
        proxy_for: ProxyFor | None = None,
        options: RequestOptions = NO_OPTIONS,
    ) -> None:
        if llm.protocol == "scripted":
            raise ConfigError(
                "model.provider", "a scripted model answers for an agent only; write another here"
            )
        super().__init__(llm, options)
        parse = parse_anthropic_message if llm.protocol == "anthropic" else parse_completion
        endpoint = Endpoint.of(llm, proxy_for)
        endpoint = replace(endpoint, headers=options.add_headers(endpoint.headers))
        limits = options.limits(limits)
        self._client = ChatClient(endpoint, llm.name, limits, limiters, kind, parse)

    async def _complete(self, body: Mapping[str, Any], stats: RequestStats) -> Completion:
        return await self._client.complete(json.dumps(body), stats)

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        await self._client.close()


Create = Callable[..., Any]
"""Sends a request with the keys of its body as arguments; async or not."""


class LibraryChatModel(CompletionModel):
    """A model whose requests a library sends, with our slots, time limits and retries.

    Args:
        llm: The model; its sampling settings apply to every request.
        create: Sends a request and returns a completion, as a pydantic model.
        limits: Time limits and retries.
        limiters: The limiters of the run.
        kind: The kind of work; each kind has slots of its own.
        options: What is special about its requests.
    """

    def __init__(
        self,
        llm: LLMProvider,
        create: Create,
        limits: CallLimits,
        limiters: Limiters,
        kind: str = "judge",
        options: RequestOptions = NO_OPTIONS,
    ) -> None:
        super().__init__(llm, options)
        limits = options.limits(limits)
        self._create = create
        self._kind = kind
        self._timeout = limits.attempt_timeout
        self._retry = RetryConfig(max_retries=limits.retries, base_delay=limits.retry_delay)
        self._endpoint = endpoint_key(llm)
        self._limiters = limiters
        self._sender = RequestSender(
            self._endpoint, limiters, kind, classify=request_error, timeout=limits.timeout
        )

    async def _complete(self, body: Mapping[str, Any], stats: RequestStats) -> Completion:
        completion = await self._sender.send(partial(self._send, body), self._retry, stats)
        stats.meter.add(completion.usage, self._llm.name)
        return completion

    async def _send(self, body: Mapping[str, Any], _limiter: Limiter) -> Completion:
        """Send the request once."""

        async def ask() -> Mapping[str, Any]:
            call = partial(self._create, **body)
            async with time_limit(self._timeout):
                is_async = inspect.iscoroutinefunction(inspect.unwrap(self._create))
                value = call() if is_async else await run_in_thread(call, "holodeck-model")
                response = await value if inspect.isawaitable(value) else value
            self._limiters.note_reached(self._endpoint)
            document: Mapping[str, Any] = json.loads(response.model_dump_json())
            return document

        labels = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: names.provider(self._endpoint),
            names.REQUEST_MODEL: self._llm.name,
        }
        with span(names.chat(self._llm.name), labels, kind="client") as current:
            completion = parse_completion(await answer_json(self._kind, body, ask))
            usage = completion.usage
            current.set({names.INPUT_TOKENS: usage.prompt_tokens})
            current.set({names.OUTPUT_TOKENS: usage.completion_tokens})
        return completion

    async def close(self) -> None:
        """Do nothing: the library or the user closes the connections."""


def create_with_client(options: RequestOptions) -> Create:
    """Return what sends requests with the user's own client. Raises ConfigError."""
    client = options.client
    if hasattr(client, "with_options"):
        client = client.with_options(max_retries=0)
    create = getattr(getattr(getattr(client, "chat", None), "completions", None), "create", None)
    if create is None:
        raise ConfigError(
            "client",
            f"{instance_of(client)} has no chat.completions.create(); give an OpenAI,"
            " AsyncOpenAI, AzureOpenAI or AsyncAzureOpenAI of the package openai",
        )
    known = inspect.signature(create).parameters
    headers = {"extra_headers": dict(options.headers)} if options.headers else {}
    timeout = {} if options.timeout is None else {"timeout": options.timeout}

    def send(**body: Any) -> Any:
        named = {key: value for key, value in body.items() if key in known}
        others = {key: value for key, value in body.items() if key not in known}
        extra = {"extra_body": others} if others else {}
        return create(**named, **extra, **headers, **timeout)

    return send


def create_with_litellm(llm: LLMProvider, options: RequestOptions) -> Create:
    """Return what sends requests through LiteLLM. Raises MissingExtra."""
    if find_spec("litellm") is None:
        raise MissingExtra("litellm", f"model.provider: {llm.provider.value}")
    prefix = "" if llm.provider is ProviderEnum.LITELLM else f"{llm.provider.value}/"
    key = None if llm.api_key is None else llm.api_key.get_secret_value()
    fixed = drop_none(
        {
            "api_key": key,
            "api_version": llm.api_version,
            "extra_headers": dict(options.headers) or None,
            "timeout": options.timeout,
            "num_retries": 0,
            "max_retries": 0,
            **options.library,
        }
    )

    async def send(**body: Any) -> Any:
        complete = await run_in_thread(_import_litellm, "holodeck-import")
        return await complete(**{**body, "model": f"{prefix}{llm.name}", **fixed})

    return send


def _import_litellm() -> Callable[..., Awaitable[Any]]:
    """Return LiteLLM's function for completions; the import takes seconds."""
    with loading("LiteLLM", "litellm"):
        import litellm

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    complete: Callable[..., Awaitable[Any]] = litellm.acompletion
    return complete
