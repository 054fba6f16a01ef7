"""Reads the messages of the Claude Agent SDK into the record of a turn."""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holodeck.lib.backends.frameworks.base import FrameworkError, TurnRecord

if TYPE_CHECKING:
    from holodeck.lib.backends.base import Message

logger = logging.getLogger(__name__)

MAIN = "main"
"""The agent that the user talks to; subagents have the names that the user gave them."""
SUBAGENT_TOOLS = ("Agent", "Task")
"""The tools by which an agent starts another one."""
OUTPUT_TOOL = "StructuredOutput"
"""The tool through which the model gives a structured answer."""
NO_AGENT = "local_bash"
"""The type of the tasks that are commands, not agents."""
REFUSALS = (
    "<tool_use_error>Error: No such tool available",
    "<tool_use_error>InputValidationError",
    "Input validation error:",  # what servers of MCP say
)
"""How the result of a call begins that reaches no tool."""
UNUSABLE = ("failed", "needs-auth")
"""States of an MCP server whose tools the agent does not have."""

Tokens = tuple[int, int]
"""Prompt and completion tokens."""


class ClaudeTurnReader:
    """Fills in the record of a turn while messages come in.

    Args:
        turn: The record.
        earlier: The tokens that the process had used before the turn; None if unknown.
        reported: The MCP servers without tools that were reported already; new ones are added.
    """

    def __init__(self, turn: TurnRecord, earlier: Tokens | None, reported: set[str]) -> None:
        self.result: Any = None
        """The latest `ResultMessage`; further ones come if a subagent works in the background."""
        self.last_id: str | None = None
        """The id of the latest message of the main conversation."""
        self.turn = turn
        self._earlier = earlier
        self._reported = reported
        self._results = 0
        self._state: str | None = None
        """What the process does; None if it does not tell."""
        self._names: dict[str, str] = {}
        """Of the subagents, by the call that started each."""
        self._seen: Counter[str] = Counter()
        """How many tool calls of each subagent were seen."""
        self._used: dict[str, int | None] = {}
        """How many tool calls each subagent made; None if unknown."""
        self._has_unknown_usage = False

    @property
    def is_over(self) -> bool:
        """Whether the agent, and all that it started, has ended."""
        return self.result is not None and self._state in {None, "idle"}

    def read(self, message: Any) -> str:
        """Note what a message says, and return the text that it adds to the answer."""
        import claude_agent_sdk as sdk

        if isinstance(message, sdk.StreamEvent):
            delta = message.event.get("delta") or {}
            is_text = not message.parent_tool_use_id and delta.get("type") == "text_delta"
            return str(delta["text"]) if is_text else ""
        if isinstance(message, sdk.AssistantMessage):
            self._read_response(message)
        elif isinstance(message, sdk.UserMessage):
            self._read_results(message)
        elif isinstance(message, sdk.ResultMessage):
            self.result = message
            self._results += 1
        elif isinstance(message, sdk.TaskStartedMessage):
            self._note_task(message)
        elif isinstance(message, sdk.TaskNotificationMessage):
            call_id = message.tool_use_id or message.task_id
            if call_id in self._used:
                self._used[call_id] = (message.usage or {}).get("tool_uses")
        elif isinstance(message, sdk.SystemMessage):
            self._read_system(message)
        return ""

    def finish(self) -> Tokens | None:
        """Note what is known at the end of a turn, however it ended.

        Returns the tokens that the process has used so far; None if unknown.
        """
        for call in self.turn.tool_calls or ():
            if call["name"] in SUBAGENT_TOOLS and self._has_started(call["call_id"]):
                self._used.setdefault(call["call_id"], None)
        for call_id in self._seen:  # of a subagent that nobody announced
            self._used.setdefault(call_id, None)
        for call_id, used in self._used.items():
            if used is None or self._seen[call_id] < used:
                self.turn.add_agent_tool(self._agent(call_id))
        if self.result is None:
            return None
        now = _tokens_of_models(self.result.model_usage)
        models = [*(self.result.model_usage or ())]  # of the whole process
        model = models[0] if len(models) == 1 else None
        self.turn.add_usage(*(self._usage(now) or (None, None)), model=model)
        return now

    def check(self) -> None:
        """Raise FrameworkError if the turn has ended without an answer."""
        result = self.result
        if result.is_error:
            errors = "; ".join(result.errors or ())
            raise FrameworkError(
                f"Claude Code ended the turn: {result.result or errors or result.subtype}"
                + (" (max_turns of the options)" if result.subtype == "error_max_turns" else "")
            )
        waiting = result.deferred_tool_use
        if waiting is not None:
            raise FrameworkError(
                f"the agent waits for the result of {waiting.name}, which a hook deferred, and a"
                " test has nobody who gives it; let the hook allow or deny the call in tests"
            )

    def _read_response(self, message: Any) -> None:
        """Note what an agent said and which tools it called."""
        import claude_agent_sdk as sdk

        if message.model == "<synthetic>":  # Claude Code's own text, such as that of an error
            return
        parent = message.parent_tool_use_id
        self.turn.add_agent(self._agent(parent))
        if parent is None:
            self.last_id = message.uuid or self.last_id
        if not _tokens_of(message.usage or {})[0]:
            self._has_unknown_usage = True
        for block in message.content:
            if not isinstance(block, sdk.ToolUseBlock | sdk.ServerToolUseBlock):
                continue
            if parent is not None:
                self._seen[parent] += 1
            if block.name in SUBAGENT_TOOLS:
                self._names[block.id] = block.input.get("subagent_type") or "general-purpose"
            if block.name != OUTPUT_TOOL:
                self.turn.add_call(block.name, block.input, block.id, self._agent(parent))

    def _read_results(self, message: Any) -> None:
        """Note what tools returned."""
        import claude_agent_sdk as sdk

        if message.parent_tool_use_id is None:
            self.last_id = message.uuid or self.last_id
        for block in message.content if isinstance(message.content, list) else ():
            if isinstance(block, sdk.ToolResultBlock):
                failed = bool(block.is_error)
                content = _content(block.content)
                refused = failed and str(content).startswith(REFUSALS)
                self.turn.add_result(
                    block.tool_use_id, content, is_error=failed, is_refused=refused
                )

    def _read_system(self, message: Any) -> None:
        if message.subtype == "session_state_changed":
            self._state = message.data.get("state")
        if message.subtype == "init":
            for server in message.data.get("mcp_servers", ()):
                name, status = server["name"], server["status"]
                if status in UNUSABLE and name not in self._reported:
                    self._reported.add(name)
                    logger.warning("the agent has no tools of its MCP server %r: %s", name, status)

    def _note_task(self, message: Any) -> None:
        """Note that a subagent works, or something else that may call tools."""
        if message.task_type == NO_AGENT:
            return
        call_id = message.tool_use_id or message.task_id
        name = message.data.get("subagent_type") or message.task_type or "a task"
        self._names.setdefault(call_id, name)
        self._used[call_id] = None

    def _has_started(self, call_id: str) -> bool:
        """Whether a call of a tool was not refused."""
        results = self.turn.tool_results
        return not any(
            result["call_id"] == call_id and result.get("is_error") for result in results
        )

    def _agent(self, parent: str | None) -> str:
        return MAIN if parent is None else self._names.get(parent, "a subagent")

    def _usage(self, now: Tokens | None) -> Tokens | None:
        """Return the tokens of all requests of the turn; None if those of one are unknown."""
        if self._has_unknown_usage:
            return None
        if now is not None and self._earlier is not None:
            return now[0] - self._earlier[0], now[1] - self._earlier[1]
        if self._used or self._results > 1:
            return None  # a result counts only the requests of the main agent since the last one
        used = _tokens_of(self.result.usage or {})
        return used if used[0] else None


def _tokens_of(usage: Mapping[str, Any]) -> Tokens:
    """Return the tokens of a usage as Anthropic's API reports it; those of caches count, too."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(usage.get(name) or 0 for name in names), usage.get("output_tokens") or 0


def _tokens_of_models(usage: Mapping[str, Mapping[str, Any]] | None) -> Tokens | None:
    """Return the tokens that all models of the process have used; None if unknown."""
    if usage is None:
        return None
    names = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
    prompt = sum(model.get(name) or 0 for model in usage.values() for name in names)
    return prompt, sum(model.get("outputTokens") or 0 for model in usage.values())


def _content(content: Any) -> Any:
    """Return what a tool returned; as text, if it is nothing else."""
    if isinstance(content, list) and all(block.get("type") == "text" for block in content):
        return "".join(block["text"] for block in content)
    return content


def to_messages(messages: Sequence["Message"]) -> list[dict[str, Any]]:
    """Return messages in the format of chat completions as those of Anthropic's API."""
    converted: list[dict[str, Any]] = []
    for message in messages:
        text, role = message["content"], message["role"]
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        if role == "system":
            raise FrameworkError(
                "the history of a Claude agent has no system messages; write it as 'system_prompt'"
            )
        if role == "tool":
            answered = message.get("tool_call_id", "")
            blocks = [{"type": "tool_result", "tool_use_id": answered, "content": text}]
        for call in message.get("tool_calls", ()):
            function = call["function"]
            arguments = json.loads(function["arguments"] or "{}")
            tool_use = {"type": "tool_use", "id": call["id"], "name": function["name"]}
            blocks.append({**tool_use, "input": arguments})
        if blocks:
            author = "assistant" if role == "assistant" else "user"
            converted.append({"role": author, "content": blocks})
    return converted
