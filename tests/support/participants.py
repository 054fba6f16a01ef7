"""Participants with scripted replies, which record their inputs."""

from dataclasses import dataclass, field
from typing import Any

from holodeck import scenario
from holodeck.scenario import AgentInput, AgentRole


class Scripted(scenario.AgentAdapter):
    """Replies with its lines in order, then always with the last one."""

    def __init__(self, role: AgentRole, *lines: Any, name: str = "") -> None:
        self.role = role
        self.lines = list(lines) or [(name or role.value.lower()) + " says"]
        self.inputs: list[AgentInput] = []

    @property
    def calls(self) -> int:
        return len(self.inputs)

    async def call(self, input: AgentInput) -> Any:  # noqa: A002 - as documented
        self.inputs.append(input)
        line = self.lines[min(self.calls, len(self.lines)) - 1]
        if isinstance(line, BaseException):
            raise line
        return line(input) if callable(line) else line


def a_user(*lines: Any) -> Scripted:
    return Scripted(AgentRole.USER, *lines)


def an_agent(*lines: Any) -> Scripted:
    return Scripted(AgentRole.AGENT, *lines)


def a_judge(*lines: Any) -> Scripted:
    return Scripted(AgentRole.JUDGE, *(lines or ([],)))


@dataclass
class Log:
    """What happened, in order."""

    entries: list[str] = field(default_factory=list)

    def note(self, word: str) -> Any:
        return lambda state: self.entries.append(f"{word} {state.current_turn}")


def texts_of(messages: list[dict[str, Any]]) -> list[str]:
    return [one["content"] for one in messages]
