"""Models that a Python library calls: the user's own client of OpenAI's library, or LiteLLM."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.llm.client import CompletionModel, RequestSender, RequestStats
from holodeck.lib.llm.completion import Completion, parse_completion
from holodeck.lib.llm.endpoint import drop_none, endpoint_key
from holodeck.lib.llm.limiter import Limiter, Limiters, time_limit
from holodeck.lib.llm.limits import NO_OPTIONS, CallLimits, RequestOptions
from holodeck.lib.llm.provider_errors import request_error
from holodeck.lib.llm.retry import RetryConfig
from holodeck.lib.observability import names, span
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.ui.activity import loading
from holodeck.models.llm import LLMProvider, ProviderEnum

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
        call = partial(self._create, **body)
        labels = {
            names.OPERATION: names.CHAT,
            names.PROVIDER: names.provider(self._endpoint),
            names.REQUEST_MODEL: self._llm.name,
        }
        with span(names.chat(self._llm.name), labels, kind="client") as current:
            async with time_limit(self._timeout):
                is_async = inspect.iscoroutinefunction(inspect.unwrap(self._create))
                value = call() if is_async else await run_in_thread(call, "holodeck-model")
                response = await value if inspect.isawaitable(value) else value
            self._limiters.note_reached(self._endpoint)
            completion = parse_completion(response.model_dump_json().encode())
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
            f"a {type(client).__name__} has no chat.completions.create(); give an OpenAI,"
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
