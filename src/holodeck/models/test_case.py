"""A test case: what is said to the agent, in one turn or several, and what is expected of it."""

import re
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from holodeck.models.base import (
    MAX_TURNS,
    BuiltWhenUsed,
    Json,
    Model,
    NonBlank,
    ReadPath,
    Seconds,
)
from holodeck.models.cases.conversation import (
    BareStep,
    CriterionSettings,
    Simulation,
    StepModel,
    find_script_error,
    step_kind,
    step_value,
    user_text,
)
from holodeck.models.cases.expectations import Expectations, ExpectedTool
from holodeck.models.cases.matchers import ArgMatcher
from holodeck.models.cases.messages import History
from holodeck.models.cases.stubs import StandIns
from holodeck.models.config import (
    NO_CACHE,
    PassesNeeded,
    RateNeeded,
    Repetitions,
    validate_min_pass,
)
from holodeck.models.evaluation import Metric

__all__ = ["ArgMatcher", "ExpectedTool", "FileInput", "TestCase", "TestCaseModel", "TurnModel"]

PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z_][\w-]*)\s*\}\}")
"""`{{name}}` in the texts of a case; a value of its `parameters` replaces it."""
LIKE_PLACEHOLDER = re.compile(r"\{\{\s*(?:[$\w.\[][^{}\n]*)?\}?\}")
"""Text that looks like a placeholder, valid or not."""
_YES_OR_NO = {"true", "false", "yes", "no", "on", "off", "y", "n", "0", "1"}


def _validate_skip_reason(text: str) -> str:
    if text.strip().casefold() in _YES_OR_NO:  # such as FALSE in a column of a table
        raise ValueError(
            f"{text!r} is not a reason; write why the case is skipped, or remove 'skip'"
        )
    return text


SkipReason = Annotated[NonBlank, AfterValidator(_validate_skip_reason)]

RetryKind = Literal["error", "timeout", "failed"]
"""The results after which a case can be retried: an agent error, a timeout, a failed check."""
FileType = Literal["image", "pdf", "text", "markdown", "json", "excel", "word", "powerpoint", "csv"]
PAGE_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_CELL_RANGE = re.compile(r"[A-Za-z]{1,3}[1-9][0-9]{0,6}(:[A-Za-z]{1,3}[1-9][0-9]{0,6})?")
_TYPES_WITH = {
    "pages": ("pdf", "powerpoint"),
    "sheet": ("excel",),
    "range": ("excel",),
    "ocr": ("image",),
}
"""Keys of a file that only some types have."""


def _page_range(value: int | str) -> range:
    """Return the pages of an entry of `pages`. Raises ValueError."""
    match = PAGE_RANGE.fullmatch(str(value).replace(" ", ""))
    first = 0 if match is None else int(match[1])
    last = 0 if match is None else int(match[2] or first)
    if not 1 <= first <= last:
        raise ValueError(
            f"found {value!r}; expected a page from 1 such as 3, or a range such as '3-5'"
        )
    return range(first, last + 1)


def _validate_page(value: int | str) -> int | str:
    _page_range(value)
    return value


def _validate_cells(value: str) -> str:
    if not _CELL_RANGE.fullmatch(value):
        raise ValueError(f"found {value!r}; expected a range of cells such as 'A1:E100'")
    return value


def _validate_url(value: str) -> str:
    if not re.fullmatch(r"(?i:https?)://[^\s/?#]+\S*", value):
        raise ValueError(
            f"found {value!r}; expected an address that begins with http:// or https://;"
            " for a file of this machine, write 'path'"
        )
    return value


class FileInput(Model):
    """A file whose text, or image, is sent to the agent before the input."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["path"]}, {"required": ["url"]}]}
    )

    path: ReadPath | None = None
    """Path relative to `agent.yaml`; either this or `url`."""
    url: Annotated[str, AfterValidator(_validate_url)] | None = None
    """http(s) address to download the file from; either this or `path`."""
    type: FileType
    """Type of the file."""
    description: str | None = None
    """Description that precedes the text of the file."""
    pages: (
        Annotated[list[Annotated[int | str, AfterValidator(_validate_page)]], Field(min_length=1)]
        | None
    ) = None
    """Pages of a PDF or slides of a presentation, from 1, also as ranges: `[1, "3-5"]`."""
    sheet: NonBlank | None = None
    """Sheet of an Excel file; without it, all sheets are read."""
    range: Annotated[str, AfterValidator(_validate_cells)] | None = None
    """Cells of an Excel file, such as `A1:E100`; without `sheet`, those of its first sheet."""
    cache: bool | None = None
    """Whether to cache a file with a `url`; by default as `execution.cache_enabled` says."""
    ocr: bool = False
    """Send the text in an image, which tesseract reads, also to a model that takes images."""
    on_error: Literal["fail", "continue"] = "fail"
    """What happens if the file cannot be read: the case is an error (`fail`), or runs without the
    file (`continue`)."""

    @model_validator(mode="after")
    def _has_one_source_and_fitting_keys(self) -> "FileInput":
        if self.path is not None and self.url is not None:
            raise ValueError("'path' and 'url' are both set; remove one of them")
        if self.path is None and self.url is None:
            raise ValueError("'path' is missing; write the path of the file, or its 'url'")
        for key, types in _TYPES_WITH.items():
            if getattr(self, key) not in (None, False) and self.type not in types:
                raise ValueError(
                    f"{key!r} is for files of type {' and '.join(types)}, and this is of type"
                    f" {self.type}; remove it"
                )
        if self.cache is not None and self.url is None:
            raise ValueError("'cache' is for files with a 'url'; remove it")
        return self

    @property
    def page_numbers(self) -> frozenset[int]:
        """The numbers of the wanted pages; empty for all."""
        return frozenset(page for pages in self.pages or () for page in _page_range(pages))

    @property
    def shown_path(self) -> str:
        """The path; for a URL, without credentials and query, which may hold secrets."""
        if self.url is None:
            return str(self.path)
        scheme, _, rest = self.url.partition("://")
        address, mark, _ = rest.partition("#")[0].partition("?")
        host, slash, path = address.partition("/")
        return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}{mark and '?…'}"


class UserMessageModel(Model):
    """The user's message."""

    input: NonBlank
    """The user's message."""


class TurnModel(Expectations, UserMessageModel):
    """One turn: the user's message and the checks of the response."""

    not_supported_yet: ClassVar = {
        "turn_config": "a key of HoloDeck 0.7, for its code graders; a metric of 'type: code' knows"
        " the turn by its input"
    }

    files: Annotated[list[FileInput], Field(max_length=10)] | None = None
    """Files whose text, or image, is sent to the agent before the input."""


class NamedModel(Model):
    """A model with a name."""

    name: NonBlank | None = None
    """Name of the case, unique within its suite."""


FORMS = ("input", "turns", "script", "simulate")
"""Keys that define the user's side of a case; a case has one of them, or the last two."""
_ONE_OF_TWO = {
    ("input", "turns"): "move 'input' into a turn",
    ("input", "simulate"): "write it as 'simulate: {opening: …}'",
    ("input", "script"): "write it as a step: 'user: …'",
    ("turns", "simulate"): "remove one of them",
    ("turns", "script"): "write the turns as steps",
}
_FILES = {
    "turns": "move 'files' into a turn",
    "script": "files belong to 'input' and 'turns'; remove them",
    "simulate": "a simulated user has none; remove them",
}


class CaseSettings(Model):
    """The settings that a case has, or else its suite, or else the run."""

    timeout: Seconds | None = None
    """Maximum seconds of one agent call, retries of requests included."""
    repeat: Repetitions | None = None
    """How often the case runs."""
    min_pass: PassesNeeded | None = None
    """How many repetitions must pass (default: all). If others fail, the case is flaky."""
    min_pass_rate: RateNeeded | None = None
    """The share of repetitions that must pass; an alternative to `min_pass`."""
    retries: Annotated[int, Field(ge=0, le=20)] | None = None
    """How often the case is retried after a result in `retry_on`."""
    retry_on: Annotated[list[RetryKind], Field(min_length=1)] | None = None
    """Results after which the case is retried (default: `[error, timeout]`). A case that failed
    first and passed later is flaky."""
    fail_fast: bool | None = None
    """If true and the case does not pass, the remaining cases of its suite are skipped. If false,
    the run goes on, whatever `execution` says."""

    @model_validator(mode="after")
    def _pass_bar_is_valid(self) -> Self:
        validate_min_pass(self.repeat, self.min_pass, self.min_pass_rate)
        return self


class TestCaseModel(CaseSettings, StandIns, TurnModel, NamedModel):
    """One input or a conversation, its expectations and its metrics."""

    __test__: ClassVar[bool] = False
    not_supported_yet: ClassVar = {"cache_key": NO_CACHE}
    names_in: ClassVar[tuple[str, ...]] = (*Expectations.names_in, "stubs")
    parts_in: ClassVar[tuple[str, ...]] = (*Expectations.parts_in, "stubs", "turns", "script")
    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["input"]},
                {"required": ["turns"]},
                {"anyOf": [{"required": ["script"]}, {"required": ["simulate"]}]},
            ]
        },
    )

    id: NonBlank | None = None
    """Permanent ID of the case, unique within the agent."""
    tags: list[NonBlank] = []
    """Tags for `--tag`, in addition to those of the suite."""
    suite: NonBlank | None = None
    """The suite of the case."""
    description: NonBlank | None = None
    """A note for readers; holodeck ignores it."""
    stop_early: bool | None = None
    """Whether repetitions stop when the outcome is known (default: true)."""
    context: dict[NonBlank, Json] | None = None
    """A mapping that the agent receives beside the input, for example a user ID; each attempt gets
    a copy."""
    skip: SkipReason | None = None
    """Skips the case for this reason."""
    todo: NonBlank | None = None
    """What is still to be written in the case. It runs, but cannot pass until the key is removed:
    at best it is `unchecked`."""
    input: NonBlank = ""
    """The user's message. A case has `input`, `turns`, `script` or `simulate`."""
    history: History | None = None
    """Earlier messages from which the case continues; they are not graded."""
    evaluations: list[Metric] | None = None
    """Metrics of this case; they replace the global ones."""
    turns: (
        Annotated[list[Annotated[TurnModel, BuiltWhenUsed(TurnModel)]], Field(min_length=1)] | None
    ) = None
    """The user's messages, turn by turn, in one conversation. Checks of the case apply to the last
    response and the whole conversation."""
    script: Annotated[list[BareStep | StepModel], Field(min_length=1)] | None = None
    """Steps of a conversation. Without a final step, `criteria` or the other checks decide."""
    simulate: Simulation | None = None
    """A simulated user who talks to the agent until the judge or the user ends the conversation."""
    situation: NonBlank | None = None
    """Background of the conversation for the judge and the simulated user; not a requirement."""
    criteria: Annotated[list[NonBlank | CriterionSettings], Field(min_length=1)] | None = None
    """Requirements for the whole conversation, tool calls included, that a judge checks."""
    min_turns: Annotated[int, Field(ge=1)] | None = None
    """Minimum turns of a simulated conversation before the judge may end it."""
    max_turns: Annotated[int, Field(ge=1)] | None = None
    """Maximum turns of a simulated conversation (default: 10). Then the judge must decide; without
    `criteria` the case fails."""
    max_turns_to_done: Annotated[int, Field(ge=1)] | None = None
    """Maximum turns of the agent until a simulated conversation ends with success, or one whose
    script calls functions."""

    @property
    def is_scripted_or_simulated(self) -> bool:
        """Whether the user's messages and their number are known only while the case runs."""
        return self.simulate is not None or self.script is not None

    @property
    def input_kind(self) -> str:
        """The key that defines the user's side: `input`, `turns`, `script` or `simulate`."""
        return next(form for form in FORMS if getattr(self, form))

    @property
    def user_input(self) -> str:
        """All user messages; for a scripted or simulated case, also what it is about."""
        if self.is_scripted_or_simulated:
            user = self.simulate or Simulation()
            about = (self.situation, user.situation, user.opening)
            written = (user_text(step) for step in self.script or ())
            return "\n\n".join(text for text in (*about, *written) if text is not None)
        return "\n\n".join(turn.input for turn in self.turns) if self.turns else self.input

    @property
    def about(self) -> str:
        """The situation for the judge; empty if none is given."""
        of_user = None if self.simulate is None else self.simulate.situation
        return self.situation or of_user or ""

    @property
    def criterion_settings(self) -> list[CriterionSettings]:
        """The criteria, each with its settings."""
        written = self.criteria or ()
        return [
            CriterionSettings(text=criterion) if isinstance(criterion, str) else criterion
            for criterion in written
        ]

    @property
    def all_criteria(self) -> list[str]:
        """The texts of the criteria, then those of checkpoints."""
        steps = [step for step in self.script or () if isinstance(step, StepModel)]
        of_steps = [text for step in steps for text in step.judge or ()]
        return list(
            dict.fromkeys([*(setting.text for setting in self.criterion_settings), *of_steps])
        )

    @property
    def uses_judge(self) -> bool:
        """Whether a judge decides on criteria, those of checkpoints included."""
        return self.criteria is not None or any(
            step_kind(step) == "judge" for step in self.script or ()
        )

    @property
    def checked_turns(self) -> list[tuple[tuple[str | int, ...], TurnModel]]:
        """The turns, and the checks of the script as turns, each with its path in the case."""
        if self.turns is None and self.script is None:
            return []
        turns = [(("turns", at), turn) for at, turn in enumerate(self.turns or ())]
        checks = [
            (("script", at, "check"), check_as_turn(step_value(step)))
            for at, step in enumerate(self.script or ())
            if step_kind(step) == "check"
        ]
        return [*turns, *checks]

    @property
    def parts(self) -> list[tuple[tuple[str | int, ...], TurnModel]]:
        """The case itself, then `checked_turns`, each with its path in the case."""
        return [((), self), *self.checked_turns]

    @property
    def checks_spans(self) -> bool:
        """Whether the case or one of its turns checks the spans of the agent."""
        return any(part.trace is not None for _, part in self.parts)

    @property
    def expects_approvals(self) -> bool:
        """Whether the agent must ask for approvals in the case, or in one of its turns."""
        return any(part.expect_approval is not None for _, part in self.parts)

    @property
    def most_turns(self) -> int | None:
        """How often the agent is called at most in a conversation; None if code decides."""
        most = MAX_TURNS if self.max_turns is None else self.max_turns
        if self.script is None:
            return most
        steps = [(step_kind(step), step_value(step)) for step in self.script]
        if any(kind == "call" for kind, _ in steps):
            return None
        turns = 0
        for kind, value in steps:
            if kind == "proceed":
                turns += most if value is None or value.turns is None else value.turns
            elif (kind, value) == ("agent", None):
                turns += 1
        return turns

    @property
    def own_metrics(self) -> Sequence[Metric]:
        """The metrics of the case, its turns and its script, without global ones."""
        lists = [metrics for _, part in self.parts for _, metrics in part.metric_lists]
        return list(chain.from_iterable(lists))

    @property
    def called_functions(self) -> list[str]:
        """The functions that the script calls, as `module:callable`."""
        return [step_value(step) for step in self.script or () if step_kind(step) == "call"]

    @model_validator(mode="after")
    def _has_one_input_kind(self) -> "TestCaseModel":
        forms = [form for form in FORMS if getattr(self, form)]
        if not forms:
            raise ValueError(
                "'input' is missing; write the user's message, or 'turns', 'script' or 'simulate'"
            )
        if len(forms) > 1 and forms != ["script", "simulate"]:
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
        if self.simulate.red_team is not None and self.criteria is None:
            raise ValueError(
                "'simulate.red_team' needs a judge; write 'criteria' that say what must not happen"
            )
        if self.simulate.agent_first and self.history is not None:
            raise ValueError(
                "'simulate.agent_first': the agent has spoken last in 'history'; remove it"
            )
        if self.min_turns is not None:
            most = MAX_TURNS if self.max_turns is None else self.max_turns
            if self.min_turns > most:
                raise ValueError(f"'min_turns' is {self.min_turns}, but 'max_turns' is {most}")
            if self.criteria is None:
                raise ValueError("'min_turns' needs a judge; write 'criteria', or remove it")
        return self

    @model_validator(mode="after")
    def _turns_to_done_are_open(self) -> "TestCaseModel":
        is_open = self.simulate is not None or bool(self.called_functions)
        if self.max_turns_to_done is not None and not is_open:
            raise ValueError(
                "'max_turns_to_done' counts the turns until a conversation ends with success, and"
                f" {self.input_kind!r} says how many there are; write 'simulate', or remove it"
            )
        return self

    @model_validator(mode="after")
    def _script_is_valid(self) -> "TestCaseModel":
        if self.script is None:
            return self
        wrong = find_script_error(
            self.script,
            has_user=self.simulate is not None,
            has_criteria=self.criteria is not None,
            has_history=self.history is not None,
            max_turns=MAX_TURNS if self.max_turns is None else self.max_turns,
        )
        if wrong is not None:
            raise ValueError(f"'script[{wrong[0]}]': {wrong[1]}")
        if self.simulate is not None:
            self._refuse_unused_settings()
        return self

    def _refuse_unused_settings(self) -> None:
        words = [step_kind(step) for step in self.script or () if step_value(step) is None]
        proceeds = any(step_kind(step) == "proceed" for step in self.script or ())
        if not proceeds and "user" not in words:
            raise ValueError("'simulate' is not used; write 'user' or 'proceed' in 'script'")
        for key in ("min_turns", "max_turns"):
            if getattr(self, key) is not None and not proceeds:
                raise ValueError(f"{key!r} limits 'proceed', which is not in 'script'")

    @model_validator(mode="after")
    def _criteria_are_unique_and_used(self) -> "TestCaseModel":
        texts = [setting.text for setting in self.criterion_settings]
        for index, text in enumerate(texts):
            if text in texts[:index]:
                raise ValueError(f"'criteria[{index}]' is a duplicate: {text!r}; remove one")
        is_read = self.uses_judge or self.simulate is not None or bool(self.called_functions)
        if self.situation is not None and not is_read:
            raise ValueError("'situation' is not used; write 'criteria' or 'simulate'")
        return self


def check_as_turn(check: Expectations, user_input: str = "-") -> TurnModel:
    """Return a check of a script as a turn with the user's message."""
    known = {key: getattr(check, key) for key in check.model_fields_set}
    return TurnModel.model_validate({"input": user_input, **known})


TestCase = TestCaseModel
