"""Test cases from a configuration of promptfoo."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

from holodeck.config.yaml.source import KeyPath, Source
from holodeck.errors import ConfigError
from holodeck.lib.case_import.case import Imported, ImportedCase
from holodeck.lib.support.safe_paths import file_inside

_G_EVAL = 0.7
"""The threshold of promptfoo's `g-eval` if none is given."""
_PLAIN_KEYS = {"type", "value", "threshold"}
_IGNORED_KEYS = {
    "metric": "the metric has its own name",
    "weight": "every check must pass",
}
"""Keys of an assertion without which the case is at least as strict."""


Made = dict[str, Any] | str
"""A metric, `{"criterion": …}`, `{"case": …}` with keys of the case, or why there is none."""


def translate(written: dict[str, Any]) -> Made:
    """Return what an assertion means here; placeholders in it are filled in already."""
    kind, value, threshold = (written.get(key) for key in ("type", "value", "threshold"))
    make = _KINDS.get(kind) if isinstance(kind, str) else None
    unknown = [key for key in written if key not in _PLAIN_KEYS | _IGNORED_KEYS.keys()]
    made: Made
    if make is None:
        made = _INSTEAD.get(str(kind), "has no equivalent")
    elif written.get("weight") == 0:
        made = "has the weight 0, so it decides nothing"
    elif unknown:
        made = f"has {', '.join(map(repr, unknown))}"
    elif isinstance(value, str) and value.startswith("file://"):
        made = f"its value is in {value}"
    elif threshold is not None and not isinstance(threshold, int | float):
        made = f"the threshold {threshold!r} is no number"
    else:
        made = make(value, threshold)
    return f"the assertion {kind!r} is not imported: {made}" if isinstance(made, str) else made


def _texts(value: object, *, several: bool) -> list[str] | str:
    """Return the texts of a value, or what is wrong with it."""
    if several and isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    items = value if several else [value]
    if not isinstance(items, list) or not items:
        return "no text is given"
    if not all(type(item) in (str, int, float) for item in items):
        return "the value is no text"
    texts = [str(item) for item in items]
    return texts if all(text.strip() for text in texts) else "a text is empty"


def _text_metric(name: str, *, several: bool = False, **options: Any) -> Callable[..., Made]:
    def make(value: object, _threshold: object) -> Made:
        texts = _texts(value, several=several)
        if isinstance(texts, str):
            return texts
        expected = {"values": texts} if several else {"value": texts[0]}
        return {"metric": name, **expected, **options}

    return make


def _pattern(
    prefix: str, *, is_text: bool, is_refused: bool = False, suffix: str = ""
) -> Callable[..., Made]:
    """Return what makes a metric of a pattern, or one that no part of a response may match."""

    def make(value: object, _threshold: object) -> Made:
        if not _is_filled(value):
            return "no text is given"
        try:
            re.compile(value if not is_text else "")
        except re.error as error:
            return f"the pattern is none of Python's: {error}"
        pattern = prefix + (re.escape(value) if is_text else value) + suffix
        if is_refused:
            pattern = rf"\A(?!{pattern})" if prefix else rf"\A(?![\s\S]*?(?:{pattern}))"
        return {"metric": "regex", "pattern": pattern}

    return make


def _json_schema(value: object, _threshold: object, **options: bool) -> Made:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return "the schema cannot be read as JSON"
    schema = {} if value is None else value
    if not isinstance(schema, dict):
        return "the schema is no mapping"
    return {"metric": "json_schema", "schema": schema, **options}


def _measured(name: str, default: float, **options: Any) -> Callable[..., Made]:
    """Return what makes a metric that measures how similar the response is to texts."""

    def make(value: object, threshold: float | None) -> Made:
        texts = _texts(value, several=isinstance(value, list))
        if isinstance(texts, str):
            return texts
        metric = {"metric": name, "values": texts, **options}
        return _with_threshold(metric, default if threshold is None else threshold)

    return make


def _with_threshold(metric: dict[str, Any], threshold: float | None) -> Made:
    if threshold is not None and not 0 < threshold <= 1:
        return f"the threshold {threshold!r} is not between 0 and 1"
    return metric if threshold is None else {**metric, "threshold": threshold}


def _rag(metric_type: str) -> Callable[..., Made]:
    def make(value: object, threshold: float | None) -> Made:
        metric = _with_threshold({"type": "rag", "metric_type": metric_type}, threshold)
        if isinstance(metric, str) or value is None:
            return metric
        if not _is_filled(value):
            return "the value is no text"
        return {**metric, "case": {"ground_truth": value}}

    return make


def _g_eval(value: object, threshold: float | None) -> Made:
    texts = [value] if isinstance(value, str) else value
    if not _are_filled(texts):
        return "the criteria are no text"
    inputs = {"evaluation_params": ["input", "actual_output"]}
    metric = {"type": "geval", "name": "g-eval", "criteria": "\n".join(texts), **inputs}
    return _with_threshold(metric, _G_EVAL if threshold is None else threshold)


def _is_filled(text: object) -> TypeGuard[str]:
    return isinstance(text, str) and bool(text.strip())


def _are_filled(texts: object) -> TypeGuard[list[str]]:
    return isinstance(texts, list) and bool(texts) and all(map(_is_filled, texts))


def _tools_used(value: object, threshold: float | None) -> Made:
    names = [value] if isinstance(value, str) else value
    if not _are_filled(names):
        return "the value is no name of a tool and no list of names"
    if threshold not in {None, 1}:
        return "its threshold accepts that some of the tools are not called"
    return {"case": {"expected_tools": [{"name": name} for name in names]}}


def _only_tools(value: object, threshold: float | None) -> Made:
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    made = _tools_used(value, threshold)
    if isinstance(made, str):
        return made
    return {"case": {**made["case"], "only_expected_tools": True}}


def _latency(_value: object, threshold: object) -> Made:
    if not isinstance(threshold, int | float) or threshold < 1:
        return "no threshold in milliseconds is given"
    return {"metric": "latency", "max_ms": int(threshold)}


def _rubric(value: object, threshold: float | None) -> Made:
    if not _is_filled(value):
        return "the rubric is no text"
    return {"criterion": value.strip()} if threshold is None else _g_eval(value, threshold)


def _refused_rubric(value: object, threshold: float | None) -> Made:
    if threshold is not None:
        return "its threshold is that of the rubric, not of its opposite"
    made = _rubric(value, None)
    return (
        made if isinstance(made, str) else {"criterion": f"This is not true: {made['criterion']}"}
    )


_KINDS: dict[str, Callable[..., Made]] = {
    "equals": _text_metric("exact_match", strip=False),
    "contains": _text_metric("contains"),
    "contains-all": _text_metric("contains", several=True),
    "contains-any": _text_metric("contains", several=True, match="any"),
    "icontains": _text_metric("contains", ignore_case=True),
    "icontains-all": _text_metric("contains", several=True, ignore_case=True),
    "icontains-any": _text_metric("contains", several=True, match="any", ignore_case=True),
    "not-contains": _text_metric("not_contains"),
    "not-contains-any": _text_metric("not_contains", several=True),
    "not-icontains": _text_metric("not_contains", ignore_case=True),
    "not-icontains-any": _text_metric("not_contains", several=True, ignore_case=True),
    "starts-with": _pattern(r"\A", is_text=True),
    "not-starts-with": _pattern(r"\A", is_text=True, is_refused=True),
    "not-equals": _pattern(r"\A", is_text=True, is_refused=True, suffix=r"\Z"),
    "regex": _pattern("", is_text=False),
    "not-regex": _pattern("", is_text=False, is_refused=True),
    "is-json": _json_schema,
    "contains-json": partial(_json_schema, allow_fenced=True),
    "similar": _measured("semantic_similarity", 0.75),
    "bleu": _measured("bleu", 0.5),
    "rouge-n": _measured("rouge", 0.75, variant="rouge1"),
    "meteor": _measured("meteor", 0.5),
    "latency": _latency,
    "llm-rubric": _rubric,
    "model-graded-closedqa": _rubric,
    "not-llm-rubric": _refused_rubric,
    "not-model-graded-closedqa": _refused_rubric,
    "g-eval": _g_eval,
    "answer-relevance": _rag("answer_relevancy"),
    "context-faithfulness": _rag("faithfulness"),
    "context-recall": _rag("contextual_recall"),
    "context-relevance": _rag("contextual_relevancy"),
    "trajectory:tool-used": _tools_used,
    "tool-call-f1": _only_tools,
}
_IN_CODE = (
    *("javascript", "python", "not-javascript", "not-python", "ruby", "webhook"),
    *("not-is-json", "not-contains-json"),
)
_INSTEAD = {
    **dict.fromkeys(_IN_CODE, "write it in Python, as 'metric: module:callable'"),
    "cost": "'max_cost' limits what the whole run costs",
    "factuality": "write a question of a metric of the type 'judge'",
}
"""What to write instead of assertions without an equivalent."""


KEYS = ("prompts", "providers", "tests", "defaultTest", "scenarios", "targets")
"""Keys by which a configuration is recognized."""
_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")
_TEST_KEYS = {"vars", "assert", "description"}
_HARMLESS_KEYS = {"metadata", "threshold"}
"""Keys of a test without which it is at least as strict; the others may change its meaning."""
_HARMLESS_TOP_KEYS = {"$schema", "env", "metadata", "outputPath", "sharing", "tags"}
"""Keys of a configuration that say nothing of what is tested; the others may, as `scenarios`."""
_MAX_COMBINATIONS = 1000


@dataclass(frozen=True)
class _Prompt:
    text: str | list[Any]
    """The template; a list of messages for a prompt of a chat."""
    path: KeyPath
    label: str | None = None


class _Unfilled(Exception):
    """A template that cannot be filled in; the message says why."""


class PromptfooReader:
    """Adds a case for each test and prompt, and notes everything else in the configuration."""

    def __init__(self, source: Source, folder: Path, imported: Imported) -> None:
        self._source, self._folder, self._imported = source, folder, imported
        self._data = source.data()
        self._todo: list[str] = []
        """What every case lacks."""
        default = self._data.get("defaultTest")
        self._default: Mapping[str, Any] = default if isinstance(default, Mapping) else {}

    def read(self) -> None:
        """Read the prompts, then the tests with each of them."""
        self._note_other_keys()
        self._note_unknown(self._default, ("defaultTest",))
        prompts = list(self._prompts())
        tests = self._data.get("tests")
        if tests is not None and not isinstance(tests, list):
            self._note(("tests",), f"tests in {tests!r} are not imported; write them as a list")
            return
        for index, test in enumerate(tests or []):
            path: KeyPath = ("tests", index)
            if not isinstance(test, Mapping):
                self._note(path, f"the test is not imported: {test!r}")
                continue
            self._note_unknown(test, path)
            self._add_tests(test, path, prompts)

    def _note(self, path: KeyPath, text: str) -> None:
        self._imported.note(self._location(path), text)

    def _location(self, path: KeyPath) -> str:
        return self._source.location(path).rpartition(":")[0]

    def _todo_for(self, path: KeyPath) -> str:
        return f"make up for {path[-1]!r} of {self._location(path)}, which is not imported"

    def _note_other_keys(self) -> None:
        for key, value in self._data.items():
            if key in {"prompts", "tests", "description"} or value is self._default:
                continue
            if key in {"providers", "targets"} and isinstance(value, list | str):
                for index, provider in enumerate([value] if isinstance(value, str) else value):
                    name = provider
                    if isinstance(provider, Mapping):
                        name = provider.get("id") or next(iter(provider), "?")
                    text = f"the provider {name!r} is not imported; agent.yaml names the agent"
                    self._note((key,) if isinstance(value, str) else (key, index), text)
                continue
            self._note((key,), f"{key!r} is not imported")
            if key not in _HARMLESS_TOP_KEYS:
                self._todo.append(self._todo_for((key,)))

    def _note_unknown(self, test: Mapping[str, Any], path: KeyPath) -> None:
        for key in test:
            if key not in _TEST_KEYS:
                self._note((*path, key), f"{key!r} of a test is not imported")

    def _prompts(self) -> Iterator[_Prompt]:
        written = self._data.get("prompts")
        single = isinstance(written, str)
        for index, prompt in enumerate([written] if single else written or []):
            path: KeyPath = ("prompts",) if single else ("prompts", index)
            label, text = None, prompt
            if isinstance(prompt, Mapping):
                label = prompt.get("label") or prompt.get("id")
                text = prompt.get("raw", prompt.get("id"))
                for key in prompt:
                    if key not in {"label", "id", "raw"}:
                        self._note((*path, key), f"{key!r} of a prompt is not imported")
            if not isinstance(text, str):
                self._note(path, "the prompt is not imported: it is no text")
                continue
            try:
                texts = self._texts_of(text)
            except (ConfigError, OSError, ValueError) as error:
                self._note(path, f"the prompt {text!r} is not imported: {error}")
                continue
            yield from (_Prompt(_as_chat(text), path, label) for text in texts)

    def _texts_of(self, written: str) -> list[str]:
        """Return the prompts of an entry, which may name a file. Raises ConfigError."""
        is_file = written.startswith("file://") or re.fullmatch(r"\S+\.\w{2,4}", written)
        if not is_file:
            return [written]
        name = written.removeprefix("file://")
        if Path(name).suffix not in {".txt", ".md", ".json"}:
            raise ConfigError(name, "only prompts in .txt, .md and .json files are read")
        text = file_inside(name, self._folder).read_text(encoding="utf-8")
        if Path(name).suffix == ".json":
            return [text]
        return [part.strip() for part in re.split(r"(?m)^---\s*$", text) if part.strip()]

    def _add_tests(self, test: Mapping[str, Any], path: KeyPath, prompts: list[_Prompt]) -> None:
        variables = {**_mapping(self._default.get("vars")), **_mapping(test.get("vars"))}
        lists = {key: value for key, value in variables.items() if isinstance(value, list)}
        combinations = list(
            itertools.islice(itertools.product(*lists.values()), _MAX_COMBINATIONS + 1)
        )
        if len(combinations) > _MAX_COMBINATIONS:
            self._note(path, f"not imported: more than {_MAX_COMBINATIONS} combinations of 'vars'")
            return
        for combination in combinations:
            values = {**variables, **dict(zip(lists, combination, strict=True))}
            for prompt in prompts:
                self._add_case(test, path, prompt, values)

    def _add_case(
        self, test: Mapping[str, Any], path: KeyPath, prompt: _Prompt, values: Mapping[str, Any]
    ) -> None:
        location = self._location(path)
        try:
            filled = _filled(prompt.text, values)
        except _Unfilled as error:
            text = f"the prompt is not imported for the test at {location}: {error}"
            self._note(prompt.path, text)
            return
        name = str(test["description"]) if test.get("description") else None
        messages = filled if isinstance(filled, list) else [{"role": "user", "content": filled}]
        before = len(self._imported.cases)
        self._imported.add(location, ((location, message) for message in messages), name)
        for case in self._imported.cases[before:]:
            if prompt.label is not None:
                case.tags.append(str(prompt.label))
            case.todo += self._todo
            self._add_checks(case, self._default, ("defaultTest",), values)
            self._add_checks(case, test, path, values)

    def _add_checks(
        self,
        case: ImportedCase,
        test: Mapping[str, Any],
        path: KeyPath,
        values: Mapping[str, Any],
    ) -> None:
        left_out = test.keys() - _TEST_KEYS - _HARMLESS_KEYS
        case.todo += [self._todo_for((*path, key)) for key in left_out]
        written, at = test.get("assert"), (*path, "assert")
        if written is not None and not isinstance(written, list):
            self._leave_todo(case, at, f"the assertions are not imported: {written!r}")
            return
        self._add_each(case, written or [], at, values)

    def _add_each(
        self, case: ImportedCase, written: list[Any], path: KeyPath, values: Mapping[str, Any]
    ) -> None:
        """Add the assertions of a list, and those of the sets in it, all of which must pass."""
        for index, assertion in enumerate(written):
            at = (*path, index)
            inner = assertion.get("assert") if isinstance(assertion, Mapping) else None
            if isinstance(inner, list) and assertion.get("type") == "assert-set":
                for key in (key for key in assertion if key not in {"type", "assert"}):
                    self._note((*at, key), f"{key!r} of a set is left out: every check must pass")
                self._add_each(case, inner, (*at, "assert"), values)
            else:
                self._add_check(case, assertion, at, values)

    def _add_check(
        self, case: ImportedCase, assertion: object, path: KeyPath, values: Mapping[str, Any]
    ) -> None:
        if not isinstance(assertion, Mapping):
            self._leave_todo(case, path, f"the assertion is not imported: {assertion!r}")
            return
        try:
            made = translate(_filled(dict(assertion), values))
        except _Unfilled as error:
            made = f"the assertion is not imported: {error}"
        if isinstance(made, str):
            self._leave_todo(case, path, made)
            return
        for key, why in _IGNORED_KEYS.items():
            if key in assertion:
                self._note(path, f"{key!r} is left out: {why}")
        keys = made.pop("case", {})
        if made.get("type") == "rag" and isinstance(values.get("context"), str):
            keys["retrieval_context"] = [values["context"]]  # where promptfoo reads it
        known = case.keys.get("ground_truth")
        if known not in {None, keys.get("ground_truth", known)}:
            text = f"the assertion {assertion['type']!r} is not imported: the right answer is"
            self._leave_todo(case, path, f"{text} {known!r} already")
            return
        case.keys |= {**keys, **_joined_tools(case.keys, keys)}
        if "criterion" in made:
            case.criteria.append(made["criterion"])
        elif made:
            case.evaluations.append(made)

    def _leave_todo(self, case: ImportedCase, path: KeyPath, problem: str) -> None:
        """Note an assertion that is not imported; its case cannot pass until it is written."""
        self._note(path, problem)
        case.todo.append(f"write an expectation for {self._location(path)} ({problem})")


def _joined_tools(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the expected tools of several assertions, each once; empty if there are none."""
    tools = [tool for part in parts for tool in part.get("expected_tools", ())]
    unique = [tool for index, tool in enumerate(tools) if tool not in tools[:index]]
    return {"expected_tools": unique} if unique else {}


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _as_chat(text: str) -> str | list[Any]:
    """Return the messages of a prompt of a chat, which is JSON; else the text."""
    if text.lstrip().startswith("["):
        try:
            messages = json.loads(text)
        except ValueError:
            return text
        if isinstance(messages, list) and all(isinstance(item, Mapping) for item in messages):
            return messages
    return text


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """Return a template with the variables filled in. Raises _Unfilled."""
    if isinstance(value, Mapping):
        return {key: _filled(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name not in values:
            raise _Unfilled(f"no variable {name!r} is given")
        if isinstance(values[name], Mapping | list):
            return json.dumps(values[name])
        text = str(values[name])
        if text.startswith("file://"):
            raise _Unfilled(f"the variable {name!r} is in {text}")
        return text

    if _TEMPLATE.search(_VARIABLE.sub("", value)):
        raise _Unfilled("it has filters or statements of a template")
    return _VARIABLE.sub(fill, value)
