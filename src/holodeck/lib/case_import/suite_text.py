"""Imported cases chosen, without personal data, and as the text of a suite file."""

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

import yaml

from holodeck.config.yaml.source import Source
from holodeck.errors import ConfigError
from holodeck.lib.case_import.case import LOOSELY, Imported, ImportedCase, LoggedTurn
from holodeck.lib.secrets.redact import is_secret_entry
from holodeck.lib.support.text import inert, one_line, plural, replace_surrogates

Expect = Literal["nothing", "recorded"]
T = TypeVar("T")
TODO = "write what a right response must do, then remove this line"
_MAX_COMMENT = 300
_FACT = re.compile(r"(?:\w[\w.:-]*)?\d(?:[\w.:-]*\w)?")
"""A number, or a code with a digit."""
_SIMILAR = 0.3
"""The share of words that another answer with the same content usually has in common."""
_WORDING = "# A model words its answer anew each time; use exact_match for an agent that does not."
UNKNOWN_ANSWER = "(no response was recorded)"
_INDENT = "    "


def leave_out_duplicates(imported: Imported) -> None:
    """Keep the first case of those in which the user says the same, and note the others.

    Upper and lower case, white space and punctuation make no difference, expectations do.
    """
    first: dict[object, ImportedCase] = {}
    for case in imported.cases:
        spoken = (turn.user for turn in [*case.history, *case.turns])
        words = tuple(" ".join(re.findall(r"\w+", text.casefold())) or text for text in spoken)
        key = (words, repr(case.evaluations), repr(case.criteria), repr(case.keys))
        kept = first.setdefault(key, case)
        if kept is not case:
            imported.note(case.location, f"left out: the user says the same at {kept.location}")
    imported.cases = list(first.values())


def split_turns(cases: Sequence[ImportedCase]) -> list[ImportedCase]:
    """Return a case for each turn, with the turns before as its history."""
    parts = []
    for case in cases:
        for index, turn in enumerate(case.turns):
            is_last = index == len(case.turns) - 1
            name = f"{case.label} (turn {index + 1})" if len(case.turns) > 1 else case.name
            history = [*case.history, *case.turns[:index]]
            part = replace(case, turns=[turn], name=name, history=history)
            if not is_last:  # what is expected is expected of the last response
                part = replace(part, evaluations=[], criteria=[], keys={}, todo=[])
            parts.append(part)
    return parts


def choose(imported: Imported, limit: int | None, sample: int | None, seed: int) -> None:
    """Keep a random sample, or the first cases, in the order of the source, and note the others."""
    cases = imported.cases
    if sample is not None and sample < len(cases):
        kept = sorted(random.Random(seed).sample(range(len(cases)), sample))  # noqa: S311
        imported.cases = [cases[index] for index in kept]
        left = plural(len(cases) - sample, "case")
        imported.note("--sample", f"{left} not chosen (seed {seed})")
    cases = imported.cases
    if limit is not None and limit < len(cases):
        imported.cases = cases[:limit]
        imported.note("--limit", f"{plural(len(cases) - limit, 'case')} left out")


PATTERNS: Mapping[str, str] = {
    "email": r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
    "iban": r"(?<![\w-])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7} ?[A-Z0-9]{1,4}(?![\w-])",
    "card": r"(?<![\d.-])(?:\d{4}[ -]){3}\d{1,7}(?![\d-])",
    "phone": r"(?<![\w.+-])(?:\+\d[\d ()./-]{6,18}\d|\(0?\d{2,5}\)[ -]?\d[\d -]{4,12}\d"
    r"|0\d{1,4}[ /-]\d[\d -]{4,12}\d|\d{3}[ .-]\d{3}[ .-]\d{4})(?![\w-])",
}
"""What is replaced by `<name>`, in this order; `--redact NAME=REGEX` adds further patterns."""
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,30}")
Redact = Callable[[str], str]


def make_redact(redact_secrets: Redact, more: Iterable[str] = ()) -> Redact:
    """Return a function that replaces secrets and personal data; `more` are `NAME=REGEX`.

    Raises ConfigError for a pattern that is not valid.
    """
    patterns = [(f"<{name}>", re.compile(pattern)) for name, pattern in PATTERNS.items()]
    patterns += map(_parse_pattern, more)

    def redact(text: str) -> str:
        text = redact_secrets(text)
        for replacement, pattern in patterns:
            text = pattern.sub(replacement, text)
        return text

    return redact


def redact_case(case: T, redact: Redact) -> T:
    """Return the case without secrets and personal data, wherever they are."""

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return redact(value)
        if isinstance(value, Mapping):
            return {
                redact(str(key)): "***" if is_secret_entry(key, item) else clean(item)
                for key, item in value.items()
            }
        if is_dataclass(value) and not isinstance(value, type):
            names = [column.name for column in fields(value)]
            return replace(value, **{name: clean(getattr(value, name)) for name in names})
        return [clean(item) for item in value] if isinstance(value, list) else value

    cleaned: T = clean(case)
    return cleaned


def _parse_pattern(written: str) -> tuple[str, re.Pattern[str]]:
    name, equals, pattern = written.partition("=")
    if not equals or not _NAME.fullmatch(name) or not pattern:
        raise ConfigError(
            "--redact", f"found {written!r}; expected NAME=REGEX such as 'order=A-[0-9]+'"
        )
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ConfigError("--redact", f"{pattern!r} is no regular expression: {error}") from error
    if expression.search("") is not None:
        raise ConfigError("--redact", f"{pattern!r} matches the empty text, so it marks everything")
    return f"<{name}>", expression


class SuiteText(NamedTuple):
    """A suite file, and how many of its cases have a `todo`."""

    text: str
    todos: int


class _Dumper(yaml.SafeDumper):
    """Writes every text in quotes or as a block, so that no text reads as a number or a boolean."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


class _OneLine(list[str]):
    """A list that is written on a single line."""


def _represent_one_line(dumper: yaml.SafeDumper, items: _OneLine) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=True)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_plain = text == inert(text) and not text.startswith((" ", "\n"))
    is_block = "\n" in text and is_plain and not text.endswith("\n")
    style = "|" if is_block else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_mapping(dumper: yaml.SafeDumper, mapping: dict[str, Any]) -> yaml.MappingNode:
    pairs = [
        (dumper.represent_scalar("tag:yaml.org,2002:str", key, None if key.isidentifier() else '"'),
         dumper.represent_data(value))
        for key, value in mapping.items()
    ]  # fmt: skip
    return yaml.MappingNode("tag:yaml.org,2002:map", pairs, flow_style=False)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(dict, _represent_mapping)
_Dumper.add_representer(_OneLine, _represent_one_line)


def render_suite(
    cases: Sequence[ImportedCase], name: str, source: str, expect: Expect
) -> SuiteText:
    """Return a suite file. Raises ConfigError if it would not read back as it was written."""
    names = _unique_names(cases)
    plain = [_case(case, label, expect) for case, label in zip(cases, names, strict=True)]
    header = _escaped({"suite": {"name": name}})
    head = [
        f"# Test cases from {one_line(source, 200)}, written by `holodeck import`.",
        "# A case with a 'todo' cannot pass: write what you expect, then remove the line.",
        *_dumped(header),
        "test_cases:",
    ]
    blocks = [
        "\n".join(_block(case, written, expect)) for case, written in zip(cases, plain, strict=True)
    ]
    text = "\n".join(head) + "\n" + "\n\n".join(blocks) + "\n"
    if Source.of(text, name).data() != {**header, "test_cases": plain}:
        raise ConfigError(source, "a text in it cannot be written as YAML")
    return SuiteText(text, sum("todo" in case for case in plain))


def render_turn(turn: LoggedTurn, todo: str, *, knows_calls: bool) -> str:
    """Return a test case that expects what an agent did in a turn, as an item of `test_cases`.

    Without `knows_calls`, nothing is said about tool calls if the turn has none. The checks of the
    answer leave a model its words.
    """
    written = _turn(turn, "recorded")
    if knows_calls and not turn.calls:
        written["expected_tools"] = []
    if not turn.answer:  # an agent may stop after its calls
        del written["ground_truth"], written["evaluations"]
    elif re.search(r"\w", turn.answer):
        facts = _facts(turn)
        contained = {"metric": "contains", "values": facts}
        similar = {"metric": "f1_score", "threshold": _SIMILAR}
        written["evaluations"] = [*([contained] if facts else []), similar]
    named = {"name": ImportedCase("", [turn]).label, "todo": todo, **written}
    lines = list(_item(_escaped(named)))
    if "evaluations" in written:
        lines.insert(lines.index(f"{_INDENT}evaluations:"), _INDENT + _WORDING)
    return "\n".join(lines) + "\n"


def _facts(turn: LoggedTurn) -> list[str]:
    """Return the numbers and codes that the agent took from its tools into its answer."""
    results = json.dumps([call.result for call in turn.calls], ensure_ascii=False)
    known = set(_FACT.findall(results)) - set(_FACT.findall(turn.user))
    return [fact for fact in dict.fromkeys(_FACT.findall(turn.answer or "")) if fact in known]


def _case(case: ImportedCase, name: str, expect: Expect) -> dict[str, Any]:
    """Return the case with the keys of a suite file."""
    todo = list(case.todo)
    turns = [_turn(turn, expect) for turn in case.turns]
    if expect == "recorded" and any(turn.answer is None for turn in case.turns):
        todo.append("the log lacks a response; write what is expected")
    if any(not turn.answer for turn in case.history):
        todo.append(f"the log lacks a response in 'history'; replace {UNKNOWN_ANSWER!r}")
    if not (case.has_checks or case.todo or expect == "recorded"):
        todo.insert(0, TODO)
    written = {
        "name": name,
        "tags": _OneLine(dict.fromkeys(["imported", *(tag for tag in case.tags if tag.strip())])),
        "todo": "; ".join(todo),
        "history": [message for turn in case.history for message in _messages(turn)],
        **(turns[0] if len(turns) == 1 else {"turns": turns}),
        **case.keys,
        "criteria": list(dict.fromkeys(case.criteria)),
        **({"evaluations": case.evaluations} if case.evaluations else {}),
    }
    return {key: _escaped(value) for key, value in written.items() if value}


def _turn(turn: LoggedTurn, expect: Expect) -> dict[str, Any]:
    if expect == "nothing" or turn.answer is None:
        return {"input": turn.user}
    metric = {"metric": "exact_match", **LOOSELY}
    tools = []
    for call in turn.calls:
        args = {
            # a mapping could be another matcher
            key: {"equals": value} if isinstance(value, dict) else value
            for key, value in (call.arguments or {}).items()
        }
        tools.append({"name": call.name, **({"args": args} if args else {})})
    return {
        "input": turn.user,
        **({"expected_tools": tools} if tools else {}),
        "ground_truth": turn.answer,
        "evaluations": [metric],
    }


def _messages(turn: LoggedTurn) -> Iterator[dict[str, Any]]:
    """Yield the messages of an earlier turn; calls whose result is unknown are left out."""
    yield {"role": "user", "content": turn.user}
    known = [call for call in turn.calls if call.result is not None]
    if known:
        called = [
            {
                "id": f"call_{number}",
                "function": {"name": call.name, "arguments": call.arguments or {}},
            }
            for number, call in enumerate(known, 1)
        ]
        yield {"role": "assistant", "tool_calls": called}
        for number, call in enumerate(known, 1):
            yield {"role": "tool", "tool_call_id": f"call_{number}", "content": call.result}
    yield {"role": "assistant", "content": turn.answer or UNKNOWN_ANSWER}


def _block(case: ImportedCase, written: dict[str, Any], expect: Expect) -> Iterator[str]:
    yield f"  # {one_line(case.location, _MAX_COMMENT)}"
    yield from _item(written)
    if expect == "recorded":
        return
    for number, turn in enumerate(case.turns, 1):
        of_turn = f" of turn {number}" if len(case.turns) > 1 else ""
        if turn.answer is not None:
            yield f"{_INDENT}# recorded response{of_turn}: {one_line(turn.answer, _MAX_COMMENT)}"
        for call in turn.calls:
            shown = "unknown" if call.arguments is None else json.dumps(call.arguments)
            text = one_line(f"{call.name} {shown}", _MAX_COMMENT)
            yield f"{_INDENT}# recorded tool call{of_turn}: {text}"


def _item(case: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of an item of `test_cases`."""
    lines = _dumped(case)
    yield f"  - {lines[0]}"
    yield from (f"{_INDENT}{line}" if line else "" for line in lines[1:])


def _dumped(value: dict[str, Any]) -> list[str]:
    text: str = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=100_000)
    return text.rstrip("\n").split("\n")


def _escaped(value: Any) -> Any:
    """Return the value with `${` as `$${`, which stands for itself in a configuration."""
    if isinstance(value, str):
        return replace_surrogates(value).replace("${", "$${")
    if isinstance(value, dict):
        return {replace_surrogates(str(key)): _escaped(item) for key, item in value.items()}
    return type(value)(map(_escaped, value)) if isinstance(value, list) else value


def _unique_names(cases: Sequence[ImportedCase]) -> list[str]:
    """Return the labels, those that occur before with a number."""
    numbers: Counter[str] = Counter()
    names: dict[str, None] = {}
    for case in cases:
        name = case.label
        while name in names:
            numbers[case.label] += 1
            name = f"{case.label} ({numbers[case.label] + 1})"
        names[name] = None
    return list(names)
