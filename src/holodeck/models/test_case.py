"""A test case: what is said to the agent, in one turn or several, and what is expected of it."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from holodeck.models.bar import PassesNeeded, RateNeeded, Repetitions, refuse_bar
from holodeck.models.base import Json, Model, NonBlank, Seconds
from holodeck.models.conversation import MAX_TURNS, CriterionSettings, Simulation
from holodeck.models.evaluation import Metric
from holodeck.models.scorers import Scorer

RetryKind = Literal["error", "timeout", "failed"]
"""What a case can be run again after: the agent broke, it took too long, a check said no."""
MATCHER_KEYS = ("equals", "regex", "number", "fuzzy")


class NumberMatcher(Model):
    """A number within a tolerance."""

    value: float
    absolute_tolerance: Annotated[float, Field(ge=0)] = 1e-9
    relative_tolerance: Annotated[float, Field(ge=0)] = 0.0


class ArgMatcher(Model):
    """How one argument of a tool call must look; exactly one key is given."""

    equals: Json = None
    """The very value; needed only where a literal would itself look like a matcher."""
    regex: NonBlank | None = None
    """The whole text must match."""
    number: NumberMatcher | None = None
    """Numerically equal within a tolerance; text that holds a number counts."""
    fuzzy: NonBlank | None = None
    """Equal but for case, surrounding white space, thousands separators and percent signs."""

    @model_validator(mode="after")
    def _has_one_key(self) -> "ArgMatcher":
        if len(self.model_fields_set) != 1:
            raise ValueError(f"a matcher has exactly one of {', '.join(MATCHER_KEYS)}")
        return self


class ExpectedTool(Model):
    """A strict expectation about one tool."""

    name: NonBlank
    """The tool's name, or a part of it with `match: substring`."""
    args: dict[str, Json] = {}
    """Argument name → literal or matcher; arguments not named here are not looked at."""
    count: Annotated[int, Field(ge=1)] | None = None
    """Exactly so many matching calls; null means one or more."""
    match: Literal["exact", "substring"] = "exact"
    """How the tool's name is compared."""

    def matchers(self) -> dict[str, ArgMatcher]:
        """`args` with every literal made a matcher."""
        return {key: _as_matcher(value) for key, value in self.args.items()}

    @model_validator(mode="after")
    def _matchers_are_well_formed(self) -> "ExpectedTool":
        for name, value in self.args.items():
            try:
                _as_matcher(value)
            except ValidationError as error:
                problem = error.errors(include_url=False)[0]
                at = "".join(f"{part}: " for part in problem["loc"])
                reason = problem["msg"].removeprefix("Value error, ")
                raise ValueError(f"'args.{name}': {at}{reason}") from error
        return self


def _as_matcher(value: Json) -> ArgMatcher:
    if isinstance(value, dict) and value and set(value) <= set(MATCHER_KEYS):
        number = value.get("number")
        if isinstance(number, int | float) and not isinstance(number, bool):
            return ArgMatcher.model_validate({**value, "number": {"value": number}})
        return ArgMatcher.model_validate(value)
    return ArgMatcher(equals=value)


FileType = Literal["image", "pdf", "text", "excel", "word", "powerpoint", "csv"]


class FileInput(Model):
    """A file whose text goes to the agent before the input."""

    not_yet: ClassVar = {
        "url": "remote files",
        "pages": "page ranges",
        "sheet": "spreadsheet ranges",
        "range": "spreadsheet ranges",
        "cache": "remote files",
    }

    path: NonBlank
    """Relative to the agent.yaml."""
    type: FileType
    """What the file holds."""
    description: str | None = None
    """Said to the agent above the file's text."""

    @model_validator(mode="before")
    @classmethod
    def _is_of_a_type_that_works(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("type") == "image":
            raise ValueError("'type: image' is not supported yet; remove the file")
        return data


class TurnModel(Model):
    """What the user says in one turn of a conversation, and what is expected of the answer."""

    input: NonBlank
    """What the user says."""
    expected_tools: list[NonBlank | ExpectedTool] | None = None
    """Tools that must be called; [] means that no tool may be called; absent: not looked at."""
    forbidden_tools: list[NonBlank] | None = None
    """Tools that must not be called (exact names)."""
    tool_order: bool = False
    """Whether expected_tools must be called in the order written."""
    ground_truth: NonBlank | None = None
    """The right answer; text metrics compare with it."""
    files: Annotated[list[FileInput], Field(max_length=10)] | None = None
    """Files whose text goes to the agent before the input."""
    retrieval_context: list[str] | None = None
    """Retrieved passages, given by hand instead of taken from tool results."""
    evaluations: list[Metric] | None = None
    """Metrics of this turn; they see the conversation until then."""
    scorers: list[Scorer] | None = None
    """Checks besides the metrics: `passfail`, `exact`, `regex`, `similarity`, `module:callable`, or
    one of them with options, as `{regex: {pattern: …}}`."""

    @model_validator(mode="after")
    def _order_has_something_to_order(self) -> "TurnModel":
        if self.tool_order and not self.expected_tools:
            raise ValueError("'tool_order: true' needs 'expected_tools' to put in order")
        if self.forbidden_tools is not None and not self.forbidden_tools:
            raise ValueError("'forbidden_tools: []' forbids nothing; name tools or remove it")
        return self


class NamedModel(Model):
    """What has a name of its own."""

    name: NonBlank | None = None
    """Unique within its suite; the cases without a suite are one."""


FORMS = ("input", "turns", "simulate")
"""Keys that say how the user's side comes about; a case has one of them."""
_ONE_OF_TWO = {
    ("input", "turns"): "move 'input' into a turn",
    ("input", "simulate"): "write it as 'simulate: {opening: …}'",
    ("turns", "simulate"): "remove one of them",
}
_FILES = {
    "turns": "move 'files' into a turn",
    "simulate": "a simulated user has none; remove them",
}


class TestCaseModel(TurnModel, NamedModel):
    """One input or a conversation, its expectations and its metrics."""

    __test__: ClassVar[bool] = False
    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": [one]} for one in FORMS]},
    )
    not_yet: ClassVar = {"script": "conversations"}

    id: NonBlank | None = None
    """Names the case for good, whatever it is called later; no other case has it."""
    tags: list[NonBlank] = []
    """Words by which cases are chosen; those of its suite are added."""
    suite: NonBlank | None = None
    """The suite that the case belongs to."""
    description: NonBlank | None = None
    """For people; nothing else reads it."""
    timeout: Seconds | None = None
    """Seconds that one call of the agent may take in this case, instead of what the run says."""
    repeat: Repetitions | None = None
    """How often the case is run, each time on its own, instead of what the run says."""
    min_pass: PassesNeeded | None = None
    """How many repetitions must pass; unset: all. The case is flaky if others do not."""
    min_pass_rate: RateNeeded | None = None
    """The share of repetitions that must pass, instead of `min_pass`."""
    stop_early: bool | None = None
    """Whether no repetition begins once the verdict is known; unset: it does not."""
    context: dict[NonBlank, Json] | None = None
    """What the agent is told besides the input (a user's id, say); each try gets a copy."""
    skip: NonBlank | None = None
    """Why the case is not run; it is listed as skipped."""
    retries: Annotated[int, Field(ge=0, le=20)] | None = None
    """How often the case is run again after what `retry_on` names, instead of what the run says."""
    fail_fast: bool | None = None
    """Whether no further case of its suite begins if this one does not pass; `--no-fail-fast`
    overrules it."""
    retry_on: Annotated[list[RetryKind], Field(min_length=1)] | None = None
    """What the case is run again after; unset: `[error, timeout]`. A case that failed and passed
    later is flaky."""
    input: NonBlank = ""
    """What the user says; a case has this, `turns` or `simulate`."""
    evaluations: list[Metric] | None = None
    """Metrics of this case, instead of (not besides) the global ones."""
    turns: Annotated[list[TurnModel], Field(min_length=1)] | None = None
    """What the user says turn by turn, in one conversation; the case's own expectations and metrics
    are about the last answer and the whole conversation."""
    simulate: Simulation | None = None
    """A user played by a model, until the judge or the user ends the conversation."""
    situation: NonBlank | None = None
    """What the conversation is about, for the judge and the simulated user; it demands nothing."""
    criteria: Annotated[list[NonBlank | CriterionSettings], Field(min_length=1)] | None = None
    """What a judge decides about the whole conversation, tool calls and results included."""
    min_turns: Annotated[int, Field(ge=1)] | None = None
    """Turns of a simulated conversation before the judge may end it."""
    max_turns: Annotated[int, Field(ge=1)] | None = None
    """Most turns of a simulated conversation; 10 if not given. Then the judge must decide; without
    `criteria` the case fails."""

    @property
    def is_played(self) -> bool:
        """Whether what the user says, and how often, shows only while the case runs."""
        return self.simulate is not None

    @property
    def form(self) -> str:
        """The key that says how the user's side comes about: `input`, say."""
        return next(one for one in FORMS if getattr(self, one))

    @property
    def said(self) -> str:
        """Everything the user says; of a conversation that is played, what it is about."""
        if self.simulate is not None:
            about = (self.situation, self.simulate.situation, self.simulate.opening)
            return "\n\n".join(one for one in about if one is not None)
        return "\n\n".join(one.input for one in self.turns) if self.turns else self.input

    @property
    def about(self) -> str:
        """The situation as the judge is told it; empty if nothing is said about it."""
        of_user = None if self.simulate is None else self.simulate.situation
        return self.situation or of_user or ""

    @property
    def judged(self) -> list[CriterionSettings]:
        """The criteria, each as a mapping."""
        written = self.criteria or ()
        return [CriterionSettings(text=one) if isinstance(one, str) else one for one in written]

    @property
    def own_evaluations(self) -> Sequence[Metric]:
        """The metrics that are written in the case and its turns."""
        parts = [self, *(self.turns or ())]
        return [
            metric for one in parts for metric in (*(one.evaluations or ()), *(one.scorers or ()))
        ]

    @model_validator(mode="after")
    def _has_one_bar(self) -> "TestCaseModel":
        refuse_bar(self.repeat, self.min_pass, self.min_pass_rate)
        return self

    @model_validator(mode="after")
    def _is_said_once(self) -> "TestCaseModel":
        forms = [one for one in FORMS if getattr(self, one)]
        if not forms:
            raise ValueError("'input' is missing: write what the user says, 'turns' or 'simulate'")
        if len(forms) > 1:
            first, second = forms[:2]
            raise ValueError(f"has {second!r} and {first!r}; {_ONE_OF_TWO[first, second]}")
        if self.files and not self.input:
            raise ValueError(f"has {forms[0]!r} and 'files'; {_FILES[forms[0]]}")
        return self

    @model_validator(mode="after")
    def _has_what_a_simulated_user_needs(self) -> "TestCaseModel":
        if self.simulate is None:
            for key in ("min_turns", "max_turns"):
                if getattr(self, key) is not None:
                    raise ValueError(f"{key!r} limits a simulated conversation; write 'simulate'")
            return self
        if self.simulate.situation is None and self.situation is None:
            raise ValueError("'simulate': 'situation' is missing; write what the user wants")
        if self.min_turns is not None:
            most = MAX_TURNS if self.max_turns is None else self.max_turns
            if self.min_turns > most:
                raise ValueError(f"'min_turns': {self.min_turns} is more than max_turns, {most}")
            if self.criteria is None:
                raise ValueError("'min_turns' holds back the judge; write 'criteria', or remove it")
        return self

    @model_validator(mode="after")
    def _criteria_are_told_apart(self) -> "TestCaseModel":
        texts = [one.text for one in self.judged]
        for index, text in enumerate(texts):
            if text in texts[:index]:
                raise ValueError(f"'criteria[{index}]' stands there twice: {text!r}; remove one")
        if self.situation is not None and self.simulate is None and self.criteria is None:
            raise ValueError("'situation' is read by nobody; write 'criteria' or 'simulate'")
        return self


TestCase = TestCaseModel
