"""Run the same test cases on two agents, case by case, and compare the results."""

import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from holodeck.config.cases.suite_files import is_suite_file, is_yaml
from holodeck.config.checks.agent import check_before_run, log_findings
from holodeck.config.checks.findings import Finding
from holodeck.config.loader import ConfigLoader
from holodeck.config.prices import merge_prices
from holodeck.config.settings import with_case_settings
from holodeck.errors import BackendInitError, ConfigError, ExitCode
from holodeck.lib.compare.pairs import build_comparison, build_pair
from holodeck.lib.compare.trajectories import observed_names
from holodeck.lib.observability import names, span
from holodeck.lib.reports.against import (
    FailOn,
    comparison_exit_code,
    pair_lines,
    render_terminal,
)
from holodeck.lib.test_runner.scheduling.schedule import Lane, Schedule
from holodeck.lib.test_runner.session import RunSession
from holodeck.lib.ui.live import echo
from holodeck.lib.user_code.code_root import code_roots, imports_of
from holodeck.lib.user_code.registry import module_file
from holodeck.models.agent import AGENT_KEYS, BUILT_IN_BACKENDS, Agent
from holodeck.models.backend import PythonBackendConfig
from holodeck.models.base import KeyPath
from holodeck.models.config import ExecutionConfig
from holodeck.models.evaluation import EvaluationConfig
from holodeck.models.records.comparison import ComparedAgent, ComparisonReport, Pair, PairVerdict
from holodeck.models.test_result import TestReport

logger = logging.getLogger(__name__)

BACKEND_PREFIX = "backend="
"""Begins a value of `--against` that is no file."""
UNUSED_KEYS = ("test_cases", "names", "evaluations", "execution", "observability")
"""The keys of the second agent's file that a comparison takes from the file of the first."""


def with_tests_of(first: Agent, second: Agent, keys: tuple[str, ...] = AGENT_KEYS) -> Agent:
    """Return the second agent with the test cases, metrics and settings of the first.

    The test cases have the `names` of the second agent. Metrics without a model of their own are
    judged by the model that judges the first agent. `keys` are those that the second agent's own
    file contains. Raises ConfigError for prices in two currencies.
    """
    evaluations = first.evaluations
    if first.judge_model is not None:
        evaluations = evaluations or EvaluationConfig.model_construct(metrics=[])
        evaluations = evaluations.model_copy(update={"model": first.judge_model})
    shared = {
        "evaluations": evaluations,
        "prices": merge_prices([first.prices, second.prices]),
    }
    return first.with_names_of_second().model_copy(update=shared).with_agent_of(second, keys)


def unused_keys(first: Agent, second: Agent, settings: ExecutionConfig) -> list[str]:
    """Return the keys of the second agent that a comparison ignores although they differ.

    The cases of the first agent have the settings of the run written into them.
    """
    with suppress(ConfigError):  # such cases differ
        second = with_case_settings(second, settings)
    ours, theirs = (
        side.model_dump(include=set(UNUSED_KEYS), exclude_none=True) for side in (first, second)
    )
    return [key for key in UNUSED_KEYS if key in theirs and theirs[key] != ours.get(key)]


@dataclass(frozen=True)
class SecondAgent:
    """The agent of `--against`."""

    argument: str
    """As the user wrote it."""
    agent: Agent
    """As its file describes it; its tests are not used."""
    keys: tuple[str, ...]
    """The keys that its file, or the command line, contains of the agent."""

    def with_tests_of(self, first: Agent) -> Agent:
        return with_tests_of(first, self.agent, self.keys)

    def check(self, first: Agent, settings: ExecutionConfig, findings: Sequence[Finding]) -> None:
        """Raise ConfigError for every error that can be found without a run; log warnings.

        `findings` are those about the first agent, which are not logged again.
        """
        known = {(finding.path, finding.message) for finding in findings}
        log_findings(
            [
                finding
                for finding in check_before_run(self.with_tests_of(first), settings)
                if (finding.path, finding.message) not in known
                and finding.path != "evaluations.model"
            ]
        )
        if self.keys != AGENT_KEYS:
            return  # it has no file
        unused = unused_keys(first, self.agent, settings)
        if unused:
            logger.warning(
                "%s: not used: %s; both agents run with those of the first",
                self.argument,
                ", ".join(unused),
            )


def load_second_agent(argument: str, first: Agent, loader: ConfigLoader) -> SecondAgent:
    """Return the agent of `--against`: an agent.yaml, or `backend=…`. Raises ConfigError."""
    if argument.startswith(BACKEND_PREFIX):
        return _with_backend(argument, first, loader)
    if ":" in argument and not is_yaml(argument) and not Path(argument).exists():
        raise ConfigError("--against", f"no file {argument!r}; write '{BACKEND_PREFIX}{argument}'")
    if is_suite_file(argument):
        raise ConfigError("--against", f"{argument!r} is a suite; name the agent.yaml of an agent")
    return SecondAgent(argument, loader.load_agent_yaml(argument), AGENT_KEYS)


def _with_backend(argument: str, first: Agent, loader: ConfigLoader) -> SecondAgent:
    """Return the first agent with another backend."""
    backend = argument.removeprefix(BACKEND_PREFIX)
    if backend not in BUILT_IN_BACKENDS:
        first = first.model_copy(update={"tools": None})  # such a backend has its own
    try:
        agent = loader.with_backend(first, backend)
    except ConfigError as error:
        raise ConfigError(f"--against {argument}", error.message) from error
    return SecondAgent(argument, agent.with_locator(_locate_option), ("backend",))


def _locate_option(path: KeyPath) -> tuple[str, KeyPath]:
    """Locate what the command line says."""
    return "--against", path


def have_modules_of_one_name(first: Agent, second: Agent) -> bool:
    """Whether the agents import modules of the same name from different folders."""
    if code_roots(first.own_code_folders) == code_roots(second.own_code_folders):
        return False
    ours, theirs = _code_of(first), _code_of(second)
    return any(theirs.get(name, file) != file for name, file in ours.items())


def _code_of(agent: Agent) -> dict[Path, Path]:
    """Return the files that an agent runs in this process, by their path below a code root."""
    backend = agent.backend
    target = backend.target if isinstance(backend, PythonBackendConfig) else backend
    roots = code_roots(agent.own_code_folders)
    file = module_file(target, roots) if target and isinstance(target, str) else None
    files = [] if file is None else [file]
    files += [agent.own_dir / tool.file for tool in agent.tools or () if tool.type == "function"]
    code: dict[Path, Path] = {}
    for path in files:
        sources = imports_of(path.resolve(), roots).files
        places = [*roots, *(source.parent for source in sources)]
        code |= {
            source.relative_to(place): source
            for source in sources
            for place in places
            if source.is_relative_to(place)
        }
    return code


TAP_IN_PROCESS = (
    "the tap cannot tell the requests of two agents in one process apart; compare agents with"
    " '{type: process, …}'"
)


@dataclass
class ComparisonSession(RunSession[ComparisonReport]):
    """Runs each case on the first agent, then on the second, within the limits of one run.

    Both have the cases of the first, in the same order, and the same settings.
    """

    fail_on: FailOn | None = None
    """What makes the comparison fail; None if no verdict does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        first, second = (executor.options.carried_over.keys() for executor in self.executors)
        self._shown_pairs = len(first & second)

    async def execute_tests(self) -> ComparisonReport:
        """Run all cases on both agents; raises what `TestExecutor.execute_tests` raises."""
        first = self.executors[0]
        for executor in self.executors:
            backend = executor.agent_config.backend
            if isinstance(backend, PythonBackendConfig) and backend.tap:
                raise ConfigError("backend.tap", TAP_IN_PROCESS)
        left = [executor.begin() for executor in self.executors]
        with span(names.RUN, {names.SUITE_NAME: f"{first.agent_config.name} (A and B)"}) as current:
            if any(left):
                async with AsyncExitStack() as stack:
                    lanes = [await self._open(stack, 0), await self._open(stack, 1)]
                    await Schedule(lanes, first.config).run()
            report = self.report()
            self._warn_of_unknown_names(report)
            current.set({names.SUITE_STATUS: "success" if report.is_complete else "failure"})
        return report

    def _warn_of_unknown_names(self, report: ComparisonReport) -> None:
        """Warn of each of the `names` that neither the test cases nor the agents have."""
        first = self.executors[0]
        observed = observed_names([*report.first.report.results, *report.second.report.results])
        for name, other in (first.agent_config.names or {}).items():
            is_checked = any(case.renamed({name: other}) != case for case in first.cases)
            if not is_checked and not {name, other} & observed:
                logger.warning(
                    "%s: neither %r nor %r is a tool, an argument or an agent of a test case, or"
                    " of what the agents did",
                    first.agent_config.location("names", name),
                    name,
                    other,
                )

    async def _open(self, stack: AsyncExitStack, index: int) -> Lane:
        """Open the lane of an agent; the second runs in another process if modules collide."""
        first, second = (executor.agent_config for executor in self.executors)
        in_child = index == 1 and have_modules_of_one_name(first, second)
        lane = self.executors[index].open_lane(in_child=in_child)
        try:
            return await stack.enter_async_context(lane)
        except BackendInitError as error:
            raise BackendInitError(f"{self.agents[index].source}: {error}") from error

    def _pair(self, index: int) -> Pair:
        """Return the pair of the case at that index, as far as its results are known."""
        first, second = self.executors
        return build_pair(
            index,
            first.cases[index],
            first.result_of(index),
            second.result_of(index),
            first.agent_config.names,
        )

    def report(self, *, interrupted: bool = False) -> ComparisonReport:
        """Return the comparison of the results so far."""
        prices = self.executors[0].agent_config.prices
        first, second = (
            ComparedAgent(
                name=executor.agent_config.name,
                source=tested.source,
                run=executor.options.run_id(),
                report=executor.report(interrupted=interrupted),
            )
            for executor, tested in zip(self.executors, self.agents, strict=True)
        )
        places = count(), count()  # of the results, of which a case may have none
        pairs = [
            pair.model_copy(
                update={
                    "first_at": None if pair.first is None else next(places[0]),
                    "second_at": None if pair.second is None else next(places[1]),
                }
            )
            for pair in map(self._pair, range(len(self.executors[0].cases)))
        ]
        return build_comparison(first, second, pairs, None if prices is None else prices.unit)

    def _lines(self, index: int) -> Sequence[str]:
        """Return the pair of a case as soon as both agents have run it."""
        pair = self._pair(index)
        if pair.first is None or pair.second is None:
            return ()
        self._shown_pairs += 1
        if self.display.progress.quiet or pair.verdict is PairVerdict.NOT_RUN:
            return ()
        place = f"[Pair {self._shown_pairs}/{len(self.executors[0].cases)}]"
        return pair_lines(self.redactor.redact_report(pair), place)

    def _judge(self, report: ComparisonReport) -> tuple[ComparisonReport, ExitCode]:
        return report, self._exit_code(comparison_exit_code(report, self.fail_on))

    def _clean_report(
        self,
        report: ComparisonReport,
        code: ExitCode | None,  # noqa: ARG002 - a comparison has none
    ) -> ComparisonReport:
        return self.redactor.redact_report(report)

    def _reports(self, shown: ComparisonReport) -> Sequence[TestReport]:
        return shown.first.report, shown.second.report

    def _print(self, shown: ComparisonReport) -> None:
        echo(self._clean(render_terminal(shown, verbose=bool(self.settings.verbose))))
        if shown.regressions and self.fail_on is None:
            echo("The exit code ignores the regressions; add --fail-on regression", err=True)

    def _resume_flags(self, report: ComparisonReport) -> Sequence[str]:  # noqa: ARG002 - all alike
        return () if self.fail_on is None else ("--fail-on", self.fail_on)
