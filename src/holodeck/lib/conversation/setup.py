"""What a conversation is held with: settings, parties and names of its own."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from holodeck.lib.conversation.roles import AgentRole

CLASSES = {
    AgentRole.USER: "a scenario.UserSimulatorAgent()",
    AgentRole.AGENT: "your agent",
    AgentRole.JUDGE: "a scenario.JudgeAgent(criteria=[…])",
}
_LIMITS = ("max_turns", "min_turns", "timeout", "call_timeout")


class Settings(Protocol):
    """How a conversation is held; None leaves a value to the engine."""

    @property
    def max_turns(self) -> int | None: ...
    @property
    def min_turns(self) -> int | None: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def call_timeout(self) -> float | None: ...


@runtime_checkable
class HasCriteria(Protocol):
    """A judge that can be asked for a verdict when the turns are used up."""

    criteria: Sequence[str] | None


def is_list_of_criteria(value: Any) -> bool:
    """Whether it is a list of texts, at least one and none of them empty; a text alone is not."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return all(isinstance(one, str) and one.strip() for one in value)


def find_setting_error(config: Settings, max_turns: int) -> str | None:
    """What is wrong with the settings; None if all is well."""
    for key in _LIMITS:
        value = getattr(config, key)
        if value is not None and value <= 0:
            return f"{key}={value} is too little; write a number above 0"
    if config.min_turns is not None and config.min_turns > max_turns:
        return f"min_turns={config.min_turns} is more than max_turns={max_turns}"
    return None


def find_participant_error(participants: Sequence[Any]) -> str | None:
    """What is wrong with those who take part; None if all is well."""
    for index, participant in enumerate(participants):
        if isinstance(participant, type):
            return f"agents[{index}] is the class itself; write {participant.__name__}()"
        if not isinstance(getattr(participant, "role", None), AgentRole):
            name = type(participant).__name__
            return f"agents[{index}] ({name}) has no role; derive it from scenario.AgentAdapter"
    return None


def find_agent_missing_error(participants: Sequence[Any], turns: Any) -> str | None:
    """Why turns cannot be played on their own; None if they can. Somebody has to be tested."""
    if turns is not None and (not isinstance(turns, int) or turns <= 0):
        return f"proceed(turns={turns!r}): there is no such turn; write 1 or more"
    if participants and not any(
        participant.role is AgentRole.AGENT for participant in participants
    ):
        return "nobody plays the role `Agent`, so nothing is tested; add your agent to 'agents'"
    return None
