"""The pytest plugin: a marker, a summary of scenarios, and agents and suites as test files.

Its functions import what they need: a test run without agents imports only this module.
"""

from __future__ import annotations

import fnmatch
import linecache
import os
import re
import warnings
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holodeck.lib.conversation.result_listeners import FrameworkOutcomes, add_result_listener

if TYPE_CHECKING:
    from holodeck.scenario.pytest_plugin import ScenarioReporter

Row = dict[str, Any]
"""A scenario in the summary, in plain values, because it may come from another process."""

MEANINGS: FrameworkOutcomes = {
    pytest.fail.Exception: "failed",
    pytest.skip.Exception: "skipped",
    pytest.xfail.Exception: "skipped",
    pytest.exit.Exception: "skipped",
}
"""The status of a scenario that raises this in its test."""
FLAKY = ("outcome", "flaky")
"""The property of a test whose case is flaky."""
_HAS_CASES = re.compile(
    r"""^["']?(test_?cases?(_?file)?|suites?|scenarios?|backend)["']?\s*:""", re.MULTILINE
)
"""Also matches misspelled keys, so that reading the file reports them."""
_SUFFIXES = frozenset({".yaml", ".yml"})
_SUFFIX = re.compile(r"\.ya?ml$", re.IGNORECASE)
_NEVER_RUN = re.compile(r"coroutine '(scenario\.a?run|ScriptRun\.run)' was never awaited")
_NO_TEST = "while no test ran"
_KEY = pytest.StashKey["Scenarios"]()


class Scenarios:
    """The scenarios of a pytest session."""

    def __init__(self) -> None:
        self.new: list[Row] = []
        """Those of the present phase of a test in this process."""
        self.reported: list[tuple[str, Row]] = []
        """Those of all processes, each with its test."""
        self.never_run: list[str] = []
        """The tests that created a scenario and never awaited it."""
        self.reporter: ScenarioReporter | None = None
        """Keeps all results; None while no test asks for it."""
        self._known: set[str] = set()

    def note(self, name: str, result: Any) -> None:
        """Add a result; only the first result of a scenario run counts."""
        if result.scenario_run_id in self._known:
            return
        self._known.add(result.scenario_run_id)
        if self.reporter is not None:
            from holodeck.scenario.pytest_plugin import ReportedScenario

            self.reporter.add_result(ReportedScenario(name), result)
        self.new.append(
            {
                "name": name,
                "status": "skipped" if result.reason_code == "skipped" else result.status,
                "seconds": result.total_time or 0.0,
                "agent_seconds": result.agent_time or 0.0,
                "passed_criteria": len(result.passed_criteria),
                "criteria": len(result.criteria),
                "reason": "" if result.status == "passed" else (result.reasoning or ""),
            }
        )

    def start_reporter(self) -> ScenarioReporter:
        """Return what keeps all results from now on."""
        if self.reporter is None:
            from holodeck.scenario.pytest_plugin import ScenarioReporter

            self.reporter = ScenarioReporter()
        return self.reporter

    def take(self) -> list[Row]:
        """Return the new scenarios, each once."""
        # Each on its own, because another thread may add to them meanwhile.
        return [self.new.pop(0) for _ in range(len(self.new))]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "holodeck_files",
        "patterns of agent.yaml and suite files to collect wherever pytest looks for tests",
        type="args",
        default=[],
    )
    group = parser.getgroup("holodeck")
    group.addoption(
        "--holodeck-agent",
        metavar="FILE",
        help="the agent.yaml for suite files; default: the nearest beside or above each",
    )
    group.addoption(
        "--holodeck-debug",
        action="store_true",
        help="type messages in place of simulated users; implies -s",
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    if early_config.known_args_namespace.holodeck_debug:
        # This is the last moment to switch capturing off.
        early_config.known_args_namespace.capture = "no"
    yield


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "agent_test: tests an agent; select with -m agent_test")
    scenarios = config.stash[_KEY] = Scenarios()
    config.add_cleanup(add_result_listener(scenarios.note, MEANINGS))
    if config.getoption("holodeck_debug"):
        config.add_cleanup(_start_debugging(config))


def _start_debugging(config: pytest.Config) -> Callable[[], None]:
    """Debug all scenarios from now on; return a function that ends it. Raises UsageError."""
    if hasattr(config, "workerinput") or config.getoption("numprocesses", 0):
        raise pytest.UsageError("--holodeck-debug runs one test at a time; remove -n")
    from holodeck.lib.ui.conversation import find_missing_terminal
    from holodeck.scenario.config import ScenarioConfig

    missing = find_missing_terminal()
    if missing is not None:
        raise pytest.UsageError(f"--holodeck-debug needs a terminal, and {missing} is not one")
    before = ScenarioConfig.default_config
    ScenarioConfig.configure(debug=True)

    def end() -> None:
        ScenarioConfig.default_config = before

    return end


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix.lower() not in _SUFFIXES:
        return None
    is_named = _is_named(file_path, parent.session)
    if not _is_wanted(file_path, parent.config, is_named=is_named):
        return None
    from holodeck.config.cases.suite_files import is_suite_file
    from holodeck.pytest_plugin.agent_file import CollectedAgentFile, CollectedSuiteFile

    kind = CollectedSuiteFile if is_suite_file(file_path) else CollectedAgentFile
    file: pytest.Collector = kind.from_parent(parent, path=file_path, is_named=is_named)
    return file


def _is_wanted(path: Path, config: pytest.Config, *, is_named: bool) -> bool:
    """Return whether the command line or a pattern of the configuration names the file.

    Other files are not collected: running an agent could cost money.
    """
    if any(_matches(path, pattern) for pattern in config.getini("holodeck_files")):
        return True
    if not is_named:
        return False
    if path.name == "agent.yaml" or path.stem.endswith(".suite"):
        return True
    return _HAS_CASES.search(path.read_text(encoding="utf-8", errors="replace")) is not None


def _matches(path: Path, pattern: str) -> bool:
    return fnmatch.fnmatch(path.name, pattern) or path.match(pattern)


def _check_patterns(config: pytest.Config) -> None:
    """Raise UsageError for a pattern of `holodeck_files` that matches no file.

    Without paths on the command line, a file must be where pytest looks for tests; with paths, it
    may be anywhere below the root.
    """
    missing = list(config.getini("holodeck_files"))
    if not missing:
        return
    is_narrowed = config.args_source is pytest.Config.ArgsSource.ARGS
    is_whole = not is_narrowed and config.invocation_params.dir == config.rootpath
    folders = [Path(arg) for arg in config.args] if is_whole else [config.rootpath]
    seen: set[str] = set()
    for path in _yaml_files(folders, config.getini("norecursedirs")):
        missing = [pattern for pattern in missing if not _matches(path, pattern)]
        if not missing:
            return
        seen.add(path.name)
    searched = ", ".join(os.path.relpath(folder, config.rootpath) for folder in folders)
    from holodeck.lib.support.text import did_you_mean

    hint = did_you_mean(missing[0], sorted(seen))
    raise pytest.UsageError(f"holodeck_files: {missing[0]!r} matches no file in {searched}{hint}")


def _yaml_files(folders: list[Path], ignored: list[str]) -> Iterator[Path]:
    for top in folders:
        for parent, subfolders, files in os.walk(top):
            subfolders[:] = [
                subfolder
                for subfolder in subfolders
                if not any(fnmatch.fnmatch(subfolder, pattern) for pattern in ignored)
            ]
            yield from (Path(parent, file) for file in files if _SUFFIX.search(file))


def _is_named(path: Path, session: pytest.Session) -> bool:
    """Return whether the command line names the file, perhaps beside a folder that contains it.

    In the latter case pytest itself does not know it.
    """
    config = session.config
    names = (Path(config.invocation_params.dir, arg.partition("::")[0]) for arg in config.args)
    # as pytest has them: without `..`, with links, which resolve() would follow
    return session.isinitpath(path) or str(path) in map(os.path.abspath, names)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the reporter before the first test if a test asks for it."""
    if any("scenario_reporter" in getattr(item, "fixturenames", ()) for item in session.items):
        session.config.stash[_KEY].start_reporter()


@pytest.fixture
def scenario_reporter(request: pytest.FixtureRequest) -> ScenarioReporter:
    """The results of all scenarios of this session so far, and a summary of them."""
    return request.config.stash[_KEY].start_reporter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    rows = report.__dict__["holodeck"] = item.config.stash[_KEY].take()
    if rows or item.get_closest_marker("agent_test"):
        _clean(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if collector.path.suffix.lower() in _SUFFIXES:
        _clean(report)
    return report


def _clean(report: pytest.TestReport | pytest.CollectReport) -> None:
    from holodeck.pytest_plugin.output import clean_report

    clean_report(report)


def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Count a flaky case separately; it fails nothing."""
    if report.when == "call" and report.passed and FLAKY in map(tuple, report.user_properties):
        return "flaky", "f", ("FLAKY", {"yellow": True})
    return None


class _ReportCollector:
    """Collects scenarios from reports, also those of other processes."""

    def __init__(self, scenarios: Scenarios) -> None:
        self._scenarios = scenarios

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        has_passed = report.when == "call" and report.passed
        for row in getattr(report, "holodeck", []):
            is_ignored = has_passed and row["status"] in {"failed", "error"}
            test = f"{report.nodeid}, which passed anyway" if is_ignored else report.nodeid
            self._scenarios.reported.append((test, row))

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, nodeid: str
    ) -> None:
        from holodeck.lib.support.text import inert

        text = str(warning_message.message)
        if inert(text) != text:  # pytest prints it, and libraries quote what an agent said
            warning_message.message = Warning(inert(text))
        place = (warning_message.filename, warning_message.lineno)
        # pytest prints the line of the source, too
        warning_message.line = inert(linecache.getline(*place).strip(), keep_newlines=False)
        warning_message.filename = inert(place[0], keep_newlines=False)
        if _NEVER_RUN.search(text):
            self._scenarios.never_run.append(nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the scenarios that ended in a process of pytest-xdist after its last test."""
        rows = getattr(node, "workeroutput", {}).get("holodeck", [])
        self._scenarios.reported.extend((_NO_TEST, row) for row in rows)


def pytest_sessionstart(session: pytest.Session) -> None:
    collector = _ReportCollector(session.config.stash[_KEY])
    session.config.pluginmanager.register(collector, "holodeck-reports")
    if not hasattr(session.config, "workerinput"):
        _check_patterns(session.config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Add scenarios that ended after the last test; fail a session whose scenario never ran."""
    config: Any = session.config
    scenarios: Scenarios = config.stash[_KEY]
    rows = scenarios.take()
    if hasattr(config, "workerinput"):
        config.workeroutput["holodeck"] = rows
        return
    scenarios.reported.extend((_NO_TEST, row) for row in rows)
    if scenarios.never_run and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    rows, never_run = config.stash[_KEY].reported, config.stash[_KEY].never_run
    if rows or never_run:
        from holodeck.pytest_plugin.output import write_summary

        write_summary(terminalreporter, rows, [nodeid or _NO_TEST for nodeid in never_run])
