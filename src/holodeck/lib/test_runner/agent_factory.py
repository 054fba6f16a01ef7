"""Build the agent of an agent.yaml, on Semantic Kernel or with the lean chat client."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from holodeck.config.agent_files import load_instructions, load_response_schema, read_tool_prompt
from holodeck.config.environment import Environment
from holodeck.errors import AgentFactoryError, ConfigError, HoloDeckError
from holodeck.lib.backends.base import (
    AgentBackend,
    AgentSession,
    Capabilities,
    ExecutionResult,
    Message,
    RequestedCall,
    ToolResult,
    model_problem,
    without_history,
)
from holodeck.lib.llm.limiter import time_limit
from holodeck.lib.llm.limits import build_limiters, call_limits, current_call_limit
from holodeck.lib.llm.provider_errors import describe, refusal_in
from holodeck.lib.llm.retry import RetryConfig, with_attempts
from holodeck.lib.observability import names, span
from holodeck.lib.support.environment import (
    cache_dir,
    hub_url,
    offline,
    process_variables,
    proxy_for,
)
from holodeck.lib.support.text import json_or_none
from holodeck.lib.tools.base import Tool
from holodeck.lib.tools.toolbox import Toolbox, ToolContext, filter_factory
from holodeck.lib.ui.live import DownloadProgress
from holodeck.models.agent import Agent, ClaudeConfig
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import PROVIDERS
from holodeck.models.token_usage import TokenUsage

if TYPE_CHECKING:
    from semantic_kernel import Kernel
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.functions import KernelArguments

    from holodeck.lib.backends.chat_backend import ChatBackend
    from holodeck.lib.backends.frameworks.semantic_kernel.agents import ChatAgentSession
    from holodeck.lib.backends.semantic_kernel.invocation import KernelTurn
    from holodeck.lib.tools.toolbox import Embed, ToolFilterManager

DEFAULT_TIMEOUT_SECONDS = 60.0
DEFAULT_MAX_RETRIES = 3
DEFAULT_RETRY_DELAY_SECONDS = 2.0
DEFAULT_RETRY_EXPONENTIAL_BASE = 2.0
LONGEST_DELAY_SECONDS = 60.0
MAX_TOOL_ROUNDS = 20
NO_HISTORY = "the agent cannot be given earlier messages: its factory opens empty conversations"


@dataclass
class AgentExecutionResult:
    """The result of an invocation.

    Attributes:
        tool_calls: Calls in the order the model made them; each has a name and arguments.
        tool_results: What the tools returned; each has a name and a result.
        chat_history: The conversation so far.
        token_usage: Tokens of all requests of the invocation; None if the provider reports none.
        response: The agent's answer.
    """

    tool_calls: list[RequestedCall]
    tool_results: list[ToolResult]
    chat_history: "ChatHistory"
    token_usage: TokenUsage | None = None
    response: str = ""


class AgentThreadRun(AgentSession):
    """One conversation with an agent, with a history of its own.

    Args:
        agent: The Semantic Kernel agent.
        kernel: The kernel with the service and the tools.
        kernel_arguments: Request settings.
        timeout: Seconds an invocation may take, retries included; None for no limit.
        max_retries: How often a request is retried after a transient error.
        retry_delay: Longest delay before the first retry, in seconds.
        retry_exponential_base: The factor of each further delay.
        observability_enabled: Whether invocations create a span.
        tool_filter_manager: Selects the tools that the model is offered; all of them without it.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the documented signature
        self,
        agent: "ChatCompletionAgent",
        kernel: "Kernel",
        kernel_arguments: "KernelArguments",
        timeout: float | None = None,
        max_retries: int = DEFAULT_MAX_RETRIES,
        retry_delay: float = DEFAULT_RETRY_DELAY_SECONDS,
        retry_exponential_base: float = DEFAULT_RETRY_EXPONENTIAL_BASE,
        observability_enabled: bool = False,
        tool_filter_manager: "ToolFilterManager | None" = None,
    ) -> None:
        from holodeck.lib.backends.semantic_kernel.agent import with_retries

        self.agent = agent
        self.kernel = with_retries(kernel)
        self.kernel_arguments = kernel_arguments
        self.timeout = timeout
        self.max_retries = max_retries
        self.retry_delay = retry_delay
        self.retry_exponential_base = retry_exponential_base
        self.observability_enabled = observability_enabled
        self.tool_filter_manager = tool_filter_manager
        self.attempt_timeout: float | None = None
        self.max_tool_rounds = MAX_TOOL_ROUNDS
        self.chat_history = _new_history()
        self.offered_tools: list[str] | None = None

    async def invoke(self, user_input: str) -> AgentExecutionResult:
        """Return the agent's response to `user_input`, which is added to the history.

        Raises:
            AgentFactoryError: The agent did not respond, in time or at all, after all retries.
        """
        result = await self.send(user_input)
        return AgentExecutionResult(
            tool_calls=result.tool_calls or [],
            tool_results=result.tool_results,
            chat_history=self.chat_history,
            token_usage=result.token_usage,
            response=result.response,
        )

    async def send(self, message: str) -> ExecutionResult:
        """Do the same as `invoke`, for the backend protocol."""
        from holodeck.lib.backends.semantic_kernel.invocation import invoke, result_of

        traced = span(names.invoke_agent(self.agent.name), kind="client")
        with traced if self.observability_enabled else nullcontext():
            async with self._turn() as turn:
                session = await self._session(message)
                response = await invoke(session, self.kernel, message, turn)
        result = result_of(turn, response)
        result.attempts, result.tools = list(turn.attempts), self.offered_tools
        if turn.tool_rounds >= self.max_tool_rounds:
            result.is_error = True
            result.error_reason = f"stopped after {self.max_tool_rounds} rounds of tool calls"
        return result

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the agent's response in pieces; a stream that breaks is not retried."""
        from holodeck.lib.backends.semantic_kernel.invocation import invoke_streaming

        async with self._turn() as turn:
            session = await self._session(message)
            async for piece in invoke_streaming(session, message, turn):
                yield piece

    def remember(self, messages: Sequence[Message]) -> None:
        """Add the messages to the history."""
        for message in _new_history(messages).messages:
            self.chat_history.add_message(message)

    async def close(self) -> None:
        """Do nothing: the client belongs to the factory."""

    async def _session(self, message: str) -> "ChatAgentSession":
        """Return the conversation so far, for the next turn."""
        from holodeck.lib.backends.semantic_kernel.invocation import KernelSession

        arguments = self.kernel_arguments
        if self.tool_filter_manager is not None:
            from holodeck.lib.backends.semantic_kernel.agent import calls_in, offer_only

            used = calls_in(self.chat_history)
            self.offered_tools = await self.tool_filter_manager.filter_tools(message, used)
            arguments = offer_only(self.kernel, arguments, self.offered_tools, self.max_tool_rounds)
        return KernelSession(self.agent, self.chat_history, self.kernel, arguments)

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator["KernelTurn"]:
        """Yield a new turn, which ends within the time limit. Raises AgentFactoryError."""
        from holodeck.lib.backends.semantic_kernel.invocation import KernelTurn, result_of

        retry = RetryConfig(
            max_retries=self.max_retries,
            base_delay=self.retry_delay,
            max_delay=LONGEST_DELAY_SECONDS,
            exponential_base=self.retry_exponential_base,
        )
        turn = KernelTurn(retry=retry, attempt_timeout=self.attempt_timeout)
        seconds, limit = current_call_limit(self.timeout), None
        try:
            async with time_limit(seconds) as limit:
                yield turn
        except Exception as error:
            message = describe(error)
            if limit is not None and limit.expired():
                message = (
                    f"timeout after {seconds:g}s; raise --llm-timeout, or 'timeout' of the case"
                )
            raise AgentFactoryError(
                with_attempts(f"Agent invocation failed: {message}", len(turn.attempts)),
                turn.attempts,
                result_of(turn),
                refusal=refusal_in(error),
            ) from error


class AgentFactory:
    """Builds the agent of a configuration and opens isolated conversations with it.

    It implements the AgentBackend protocol.

    Args:
        agent_config: The agent; its relative paths start from its `base_dir`.
        max_retries: How often a request is retried after a transient error.
        retry_delay: Longest delay before the first retry, in seconds.
        retry_exponential_base: The factor of each further delay.
        force_ingest: Whether documents are read and embedded again although nothing changed.
        execution_config: Time limits; `max_retries` and `retry_delay` in it win over the arguments.

    Raises:
        AgentFactoryError: The kernel, the service or a tool could not be built.
        ConfigError: The configuration lacks what the agent needs.
    """

    def __init__(
        self,
        agent_config: Agent,
        max_retries: int = DEFAULT_MAX_RETRIES,
        retry_delay: float = DEFAULT_RETRY_DELAY_SECONDS,
        retry_exponential_base: float = DEFAULT_RETRY_EXPONENTIAL_BASE,
        force_ingest: bool = False,
        execution_config: ExecutionConfig | None = None,
    ) -> None:
        limits = execution_config or ExecutionConfig()
        self.agent_config = agent_config
        self.timeout = (
            limits.llm_timeout
            if "llm_timeout" in limits.model_fields_set
            else DEFAULT_TIMEOUT_SECONDS
        )
        self.attempt_timeout = limits.attempt_timeout
        self.max_retries = max_retries if limits.max_retries is None else limits.max_retries
        self.retry_delay = retry_delay if limits.retry_delay is None else limits.retry_delay
        self.retry_exponential_base = retry_exponential_base
        self.force_ingest = force_ingest
        self._execution = execution_config
        traced = agent_config.observability
        self._is_traced = traced is not None and traced.enabled
        try:
            self._build(limits)
        except HoloDeckError:
            raise
        except Exception as error:
            raise AgentFactoryError(f"Failed to initialize agent factory: {error}") from error

    def _build(self, limits: ExecutionConfig) -> None:
        from holodeck.lib.backends.semantic_kernel.agent import (
            build_agent,
            build_arguments,
            build_kernel,
            build_templated_agent,
        )
        from holodeck.lib.local_models.store import ModelStore

        agent = self.agent_config
        if agent.model is None:
            raise ConfigError("model", "is missing, and the built-in agent needs one")
        schema = load_response_schema(agent)
        self._wants_structure = schema is not None
        self._toolbox = _toolbox(agent, self._execution, force_ingest=self.force_ingest)
        self._are_tools_set = not self._toolbox.has_sources
        is_offline = limits.offline or offline()
        store = ModelStore(cache_dir(), offline=is_offline, hub_url=hub_url())
        find_weights = partial(store.resolve, base_dir=agent.own_dir, progress=DownloadProgress())
        claude = agent.claude or ClaudeConfig()
        self._max_tool_rounds = claude.max_turns or MAX_TOOL_ROUNDS
        self.kernel = build_kernel(
            agent.model,
            call_limits(limits),
            find_weights,
            build_limiters(limits),
            proxy_for,
            searches_web=claude.web_search,
        )
        self._filters = filter_factory(agent, _embedder(agent, self._execution))
        self._filter: ToolFilterManager | None = None
        self._set_tools(self._toolbox.tools or ())
        is_template = agent.instructions is not None and agent.instructions.template is not None
        build = build_templated_agent if is_template else build_agent
        instructions = load_instructions(agent)
        self.agent = build(self.kernel, agent.name, instructions, self._max_tool_rounds)
        self.kernel_arguments = build_arguments(self.kernel, agent.model, schema)

    @property
    def capabilities(self) -> Capabilities:
        """Its tools are known once initialized; models that run here take text only."""
        model = self.agent_config.model
        return Capabilities(
            accepts_images=model is not None and PROVIDERS[model.provider].protocol != "local",
            seal_problem=None,
            stub_problem=None,
            model_problem=model_problem(model),
            tools=self._toolbox.tools,
            preparation_costs=self._toolbox.preparation_costs,
        )

    async def _open_tools(self) -> None:
        """Open the tools that are not functions, unless they are open."""
        if self._are_tools_set:
            return
        self._set_tools(await self._toolbox.open())
        self._are_tools_set = True

    def _set_tools(self, tools: Sequence[Tool]) -> None:
        """Give the kernel its tools, and the manager that selects them, if any."""
        self.kernel.set_tools(tools)
        if self._filters is not None and self._toolbox.tools is not None:
            self._filter = self._filters(tools)

    async def create_thread_run(self) -> AgentThreadRun:
        """Return a new conversation with an empty history."""
        return await self.create_session()

    def _thread_run(
        self, context: Sequence[Message] = (), *, observability_enabled: bool = False
    ) -> AgentThreadRun:
        run = AgentThreadRun(
            agent=self.agent,
            kernel=self.kernel,
            kernel_arguments=self.kernel_arguments,
            timeout=self.timeout,
            max_retries=self.max_retries,
            retry_delay=self.retry_delay,
            retry_exponential_base=self.retry_exponential_base,
            observability_enabled=observability_enabled,
            tool_filter_manager=self._filter,
        )
        run.attempt_timeout = self.attempt_timeout
        run.max_tool_rounds = self._max_tool_rounds
        if context:
            run.remember(context)
        if self._toolbox.has_sources:
            run.offered_tools = [tool.name for tool in self._toolbox.tools or ()]
        return run

    async def initialize(self) -> None:
        """Open the tools and prepare the model: a local model is downloaded and loaded."""
        from holodeck.lib.backends.semantic_kernel.chat_service import TurnChat

        await self._open_tools()
        if self._filter is not None:
            await self._filter.prepare()
        await self.kernel.get_service(type=TurnChat).prepare()

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        """Return the response to a message in a conversation of its own."""
        await self._open_tools()
        result = await self._thread_run(context or ()).send(message)
        if self._wants_structure:
            result.structured_output = json_or_none(result.response)
        return result

    async def create_session(self, context: Sequence[Message] | None = None) -> AgentThreadRun:
        """Return a new conversation that continues the earlier messages."""
        await self._open_tools()
        return self._thread_run(context or (), observability_enabled=self._is_traced)

    async def teardown(self) -> None:
        """Do the same as `shutdown`."""
        await self.shutdown()

    async def shutdown(self) -> None:
        """Close the tools and the client of the running event loop; both can be used again."""
        from holodeck.lib.backends.semantic_kernel.chat_service import TurnChat

        self._are_tools_set = not self._toolbox.has_sources
        await self._toolbox.close()
        await self.kernel.get_service(type=TurnChat).close()


class ThreadRunFactory(Protocol):
    """What an `agent_factory` of the caller's own has to have."""

    async def create_thread_run(self) -> Any:
        """Return a new conversation, whose `invoke(text)` returns an AgentExecutionResult."""

    async def shutdown(self) -> None:
        """Release everything; may be called twice."""


class FactoryBackend(AgentBackend):
    """Reaches an agent through the conversations of a factory of the caller's own."""

    capabilities = Capabilities(history_problems=without_history(NO_HISTORY))

    def __init__(self, factory: ThreadRunFactory) -> None:
        self._factory = factory

    async def initialize(self) -> None:
        """Do nothing: the factory is built."""

    async def create_session(
        self,
        context: Sequence[Message] | None = None,  # noqa: ARG002 - see NO_HISTORY
    ) -> "_FactorySession":
        """Return a new conversation."""
        return _FactorySession(await self._factory.create_thread_run())

    async def teardown(self) -> None:
        """Shut the factory down."""
        await self._factory.shutdown()


class _FactorySession(AgentSession):
    """A conversation of a factory of the caller's own."""

    def __init__(self, thread_run: Any) -> None:
        self._thread_run = thread_run

    async def send(self, message: str) -> ExecutionResult:
        """Return the agent's response; what its result does not have is unknown."""
        result = await self._thread_run.invoke(message)
        return ExecutionResult(
            response=result.response,
            tool_calls=getattr(result, "tool_calls", None),
            tool_results=getattr(result, "tool_results", None) or [],
            token_usage=getattr(result, "token_usage", None),
        )

    async def close(self) -> None:
        """Do nothing: the conversation belongs to the factory."""


def backend_of(factory: AgentFactory | ThreadRunFactory) -> AgentBackend:
    """Return the backend of a factory: itself, unless it opens conversations of its own."""
    own = getattr(factory.create_thread_run, "__func__", None)
    if isinstance(factory, AgentFactory) and own is AgentFactory.create_thread_run:
        return factory
    return FactoryBackend(factory)


def _new_history(messages: Sequence[Message] = ()) -> "ChatHistory":
    # Imported here because `backend: chat` does without Semantic Kernel.
    from holodeck.lib.backends.frameworks.semantic_kernel.messages import new_history  # noqa: PLC0415

    return new_history(messages)


def _toolbox(agent: Agent, execution: ExecutionConfig | None, *, force_ingest: bool) -> Toolbox:
    context = ToolContext(
        agent,
        execution,
        force_ingest,
        proxy_for,
        cache_dir(),
        read_prompt=lambda tool: read_tool_prompt(agent, tool).text,
        environment=process_variables(),
        read_variables=partial(Environment.beside, agent.own_dir),
    )
    return Toolbox(context)


def chat_backend(
    agent: Agent, execution: ExecutionConfig | None = None, *, force_ingest: bool = False
) -> "ChatBackend":
    """Return `backend: chat` with the agent's model, instructions, tools and response format."""
    # Imported here because agents on Semantic Kernel do without the chat client.
    from holodeck.lib.backends.chat_backend import ChatBackend  # noqa: PLC0415

    if agent.model is None:
        raise ConfigError("model", "is missing, and 'backend: chat' needs one")
    return ChatBackend(
        agent.model,
        load_instructions(agent),
        _toolbox(agent, execution, force_ingest=force_ingest),
        load_response_schema(agent),
        execution,
        proxy_for,
        filter_factory(agent, _embedder(agent, execution)),
    )


def _embedder(agent: Agent, execution: ExecutionConfig | None) -> "Embed":
    """Return what computes the embeddings that tools are filtered with."""

    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        # Imported here because few agents filter their tools by meaning.
        from holodeck.lib.knowledge.embeddings import build_filter_embedder  # noqa: PLC0415
        from holodeck.lib.llm.client import RequestStats  # noqa: PLC0415 - with the above

        embedder = build_filter_embedder(agent, execution, proxy_for)
        try:
            return await embedder.embed(texts, RequestStats())
        finally:
            await embedder.close()

    return embed
