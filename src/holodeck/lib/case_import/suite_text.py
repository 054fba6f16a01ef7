"""Imported cases as the text of a suite file, with what the log recorded in comments."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import yaml

from holodeck.config.yaml.source import Source
from holodeck.errors import ConfigError
from holodeck.lib.case_import.case import TODO, ImportedCase, LoggedCall, LoggedTurn
from holodeck.lib.support.text import inert, one_line, replace_surrogates

Expect = Literal["nothing", "recorded"]
_MAX_COMMENT = 300
UNKNOWN_ANSWER = "(no response was recorded)"
_INDENT = "    "


class SuiteText(NamedTuple):
    """A suite file, and how many of its cases have a `todo`."""

    text: str
    todos: int


class _Dumper(yaml.SafeDumper):
    """Writes every text in quotes or as a block, so that no text reads as a number or a boolean."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


class _OneLine(list[str]):
    """A list that is written on one line."""


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
    return SuiteText(text, sum("todo" in one for one in plain))


def _case(case: ImportedCase, name: str, expect: Expect) -> dict[str, Any]:
    """Return the case with the keys of a suite file."""
    todo = list(case.todo)
    turns = [_turn(turn, expect) for turn in case.turns]
    if expect == "recorded" and any(turn.answer is None for turn in case.turns):
        todo.append("the log lacks a response; write what is expected")
    if any(not one.answer for one in case.history):
        todo.append(f"the log lacks a response in 'history'; replace {UNKNOWN_ANSWER!r}")
    has_checks = bool(case.evaluations or case.criteria or expect == "recorded")
    if not has_checks and not case.todo:
        todo.insert(0, TODO)
    written = {
        "name": name,
        "tags": _OneLine(dict.fromkeys(["imported", *(tag for tag in case.tags if tag.strip())])),
        "todo": "; ".join(todo),
        "history": [message for turn in case.history for message in _messages(turn)],
        **(turns[0] if len(turns) == 1 else {"turns": turns}),
        "criteria": list(dict.fromkeys(case.criteria)),
    }
    if case.evaluations:
        written["evaluations"] = case.evaluations
    return {key: _escaped(value) for key, value in written.items() if value}


def _turn(turn: LoggedTurn, expect: Expect) -> dict[str, Any]:
    if expect == "nothing" or turn.answer is None:
        return {"input": turn.user}
    metric = {"metric": "exact_match", "ignore_case": True, "normalize_whitespace": True}
    tools = [_expected_call(call) for call in turn.calls]
    return {
        "input": turn.user,
        **({"expected_tools": tools} if tools else {}),
        "ground_truth": turn.answer,
        "evaluations": [metric],
    }


def _expected_call(call: LoggedCall) -> dict[str, Any]:
    return {"name": call.name, **({"args": _literals(call.arguments)} if call.arguments else {})}


def _literals(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments as matchers of equality, as a mapping could be another matcher."""
    return {
        key: {"equals": value} if isinstance(value, dict) else value
        for key, value in arguments.items()
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
    lines = _dumped(written)
    yield f"  - {lines[0]}"
    yield from (f"{_INDENT}{line}" if line else "" for line in lines[1:])
    if expect == "recorded":
        return
    for number, turn in enumerate(case.turns, 1):
        of_turn = f" of turn {number}" if len(case.turns) > 1 else ""
        if turn.answer is not None:
            yield f"{_INDENT}# recorded response{of_turn}: {_comment(turn.answer)}"
        for call in turn.calls:
            shown = "unknown" if call.arguments is None else json.dumps(call.arguments)
            yield f"{_INDENT}# recorded tool call{of_turn}: {_comment(f'{call.name} {shown}')}"


def _comment(text: str) -> str:
    return one_line(text, _MAX_COMMENT)


def _dumped(value: dict[str, Any]) -> list[str]:
    text: str = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=100_000)
    return text.rstrip("\n").split("\n")


def _escaped(value: Any) -> Any:
    """Return the value with `${` as `$${`, which stands for itself in a configuration."""
    if isinstance(value, str):
        return replace_surrogates(value).replace("${", "$${")
    if isinstance(value, dict):
        return {replace_surrogates(str(key)): _escaped(one) for key, one in value.items()}
    return type(value)(map(_escaped, value)) if isinstance(value, list) else value


def _unique_names(cases: Sequence[ImportedCase]) -> list[str]:
    """Return the labels, those that occur before with a number."""
    seen: Counter[str] = Counter()
    names = []
    for case in cases:
        label = case.label
        seen[label] += 1
        while seen[label] > 1 and f"{label} ({seen[label]})" in seen:
            seen[label] += 1
        name = label if seen[label] == 1 else f"{label} ({seen[label]})"
        seen[name] += name != label
        names.append(name)
    return names
