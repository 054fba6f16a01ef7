"""An agent.yaml or a suite file as a test file: each of its cases is a test."""

import asyncio
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from holodeck.config.cases.suite_files import find_agent_above
from holodeck.config.cases.suites import suite_name
from holodeck.config.checks.agent import check, raise_on_errors
from holodeck.config.loader import load_agent_with_config
from holodeck.config.secrets import collect
from holodeck.errors import ConfigError, HoloDeckError
from holodeck.lib.conversation.events import new_id
from holodeck.lib.conversation.result_listeners import notify_result_listeners
from holodeck.lib.processes.process_exit import process_exit_forbidden
from holodeck.lib.processes.threads import RunLoop
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.text import inert
from holodeck.lib.test_runner.events import scenario_result_of
from holodeck.lib.test_runner.progress import RunDisplay
from holodeck.lib.test_runner.session import SessionAgent, TestSession
from holodeck.models.agent import Agent
from holodeck.models.results.outcome import Reason


class CaseFailed(Exception):
    """A case did not pass; the message contains the reasons."""

    def __init__(self, reasons: Sequence[Reason]) -> None:
        short, long = [], []
        for reason in reasons:
            short.append(str(reason))
            long.append(str(reason))
            if reason.raised is not None:
                short += [f"  {line}" for line in reason.raised.excerpt]
                long += [f"  {line}" for line in reason.raised.details[:-1]]
        super().__init__("\n".join(short))
        self.details = "\n".join(long)
        """The reasons, with tracebacks of the user's code instead of a few lines of it."""


@dataclass(frozen=True)
class TestedAgent:
    """An agent with some of its cases, and what hides its secrets."""

    __test__ = False

    tested: SessionAgent
    redactor: Redactor

    @classmethod
    def read(cls, path: str, suites: Sequence[Path] = ()) -> "TestedAgent":
        """Read an agent, with the cases of further suites. Raises HoloDeckError."""
        agent, settings, loader = load_agent_with_config(path, suites=suites)
        secrets = collect(agent, loader.environment(agent.base_dir))
        return cls(SessionAgent(path, agent, settings), Redactor(secrets))

    @property
    def agent(self) -> Agent:
        return self.tested.agent

    def with_cases(self, indexes: Sequence[int]) -> "TestedAgent":
        """Return the agent with some of its cases."""
        agent = self.agent.with_cases(indexes)
        return replace(self, tested=replace(self.tested, agent=agent))

    def indexes_by_suite(self) -> dict[str | None, list[int]]:
        """Return the indexes of the cases of each suite; None has those without a suite."""
        indexes: dict[str | None, list[int]] = {}
        for index, case in enumerate(self.agent.test_cases or []):
            indexes.setdefault(case.suite, []).append(index)
        return indexes


class CollectedAgentFile(pytest.File):
    """An agent.yaml.

    Args:
        is_named: Whether the command line names it; then it must have test cases.
    """

    def __init__(self, *, is_named: bool, path: Path, parent: Any, **given: Any) -> None:
        name = inert(path.name, keep_newlines=False)
        if name != path.name:  # pytest would print it as it is
            given["nodeid"] = f"{parent.nodeid}/{name}".removeprefix("/")
        super().__init__(path=path, parent=parent, **given)
        self._is_named = is_named

    def collect(self) -> Iterator["CasesOfSuite | AgentCase"]:
        try:
            loaded = self._load_agent()
            findings = check(loaded.agent)
            raise_on_errors(findings)
        except HoloDeckError as error:
            raise self.CollectError(f"{self.path.name}: {error}") from error
        if loaded.tested.settings.has_budget:
            message = "its budget is ignored, as each case is a run of its own in pytest"
            self._warn(f"{self.path.name}: {message}; use 'holodeck test'")
        for finding in findings:
            self._warn(str(finding))
        if not loaded.agent.test_cases and self._is_named:
            raise self.CollectError(f"{self.path.name}: it has no test cases")
        yield from self._cases(loaded)

    def _warn(self, text: str) -> None:
        file = inert(str(self.path), keep_newlines=False)
        warnings.warn_explicit(pytest.PytestWarning(inert(text)), None, file, lineno=1)

    def _load_agent(self) -> TestedAgent:
        """Read the agent. Raises HoloDeckError."""
        return TestedAgent.read(str(self.path))

    def _cases(self, loaded: TestedAgent) -> Iterator["CasesOfSuite | AgentCase"]:
        for suite, indexes in loaded.indexes_by_suite().items():
            some = loaded.with_cases(indexes)
            if suite is None:
                yield from _build_tests(self, some)
            else:
                name = inert(suite, keep_newlines=False)
                yield CasesOfSuite.from_parent(self, name=name, loaded=some)


class CollectedSuiteFile(CollectedAgentFile):
    """A suite file.

    Its agent is that of `--holodeck-agent`, else the nearest agent.yaml beside or above the file.
    """

    def _load_agent(self) -> TestedAgent:
        named = self.config.getoption("holodeck_agent")
        agent = find_agent_above(self.path)
        if named is not None:
            agent = str(self.config.invocation_params.dir / named)
        if agent is None:
            raise ConfigError(
                self.path.name,
                "is a suite, and neither its folder nor one above has an agent.yaml;"
                " write one there, or name one: --holodeck-agent FILE",
            )
        return TestedAgent.read(agent, [self.path])

    def _cases(self, loaded: TestedAgent) -> Iterator["CasesOfSuite | AgentCase"]:
        indexes = loaded.indexes_by_suite()[suite_name(self.path)]
        yield from _build_tests(self, loaded.with_cases(indexes))


class CasesOfSuite(pytest.Collector):
    """The cases of a suite of an agent.yaml."""

    def __init__(self, *, loaded: TestedAgent, **given: Any) -> None:
        super().__init__(**given)
        self._loaded = loaded

    def collect(self) -> Iterator["AgentCase"]:
        yield from _build_tests(self, self._loaded)


def _build_tests(parent: pytest.Collector, loaded: TestedAgent) -> Iterator["AgentCase"]:
    """Yield a test for each case, each with a unique name."""
    seen: Counter[str] = Counter()
    for index, case in enumerate(loaded.agent.test_cases or []):
        name = inert(case.name or f"case {index + 1}", keep_newlines=False)
        seen[name] += 1
        unique = name if seen[name] == 1 else f"{name} ({seen[name]})"
        yield AgentCase.from_parent(parent, name=unique, loaded=loaded.with_cases([index]))


class AgentCase(pytest.Item):
    """One test case."""

    def __init__(self, *, loaded: TestedAgent, **given: Any) -> None:
        super().__init__(**given)
        self._loaded = loaded
        self.add_marker("agent_test")

    def runtest(self) -> None:
        redactor = self._loaded.redactor
        session = TestSession(
            [self._loaded.tested],
            redactor,
            RunDisplay(redactor.redact),
            is_checked=True,  # when its file was collected
            debug=bool(self.config.getoption("holodeck_debug")),
        )
        with process_exit_forbidden(), asyncio.Runner(loop_factory=RunLoop) as runner:
            [result] = runner.run(session.execute()).results
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
            return f"{self.name}: {excinfo.value.details}"
        if isinstance(excinfo.value, CaseFailed | HoloDeckError):
            return f"{self.name}: {excinfo.value}"
        return super().repr_failure(excinfo, *given)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name
