"""An agent.yaml, or the file of a suite, as a file of tests: each of its cases is one."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from holodeck.config.cases.suites import suite_name
from holodeck.config.check import check, raise_on_errors
from holodeck.config.loader import load_agent_with_config
from holodeck.config.secrets import collect
from holodeck.config.suite_files import find_agent_above
from holodeck.errors import ConfigError, HoloDeckError
from holodeck.lib.conversation.events import new_id
from holodeck.lib.conversation.result_listeners import notify_result_listeners
from holodeck.lib.process_exit import process_exit_forbidden
from holodeck.lib.redact import Redactor
from holodeck.lib.test_runner.events import scenario_result_of, show_conversations
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.outcome import Reason


class CaseFailed(Exception):
    """A case did not pass; the message says why."""

    def __init__(self, reasons: Sequence[Reason]) -> None:
        super().__init__("\n".join(map(str, reasons)))
        lines = [(str(one), *_frames(one)) for one in reasons]
        self.in_full = "\n".join(line for group in lines for line in group)
        """The reasons with the frames of the user's code that raised them."""


def _frames(reason: Reason) -> list[str]:
    return [] if reason.raised is None else [f"  {one}" for one in reason.raised.traceback]


@dataclass(frozen=True)
class Subject:
    """Whom cases are put to, and how."""

    path: str
    agent: Agent
    settings: ExecutionConfig
    secrets: tuple[str, ...]
    """What no output may show."""

    @classmethod
    def read(cls, path: str, suites: Sequence[Path] = ()) -> "Subject":
        """The agent in a file, with the cases of more suites. Raises HoloDeckError."""
        agent, settings, loader = load_agent_with_config(path, suites=suites)
        secrets = collect(agent, loader.environment(agent.base_dir))
        return cls(path, agent, settings, tuple(secrets))

    def with_cases(self, places: Sequence[int]) -> "Subject":
        """The same with these of its cases."""
        return replace(self, agent=self.agent.with_cases(places))

    def places(self) -> dict[str | None, list[int]]:
        """Where the cases of each suite stand; of None, those without one."""
        found: dict[str | None, list[int]] = {}
        for place, case in enumerate(self.agent.test_cases or []):
            found.setdefault(case.suite, []).append(place)
        return found


class AgentFile(pytest.File):
    """An agent.yaml.

    Args:
        is_named: Whether it is named on the command line, so that it has to hold cases.
    """

    def __init__(self, *, is_named: bool, **given: Any) -> None:
        super().__init__(**given)
        self._is_named = is_named

    def collect(self) -> Iterator["CasesOfSuite | AgentCase"]:
        try:
            subject = self._subject()
            findings = check(subject.agent)
            raise_on_errors(findings)
        except HoloDeckError as error:
            raise self.CollectError(f"{self.path.name}: {error}") from error
        if subject.settings.has_budget:
            alone = "its budget is ignored, as each case is a run of its own in pytest"
            self.warn(pytest.PytestWarning(f"{self.path.name}: {alone}; use 'holodeck test'"))
        for finding in findings:
            self.warn(pytest.PytestWarning(str(finding)))
        if not subject.agent.test_cases and self._is_named:
            raise self.CollectError(f"{self.path.name}: it has no test cases")
        yield from self._cases(subject)

    def _subject(self) -> Subject:
        """Whom the cases are put to. Raises HoloDeckError."""
        return Subject.read(str(self.path))

    def _cases(self, subject: Subject) -> Iterator["CasesOfSuite | AgentCase"]:
        for suite, places in subject.places().items():
            some = subject.with_cases(places)
            if suite is None:
                yield from _tests(self, some)
            else:
                yield CasesOfSuite.from_parent(self, name=suite, subject=some)


class SuiteFile(AgentFile):
    """A file that holds a suite.

    The agent of `--holodeck-agent` answers, else the nearest agent.yaml beside or above the file.
    """

    def _subject(self) -> Subject:
        named = self.config.getoption("holodeck_agent")
        if named is not None:
            agent = self.config.invocation_params.dir / named
            return Subject.read(str(agent), [self.path])
        return Subject.read(self._nearest(), [self.path])

    def _nearest(self) -> str:
        """The agent.yaml of the file. Raises ConfigError."""
        agent = find_agent_above(self.path)
        if agent is None:
            raise ConfigError(
                self.path.name,
                "holds a suite, and neither its folder nor one above has an agent.yaml to answer;"
                " write one there, or name one: --holodeck-agent FILE",
            )
        return agent

    def _cases(self, subject: Subject) -> Iterator["CasesOfSuite | AgentCase"]:
        yield from _tests(self, subject.with_cases(subject.places()[suite_name(self.path)]))


class CasesOfSuite(pytest.Collector):
    """The cases of one suite of an agent.yaml."""

    def __init__(self, *, subject: Subject, **given: Any) -> None:
        super().__init__(**given)
        self._subject = subject

    def collect(self) -> Iterator["AgentCase"]:
        yield from _tests(self, self._subject)


def _tests(parent: pytest.Collector, subject: Subject) -> Iterator["AgentCase"]:
    """A test for each case, each with a name of its own."""
    seen: Counter[str] = Counter()
    for place, case in enumerate(subject.agent.test_cases or []):
        name = case.name or f"case {place + 1}"
        seen[name] += 1
        unique = name if seen[name] == 1 else f"{name} ({seen[name]})"
        yield AgentCase.from_parent(parent, name=unique, subject=subject.with_cases([place]))


class AgentCase(pytest.Item):
    """One test case."""

    def __init__(self, *, subject: Subject, **given: Any) -> None:
        super().__init__(**given)
        self._subject = subject
        self.add_marker("agent_test")

    def runtest(self) -> None:
        executor = TestExecutor(
            self._subject.path,
            agent_config=self._subject.agent,
            resolved_execution_config=self._subject.settings,
        )
        executor.is_checked = True  # when its file was collected
        if self.config.getoption("holodeck_debug"):
            executor.on_conversation = show_conversations(debug=True)
        with process_exit_forbidden():
            report = asyncio.run(executor.execute_tests())
        [result] = Redactor(self._subject.secrets).redact_report(report).results
        if result.skipped_by == "skip":
            pytest.skip(str(result.skip_reason))
        self.user_properties.append(("outcome", result.outcome.value))
        notify_result_listeners(
            self.name,
            scenario_result_of(result).model_copy(update={"scenario_run_id": new_id("case")}),
        )
        if not result.passed:
            raise CaseFailed(result.detailed_reasons())

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *given: Any) -> Any:
        if isinstance(excinfo.value, CaseFailed) and self.config.get_verbosity() > 0:
            return f"{self.name}: {excinfo.value.in_full}"
        if isinstance(excinfo.value, CaseFailed | HoloDeckError):
            return f"{self.name}: {excinfo.value}"
        return super().repr_failure(excinfo, *given)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name
