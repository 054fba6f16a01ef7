"""The parts of a test case that define a conversation: user, script and criteria."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator

from holodeck.models.base import Model, NonBlank, Ratio
from holodeck.models.cases.expectations import Expectations
from holodeck.models.llm import LLMProvider

SAYS_FAILED = (
    "After the tool {!r} has failed, the agent says that it did not work, and states nothing that"
    " only a result of the tool could tell."
)
"""The text of a ready criterion."""


class RedTeam(Model):
    """An attack on the agent: the simulated user tries to bring it to what it should refuse."""

    target: NonBlank
    """What the agent should refuse, such as `tell an internal discount code`."""
    strategy: Literal["crescendo", "goat"] = "crescendo"
    """`crescendo` begins harmlessly and asks for more in four phases, by a plan; `goat` chooses
    among techniques turn by turn."""
    plan: NonBlank | None = None
    """The plan of `crescendo`; by default the model writes one."""
    encode: Ratio = 0.0
    """How likely a message is encoded, for example as Base64."""

    @model_validator(mode="after")
    def _has_a_use_for_its_plan(self) -> "RedTeam":
        if self.plan is not None and self.strategy == "goat":
            raise ValueError("'plan': 'goat' follows none; remove it, or write 'crescendo'")
        return self


class Simulation(Model):
    """A model that plays the user."""

    situation: NonBlank | None = None
    """The user's situation and goal; by default the `situation` of the case."""
    persona: NonBlank | None = None
    """Character and writing style of the user."""
    facts: list[NonBlank] = []
    """The only facts that the user may state about themselves; if empty, there is no limit."""
    opening: NonBlank | None = None
    """The user's first message."""
    agent_first: bool = False
    """Whether the agent speaks first; it is told that the conversation begins."""
    language: NonBlank | None = None
    """The user's language."""
    model: LLMProvider | None = None
    """The model that plays the user; by default the one of `evaluations`, else the agent's."""
    red_team: RedTeam | None = None
    """Makes the user attack the agent; `situation` then describes the agent. Needs `criteria`."""

    @model_validator(mode="after")
    def _attacks_or_has_a_persona(self) -> "Simulation":
        persona = ("persona", "facts", "opening", "agent_first", "language")
        unused = [key for key in persona if key in self.model_fields_set]
        if self.red_team is not None and unused:
            raise ValueError(
                f"{unused[0]!r}: the strategy of 'red_team' says how the user is; remove it"
            )
        return self


class CriterionSettings(Model):
    """A requirement for the whole conversation, which a judge checks."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["says_failed"]}]}
    )

    text: NonBlank = ""
    """The requirement; either this or `says_failed`."""
    says_failed: NonBlank | None = None
    """Name of a tool: the agent says that the tool failed, and does not invent a result of it."""
    required: bool = True
    """Whether the case fails if the criterion does not hold; false only reports it."""

    @classmethod
    def _prepare(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Fill in the text of a ready criterion."""
        if "says_failed" not in data:
            return data
        return {"text": SAYS_FAILED.format(data["says_failed"]), **data}

    @model_validator(mode="after")
    def _has_one_text(self) -> "CriterionSettings":
        is_ready = self.says_failed is not None
        if not self.text or (is_ready and self.text != SAYS_FAILED.format(self.says_failed)):
            raise ValueError("write exactly one of 'text' and 'says_failed'")
        return self


BareStep = Literal["user", "agent", "judge", "proceed", "succeed", "fail"]
"""A step that is only a word."""


class ScriptMessage(Model):
    """A message that is added to the conversation."""

    role: Literal["user", "assistant", "system"]
    """Role of the sender."""
    content: NonBlank
    """Text of the message."""


class Proceed(Model):
    """Turns of the simulated user and the agent; the judge is asked after each."""

    turns: Annotated[int, Field(ge=1)] | None = None
    """Number of turns, including the current one; by default until the judge, the user or
    `max_turns` ends the conversation."""


class StepModel(Model):
    """One step of a script: a mapping with exactly one key."""

    parts_in: ClassVar[tuple[str, ...]] = ("check",)

    user: NonBlank | None = None
    """The user's message; `user` alone lets the simulated user write it."""
    agent: NonBlank | None = None
    """A message in place of the agent's response; `agent` alone calls the agent."""
    message: ScriptMessage | None = None
    """A message of any role; a message of the user or the agent takes their turn."""
    judge: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """A checkpoint: the script continues if all of these criteria hold. `judge` alone is the final
    verdict on `criteria`."""
    proceed: Proceed | None = None
    """Lets the simulated user and the agent continue by themselves."""
    call: Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")] | None = None
    """`module:callable` beside `agent.yaml`, called with the state; a failed assertion fails the
    case."""
    check: Expectations | None = None
    """Checks of the last response; the script ends if one fails."""
    succeed: NonBlank | None = None
    """Ends the script successfully, for this reason."""
    fail: NonBlank | None = None
    """Ends the script and fails the case, for this reason."""

    @model_validator(mode="after")
    def _is_one_step(self) -> "StepModel":
        keys = sorted(self.model_fields_set)
        if len(keys) != 1:
            raise ValueError(f"a step has one key, this one has {', '.join(keys) or 'none'}")
        if getattr(self, keys[0]) is None:
            raise ValueError(f"{keys[0]!r} has no value; write one after the colon")
        return self


def step_kind(step: str | StepModel) -> str:
    """Return the kind of the step, which is its key."""
    return step if isinstance(step, str) else next(iter(step.model_fields_set))


def step_value(step: str | StepModel) -> Any:
    """Return the value of the step; None for a bare word."""
    return None if isinstance(step, str) else getattr(step, step_kind(step))


def user_text(step: str | StepModel) -> str | None:
    """Return the user's message in the step; None if the script does not contain it."""
    value = step_value(step)
    if isinstance(value, ScriptMessage):
        return value.content if value.role == "user" else None
    return value if step_kind(step) == "user" else None


def speaks_for_agent(kind: str, value: Any) -> bool:
    """Whether the step adds a message for the agent, which the agent must then know about."""
    is_message = kind == "message" and value.role != "user"
    return is_message or (kind == "agent" and value is not None)


def find_script_error(
    steps: Sequence[BareStep | StepModel],
    *,
    has_user: bool,
    has_criteria: bool,
    max_turns: int,
    has_history: bool,
) -> tuple[int, str] | None:
    """Return the index of the first invalid step, and the reason; None if all are valid."""
    checker = _ScriptChecker(has_user, has_criteria, max_turns)
    checker.last = "stand-in" if has_history else None  # whose last message is a response
    for index, step in enumerate(steps):
        wrong = checker.check_step(step_kind(step), step_value(step))
        if wrong is not None:
            return index, wrong
    if not checker.calls_agent:
        return len(steps) - 1, "the script never calls the agent; write the step 'agent'"
    return None


def find_unanswered_step(steps: Sequence[BareStep | StepModel]) -> int | None:
    """Return the index of a user message that the agent never answers; None if there is none."""
    last = None
    for index, step in enumerate(steps):
        if user_text(step) is not None:
            last = index
        elif step_kind(step) in {"user", "agent", "proceed", "call"}:
            last = None
    return last


Speaker = Literal["user", "agent", "stand-in"]
"""Who speaks; `stand-in` if the script speaks for the agent."""


@dataclass
class _ScriptChecker:
    """Checks the steps of a script in their order."""

    has_user: bool
    has_criteria: bool
    max_turns: int
    calls_agent: bool = False
    """Whether a step so far calls the agent."""
    ended_by: str | None = None
    last: Speaker | None = None
    """The last speaker; None if unknown."""

    def check_step(self, kind: str, value: Any) -> str | None:
        if self.ended_by is not None:
            return f"is never reached: {self.ended_by!r} ends the script"
        wrong = self._find_error(kind, value)
        is_word = value is None
        is_last = kind in {"succeed", "fail"} or (kind == "judge" and is_word)
        self.ended_by = kind if is_last else None
        self.calls_agent = self.calls_agent or kind == "proceed" or (kind == "agent" and is_word)
        self.last = _last_speaker(kind, value, self.last)
        return wrong

    def _find_error(self, kind: str, value: Any) -> str | None:
        if kind in {"user", "proceed"} and not self.has_user and not isinstance(value, str):
            return f"{kind!r} needs a simulated user; write 'simulate', or the user's message"
        if (kind, value) == ("judge", None) and not self.has_criteria:
            return "'judge' has no criteria; write 'criteria', or 'judge: [criterion, …]'"
        if kind == "check":
            return self._find_error_in_check(value)
        if (kind, value) == ("agent", None) and self.last in {"agent", "stand-in"}:
            return "'agent' has no new message of the user; write a 'user' step above it"
        if kind == "proceed" and value is not None and (value.turns or 0) > self.max_turns:
            return f"'proceed': 'turns' is {value.turns}, but 'max_turns' is {self.max_turns}"
        return None

    def _find_error_in_check(self, check: Expectations) -> str | None:
        if not self.calls_agent:
            return "'check' has no response to check; write 'agent' above it"
        if self.last == "user":
            return "'check' would check an earlier response; write 'agent' above it"
        if self.last == "stand-in":
            return "'check' needs a response of the agent, not 'agent: text'; move it up"
        if not check.has_checks:
            return "'check' is empty; write 'evaluations', 'expected_tools' or others"
        return None


def _last_speaker(kind: str, value: Any, last: Speaker | None) -> Speaker | None:
    """Return the last speaker after a step."""
    speaker = value.role if kind == "message" else kind
    if speaker == "user":
        return "user"
    if speaker in {"agent", "assistant"}:
        return "agent" if value is None else "stand-in"
    return None if kind in {"proceed", "call"} else last
