"""Test cases from a configuration of promptfoo."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holodeck.config.source import KeyPath, Source
from holodeck.errors import ConfigError
from holodeck.lib.case_import.case import Imported, ImportedCase
from holodeck.lib.case_import.messages import ConversationReader
from holodeck.lib.case_import.promptfoo_asserts import translate
from holodeck.lib.support.safe_paths import file_inside

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


def read_promptfoo(source: Source, folder: Path, imported: Imported) -> None:
    """Add a case for each test and prompt, and note everything else in the configuration."""
    _Reader(source, folder, imported).read()


class _Reader:
    def __init__(self, source: Source, folder: Path, imported: Imported) -> None:
        self._source, self._folder, self._imported = source, folder, imported
        self._data = source.data()
        self._todo: list[str] = []
        """What every case lacks."""

    def read(self) -> None:
        """Read the prompts, then the tests with each of them."""
        self._note_other_keys()
        default = self._data.get("defaultTest")
        default = default if isinstance(default, Mapping) else {}
        self._note_unknown(default, ("defaultTest",))
        prompts = list(self._prompts())
        tests = self._data.get("tests")
        if not isinstance(tests, list):
            if tests is not None:
                self._note(("tests",), f"tests in {tests!r} are not imported; write them as a list")
            return
        for index, test in enumerate(tests):
            path: KeyPath = ("tests", index)
            if not isinstance(test, Mapping):
                self._note(path, f"the test is not imported: {test!r}")
                continue
            self._note_unknown(test, path)
            self._add_tests(test, default, path, prompts)

    def _note(self, path: KeyPath, text: str) -> None:
        self._imported.note(self._location(path), text)

    def _location(self, path: KeyPath) -> str:
        return self._source.location(path).rpartition(":")[0]

    def _todo_for(self, path: KeyPath) -> str:
        return f"make up for {path[-1]!r} of {self._location(path)}, which is not imported"

    def _note_other_keys(self) -> None:
        for key, value in self._data.items():
            if key in {"prompts", "tests"} or (key == "defaultTest" and isinstance(value, Mapping)):
                continue
            if key == "description":
                continue
            if key in {"providers", "targets"} and isinstance(value, list | str):
                self._note_providers(key, value)
            else:
                self._note((key,), f"{key!r} is not imported")
                if key not in _HARMLESS_TOP_KEYS:
                    self._todo.append(self._todo_for((key,)))

    def _note_providers(self, key: str, value: list[Any] | str) -> None:
        for index, one in enumerate([value] if isinstance(value, str) else value):
            name = one
            if isinstance(one, Mapping):
                name = one.get("id") or next(iter(one), "?")
            path = (key,) if isinstance(value, str) else (key, index)
            self._note(path, f"the provider {name!r} is not imported; agent.yaml names the agent")

    def _note_unknown(self, test: Mapping[str, Any], path: KeyPath) -> None:
        for key in test:
            if key not in _TEST_KEYS:
                self._note((*path, key), f"{key!r} of a test is not imported")

    def _prompts(self) -> Iterator[_Prompt]:
        written = self._data.get("prompts")
        single = isinstance(written, str)
        for index, one in enumerate([written] if single else written or []):
            path: KeyPath = ("prompts",) if single else ("prompts", index)
            label = None
            if isinstance(one, Mapping):
                label = one.get("label") or one.get("id")
                for key in one:
                    if key not in {"label", "id", "raw"}:
                        self._note((*path, key), f"{key!r} of a prompt is not imported")
            text = one.get("raw", one.get("id")) if isinstance(one, Mapping) else one
            if not isinstance(text, str):
                self._note(path, "the prompt is not imported: it is no text")
                continue
            try:
                texts = self._texts_of(text)
            except (ConfigError, OSError, ValueError) as error:
                self._note(path, f"the prompt {text!r} is not imported: {error}")
                continue
            yield from (_Prompt(_as_chat(found), path, label) for found in texts)

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
        return [one.strip() for one in re.split(r"(?m)^---\s*$", text) if one.strip()]

    def _add_tests(
        self,
        test: Mapping[str, Any],
        default: Mapping[str, Any],
        path: KeyPath,
        prompts: list[_Prompt],
    ) -> None:
        variables = {**_mapping(default.get("vars")), **_mapping(test.get("vars"))}
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
                self._add_case(test, default, path, prompt, values)

    def _add_case(
        self,
        test: Mapping[str, Any],
        default: Mapping[str, Any],
        path: KeyPath,
        prompt: _Prompt,
        values: Mapping[str, Any],
    ) -> None:
        try:
            filled = _filled(prompt.text, values)
        except _Unfilled as error:
            self._note(
                prompt.path,
                f"the prompt is not imported for the test at {self._location(path)}: {error}",
            )
            return
        description = test.get("description")
        name = str(description) if description else None
        messages = filled if isinstance(filled, list) else [{"role": "user", "content": filled}]
        before = len(self._imported.cases)
        location = self._location(path)
        ConversationReader(location, self._imported, name).read((location, one) for one in messages)
        for case in self._imported.cases[before:]:
            if prompt.label is not None:
                case.tags.append(str(prompt.label))
            case.todo += self._todo
            owners: tuple[tuple[Mapping[str, Any], KeyPath], ...]
            owners = ((default, ("defaultTest",)), (test, path))
            for owner, at in owners:
                left_out = owner.keys() - _TEST_KEYS - _HARMLESS_KEYS
                case.todo += [self._todo_for((*at, key)) for key in left_out]
                self._add_checks(case, owner.get("assert"), (*at, "assert"), values)

    def _add_checks(
        self, case: ImportedCase, written: object, path: KeyPath, values: Mapping[str, Any]
    ) -> None:
        for index, one in enumerate(written if isinstance(written, list) else []):
            at = (*path, index)
            if not isinstance(one, Mapping):
                self._leave_todo(case, at, f"the assertion is not imported: {one!r}")
                continue
            try:
                found = translate(_filled(dict(one), values))
            except _Unfilled as error:
                self._leave_todo(case, at, f"the assertion is not imported: {error}")
                continue
            for note in found.notes:
                self._note(at, note)
            if found.problem is not None:
                self._leave_todo(case, at, found.problem)
            if found.metric is not None:
                case.evaluations.append(found.metric)
            if found.criterion is not None:
                case.criteria.append(found.criterion)
        if written is not None and not isinstance(written, list):
            self._leave_todo(case, path, f"the assertions are not imported: {written!r}")

    def _leave_todo(self, case: ImportedCase, path: KeyPath, problem: str) -> None:
        """Note an assertion that is not imported; its case cannot pass until it is written."""
        self._note(path, problem)
        case.todo.append(f"write an expectation for {self._location(path)} ({problem})")


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _as_chat(text: str) -> str | list[Any]:
    """Return the messages of a prompt of a chat, which is JSON; else the text."""
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except ValueError:
            return text
        if isinstance(found, list) and all(isinstance(one, Mapping) for one in found):
            return found
    return text


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    """Return a template with the variables filled in. Raises _Unfilled."""
    if isinstance(value, Mapping):
        return {key: _filled(one, values) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, values) for one in value]
    if not isinstance(value, str):
        return value

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        if name not in values:
            raise _Unfilled(f"no variable {name!r} is given")
        found = values[name]
        if isinstance(found, Mapping | list):
            return json.dumps(found)
        text = str(found)
        if text.startswith("file://"):
            raise _Unfilled(f"the variable {name!r} is in {text}")
        return text

    if _TEMPLATE.search(_VARIABLE.sub("", value)):
        raise _Unfilled("it has filters or statements of a template")
    return _VARIABLE.sub(fill, value)
