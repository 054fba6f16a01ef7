"""Agents and apps of Google ADK, which an `InMemoryRunner` runs."""

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence, Set
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holodeck.lib.backends.frameworks.base import (
    FrameworkAdapter,
    FrameworkError,
    StreamingSession,
    TurnRecord,
    exhaust,
)
from holodeck.lib.support.stubs import complete_call, has_stubs, missing_argument, take_call

if TYPE_CHECKING:
    from holodeck.lib.backends.base import Message

TRANSFER = "transfer_to_agent"
"""The tool by which an agent hands over to another; the framework adds it in a run."""
REQUEST = "adk_request_"
"""Begins the names of the calls by which the framework asks a person."""
APPROVAL = "adk_request_confirmation"
"""The name of such a call that asks to approve the call of a tool."""
REFUSAL = re.compile(
    r"Invoking `.*\(\)` failed (as no tool with that name|as the following mandatory input"
    r"|due to argument validation)"
)
"""How the framework begins the error of a call that reaches no function."""
NAME = "holodeck"
"""Of the app and the user of a conversation, and of a plugin; each has an app of its own."""


def adapt(value: object) -> FrameworkAdapter | None:
    """Return the adapter of an agent or an app; None for any other object, also of Google's."""
    if not any(base.__module__.startswith("google.adk.") for base in type(value).__mro__):
        return None
    from google.adk.agents import BaseAgent
    from google.adk.apps import App

    if isinstance(value, App) and isinstance(value.root_agent, BaseAgent):
        return AdkAdapter(value.root_agent, {"app": value})
    if isinstance(value, BaseAgent):
        return AdkAdapter(value, {"agent": value, "app_name": NAME})
    return None


class AdkAdapter(FrameworkAdapter):
    """An agent; each conversation has sessions, state and memory of its own."""

    objects = ("LlmAgent", "SequentialAgent", "ParallelAgent", "LoopAgent", "App")
    takes_stubs = True
    answers_approvals = True

    def __init__(self, agent: Any, options: Mapping[str, Any]) -> None:
        """`options`: what the runner runs."""
        super().__init__(agent, options)
        self._runner: Any = None
        """The latest runner; closing it closes the toolsets, which all conversations share."""

    async def open(self, context: Sequence["Message"]) -> "AdkConversation":
        from google.adk.runners import InMemoryRunner

        self._runner = InMemoryRunner(**self._options)
        agent_tools = {tool.name for tool in self._tools() if _is_agent_tool(tool)}
        return AdkConversation(self._agent, self._runner, agent_tools, context)

    def tools(self) -> list[str] | None:
        names: dict[str, None] = {}
        for tool in self._tools():
            name = getattr(tool, "name", None) or getattr(tool, "__name__", None)
            if name is None:  # a toolset lists its tools in a run
                return None
            names[name] = None
        can_transfer = any(hasattr(agent, "tools") and agent.sub_agents for agent in self._agents())
        return [*names, *([TRANSFER] if can_transfer else ())]

    def _tools(self) -> Iterator[Any]:
        """Yield the tools of the agent and of its sub-agents."""
        for agent in self._agents():
            yield from getattr(agent, "tools", ())

    def _agents(self) -> Iterator[Any]:
        agents = [self._agent]
        while agents:
            agent = agents.pop()
            agents += agent.sub_agents
            yield agent

    async def close(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.close()


def _is_agent_tool(tool: Any) -> bool:
    return any(base.__name__ == "AgentTool" for base in type(tool).__mro__)


class AdkConversation(StreamingSession):
    """A session of a runner."""

    traced_as = "Google ADK"

    def __init__(
        self, agent: Any, runner: Any, agent_tools: Set[str], context: Sequence["Message"]
    ) -> None:
        super().__init__(agent, {}, context)
        self._agent_tools = agent_tools
        """Names of the tools that are agents."""
        self._runner = runner
        self._session: Any = None
        """The session as it was after the last turn that succeeded."""
        self._requests: list[Any] = []
        """The framework's own calls that ask for the pending approvals."""

    def _convert(self, messages: Sequence["Message"]) -> list[Any]:
        return to_events(messages, self._agent.name)

    def _answer(self, message: str, *, streams: bool) -> AsyncGenerator[str, None]:
        from google.genai import types

        self.turn = TurnRecord()
        return self._run([types.Part(text=message)], streams=streams)

    async def _resume(self, decisions: Sequence[bool]) -> None:
        from google.genai import types

        answers = [
            types.FunctionResponse(
                id=request.id, name=request.name, response={"confirmed": is_approved}
            )
            for request, is_approved in zip(self._requests, decisions, strict=True)
        ]
        parts = [types.Part(function_response=answer) for answer in answers]
        await exhaust(self._run(parts, streams=False))

    async def _run(self, parts: Sequence[Any], *, streams: bool) -> AsyncGenerator[str, None]:
        """Run the agent in a copy of the session, with a message of the user."""
        from google.adk.agents.run_config import RunConfig, StreamingMode
        from google.genai import types

        self._requests = []
        plugins = self._runner.plugin_manager
        if has_stubs() and plugins.get_plugin(NAME) is None:
            plugins.register_plugin(stubs_plugin())
        session = await self._copy_session()
        running = self._runner.run_async(
            user_id=session.user_id,
            session_id=session.id,
            new_message=types.Content(role="user", parts=[*parts]),
            run_config=RunConfig(
                streaming_mode=StreamingMode.SSE if streams else StreamingMode.NONE
            ),
        )
        event: Any = None
        async with aclosing(running) as events:
            async for event in events:
                if event.partial:
                    yield text_of(event)
                else:
                    self._read(event)
        if event is not None and event.error_code and not event.content:  # not an exception
            raise FrameworkError(f"{event.error_code}: {event.error_message or 'no message'}")
        self._session = await self._runner.session_service.get_session(
            app_name=session.app_name, user_id=session.user_id, session_id=session.id
        )
        self._earlier = []

    async def _copy_session(self) -> Any:
        """Return a session with the events so far, so that a failing turn leaves no trace."""
        service, old = self._runner.session_service, self._session
        session = await service.create_session(
            app_name=self._runner.app_name, user_id=NAME, state=old.state if old else None
        )
        for event in [*(old.events if old else ()), *self._earlier]:
            await service.append_event(session, event)
        return session

    def _read(self, event: Any) -> None:
        """Note what an event says."""
        for call in event.get_function_calls():
            if call.name == APPROVAL:
                asked = call.args["originalFunctionCall"]
                self.turn.add_approval(asked["name"], asked.get("args"), asked["id"])
                self._requests.append(call)
                continue
            if call.name.startswith(REQUEST):
                raise FrameworkError(
                    f"the agent waits for input of a person ({call.name}), and a test has none;"
                    " answer it in the agent's code"
                )
            self.turn.add_call(call.name, call.args, call.id, event.author)
            if call.name in self._agent_tools:
                self.turn.add_agent_tool(call.name)
                self.turn.add_usage(None, None, requests=0)
        waiting = event.actions.requested_tool_confirmations
        for response in event.get_function_responses():
            if response.id in waiting:
                continue
            result, is_error = result_of(response.response)
            refused = is_error and REFUSAL.match(str(result)) is not None
            self.turn.add_result(response.id, result, is_error=is_error, is_refused=refused)
            if response.name == TRANSFER and event.actions.transfer_to_agent:
                self.turn.add_transfer(response.id, event.actions.transfer_to_agent)
        if event.content is None or event.content.role != "model" or _only_asks(event):
            return
        self.turn.add_agent(event.author)
        usage = event.usage_metadata
        prompt = usage.prompt_token_count if usage else None
        completion = usage.candidates_token_count if usage else None
        thoughts = (usage.thoughts_token_count if usage else None) or 0
        completion = None if completion is None else completion + thoughts
        self.turn.add_usage(prompt, completion, model=event.model_version)
        if event.is_final_response() and (text := text_of(event)):
            self.turn.response = text


def _only_asks(event: Any) -> bool:
    """Whether the framework made the event itself, to ask a person."""
    calls = event.get_function_calls()
    return bool(calls) and all(call.name.startswith(REQUEST) for call in calls)


def stubs_plugin() -> Any:
    """Return a plugin that lets stubs take the calls of tools."""
    from google.adk.plugins.base_plugin import BasePlugin

    class Stubs(BasePlugin):  # type: ignore[misc]
        async def before_tool_callback(
            self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any
        ) -> dict[str, Any] | None:
            """Return a response, with which the framework does not run the tool."""
            is_own = tool.name == TRANSFER or tool.name.startswith(REQUEST)
            refusal = missing_argument(_schema_of(tool), tool_args)
            taken = None if is_own else take_call(tool.name, tool_args, refusal)
            if taken is None:
                return None
            run = partial(tool.run_async, args=tool_args, tool_context=tool_context)
            value = await complete_call(taken, run, lambda response: result_of(response)[0])
            return value if isinstance(value, dict) else {"result": value}

    return Stubs(NAME)


def _schema_of(tool: Any) -> Mapping[str, Any]:
    """Return the JSON schema of the arguments, as far as the tool tells the model."""
    declaration = tool._get_declaration()  # noqa: SLF001 - which each class of tools overrides
    schema = getattr(declaration, "parameters_json_schema", None)
    if schema is None and declaration is not None and declaration.parameters is not None:
        schema = declaration.parameters.model_dump()
    return schema or {}


def text_of(event: Any) -> str:
    """Return the text of an event, without thoughts."""
    parts = (event.content.parts if event.content else None) or ()
    return "".join(part.text for part in parts if part.text and not part.thought)


def result_of(response: Any) -> tuple[Any, bool]:
    """Return the result of a tool, and whether it is an error.

    The framework wraps a result that is no mapping as `result`, and reports an error as `error`.
    """
    if isinstance(response, dict) and len(response) == 1:
        [(key, value)] = response.items()
        if key in {"result", "error"}:
            return value, key == "error"
    return response, False


def to_events(messages: Sequence["Message"], agent: str) -> list[Any]:
    """Return messages in the format of chat completions as events of a session."""
    from google.adk.events import Event
    from google.genai import types

    names: dict[str, str] = {}
    events = []
    for message in messages:
        text, role = message["content"], message["role"]
        parts = [types.Part(text=text)] if text and role != "tool" else []
        if role == "system":
            raise FrameworkError(
                "the history of an ADK agent has no system messages; write it as 'instruction'"
            )
        if role == "tool":
            call_id = message.get("tool_call_id", "")
            name = names.get(call_id, message.get("name", ""))
            response = types.FunctionResponse(id=call_id, name=name, response={"result": text})
            parts.append(types.Part(function_response=response))
        for call in message.get("tool_calls", ()):
            function = call["function"]
            names[call["id"]] = function["name"]
            arguments = json.loads(function["arguments"] or "{}")
            part = types.FunctionCall(id=call["id"], name=function["name"], args=arguments)
            parts.append(types.Part(function_call=part))
        content = types.Content(role="model" if role == "assistant" else "user", parts=parts)
        author = "user" if role == "user" else agent
        events.append(Event(invocation_id=str(uuid4()), author=author, content=content))
    return events
