"""Run every test case of an agent.yaml and report."""

import asyncio
import inspect
import logging
import platform
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import holodeck
from holodeck.config.agent_files import prompt_versions
from holodeck.config.cases.stand_ins import with_stand_ins
from holodeck.config.checks.agent import check_before_run, check_opened_tools, log_findings
from holodeck.config.loader import ConfigLoader, loader_of
from holodeck.config.prices import require_prices, with_list_prices
from holodeck.config.settings import with_case_settings
from holodeck.errors import BackendInitError, ConfigError, HoloDeckError
from holodeck.lib.backends.base import AgentBackend, capabilities_of
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.backends.selector import BackendSelector
from holodeck.lib.checks.tool_checks import validate_tool_calls
from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.file_processor import FileProcessor, FileReader
from holodeck.lib.llm.endpoint import keys_needed
from holodeck.lib.observability import names, span
from holodeck.lib.reports.summary import summarize
from holodeck.lib.support.text import describe, plural
from holodeck.lib.test_runner.case_run import CaseSetup
from holodeck.lib.test_runner.messages import require_history_support
from holodeck.lib.test_runner.options import NO_OPTIONS, RunOptions
from holodeck.lib.test_runner.run_state import RunState
from holodeck.lib.test_runner.scheduling.schedule import Lane, Schedule, concurrency_of
from holodeck.lib.ui.activity import activity
from holodeck.lib.user_code.raised import with_location
from holodeck.models.agent import IN_PYTHON, Agent
from holodeck.models.config import RECORDING_MODES, ExecutionConfig
from holodeck.models.results.origin import PromptVersion
from holodeck.models.results.outcome import ModelCost
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import TestReport, TestResult
from holodeck.models.token_usage import TokenUsage

if TYPE_CHECKING:
    from holodeck.lib.evaluators.deepeval.rag import RAG_EVALUATOR_MAP, RAGEvaluatorConstructor
    from holodeck.lib.test_runner.agent_factory import AgentFactory, ThreadRunFactory

__all__ = [
    "RAG_EVALUATOR_MAP",
    "RAGEvaluatorConstructor",
    "TestExecutor",
    "validate_tool_calls",
]

logger = logging.getLogger(__name__)

_OF_DEEPEVAL = ("RAG_EVALUATOR_MAP", "RAGEvaluatorConstructor")
UNSEEN = "the requests of the agent itself are not recorded: {}"
PREPARED = (
    "before the first case, the tools took {} and {} tokens for documents; budgets count these, the"
    " costs of the report do not"
)


class TestExecutor:
    """Runs the test cases of an agent; what is not passed in is built from the configuration.

    Args:
        agent_config_path: The agent.yaml; relative paths start from its folder.
        execution_config: Settings from the command line, which override all others.
        file_processor: Turns the files of a case into text; whatever has `process_file`.
        agent_factory: Builds the agents if no backend is given; whatever has `create_thread_run`
            and `shutdown`.
        evaluators: Evaluators by metric name. One with the name of a configured metric replaces
            the built-in evaluator; any other is computed for every case.
        config_loader: Reads the configuration; whatever has the public methods of HoloDeck's.
        progress_callback: Called with each result as soon as it is known.
        on_test_start: Called with each case right before it runs.
        force_ingest: Whether tools embed all their documents again; the settings may say so, too.
        agent_config: The agent, instead of that in the file.
        resolved_execution_config: Settings with every value, instead of the resolved ones.
        backend: How to reach the agent, instead of what the configuration names: whatever
            `backend:` accepts in YAML, or the agent itself as a function, an object, a class or an
            AgentBackend.
        allow_side_effects: Whether tools with side effects run; the settings may allow it, too.
        options: Who follows the run, and what was known before it.

    Attributes:
        agent_config: The agent.
        config: The settings, every value given.
        evaluators: The evaluators of cases without metrics of their own, by name.
        options: What the run does besides.
        is_one_at_a_time: Whether the cases ran one after the other although nobody asked for that.

    Raises:
        ConfigError: The configuration is wrong; nothing has been run.
    """

    __test__ = False

    is_one_at_a_time = False

    def __init__(  # noqa: PLR0913, PLR0917 - the documented signature
        self,
        agent_config_path: str,
        execution_config: ExecutionConfig | None = None,
        file_processor: FileReader | None = None,
        agent_factory: "AgentFactory | ThreadRunFactory | None" = None,
        evaluators: dict[str, BaseEvaluator] | None = None,
        config_loader: ConfigLoader | None = None,
        progress_callback: Callable[[TestResult], None] | None = None,
        on_test_start: Callable[[TestCaseModel], None] | None = None,
        force_ingest: bool = False,
        agent_config: Agent | None = None,
        resolved_execution_config: ExecutionConfig | None = None,
        backend: object | None = None,
        allow_side_effects: bool = False,
        options: RunOptions = NO_OPTIONS,
    ) -> None:
        self.options = options
        self.agent_config_path = agent_config_path
        self.cli_config = execution_config
        self.config_loader = loader_of(config_loader)
        self.progress_callback = progress_callback
        self.on_test_start = on_test_start
        agent = self._load_agent(agent_config)
        if isinstance(backend, str | Mapping):
            agent = self.config_loader.with_backend(agent, backend)
            backend = None
        config = resolved_execution_config or self.config_loader.settings_of(
            agent, execution_config
        )
        switches = {"force_ingest": force_ingest, "allow_side_effects": allow_side_effects}
        on = {name: True for name, is_on in switches.items() if is_on}
        self.config = config.model_copy(update=on)
        agent = with_case_settings(with_stand_ins(agent), self.config)
        if self.config.max_cost is not None:
            require_prices(agent, self.config.source_of("max_cost"))
        if self.config.max_cost is not None or agent.prices is not None:
            agent = with_list_prices(agent)
        self.agent_config = agent
        self.file_processor = file_processor or FileProcessor.from_execution_config(
            self.config, base_dir=agent.base_dir
        )
        self.agent_factory = agent_factory
        self._injects_files = file_processor is not None
        self._is_injected = backend is not None
        self._given_backend = self._backend_from(backend, agent_factory)
        self._backend: AgentBackend | None = self._given_backend
        # An object of the caller's is closed once only.
        self._after_shutdown = None if self._given_backend is backend else self._given_backend
        self._owns_backend = self._backend is None or inspect.isclass(backend)
        with keys_needed(needed=self.config.recording != "replay"):
            self.setup = CaseSetup(
                agent,
                self.config,
                self.config_loader,
                self.file_processor,
                evaluators,
                options,
                is_injected=self._is_injected,
            )
        self.evaluators = self.setup.evaluator_set.evaluators
        self._prompts: list[PromptVersion] = []
        self._run_state = RunState(agent, self._report_result)
        self._started = time.perf_counter()

    def _load_agent(self, given: Agent | None) -> Agent:
        """Return the agent, with its relative paths starting from the folder of its file."""
        agent = given
        if agent is None:
            agent = self.config_loader.load_agent_yaml(self.agent_config_path)
        if agent.has_base_dir:
            return agent
        return agent.with_base_dir(Path(self.agent_config_path).absolute().parent)

    def _backend_from(
        self, agent: object, factory: "AgentFactory | ThreadRunFactory | None"
    ) -> AgentBackend | None:
        """Return the backend of what the caller gives; None if the configuration names it."""
        if agent is None and factory is not None:
            # The factory of Semantic Kernel's agents, which most runs do without.
            from holodeck.lib.test_runner.agent_factory import backend_of  # noqa: PLC0415

            return backend_of(factory)
        if agent is None:
            return None
        if isinstance(agent, AgentBackend) and not inspect.isclass(agent):
            return agent
        return CallableBackend(agent, self.agent_config.code_folders, self.config)

    @property
    def cases(self) -> Sequence[TestCaseModel]:
        """The test cases, in the order of the file."""
        return self.agent_config.test_cases or []

    async def execute_tests(self) -> TestReport:
        """Run every case and report; the results are in the order of the file.

        At most `parallel_test_cases` run at once. Cancelling it cancels what runs; what had
        finished by then is in `report(interrupted=True)`.

        Raises:
            BackendInitError: The agent cannot be built or reached at all.
            ConfigError: The agent's configuration is wrong.
        """
        has_cases = self.begin()
        with span(names.RUN, {names.SUITE_NAME: self.agent_config.name}) as current:
            if has_cases:
                async with self.open_lane() as lane:
                    await Schedule([lane], self.config).run()
            report = self.report()
            passed = report.summary.failed == 0
            current.set({names.SUITE_STATUS: "success" if passed else "failure"})
        return report

    def begin(self) -> bool:
        """Begin a run; return whether cases are left to run. Raises ConfigError."""
        if not self.options.is_checked:
            self._check()
        options = self.options
        self._run_state = RunState(
            self.agent_config, self._report_result, options.carried_over, options.clean
        )
        self._started = time.perf_counter()
        self._run_state.add_skipped()
        return bool(self._run_state.remaining)

    def result_of(self, index: int) -> TestResult | None:
        """Return the result of the case at that index; None if there is none yet."""
        return self._run_state.result_of(index)

    def _check(self) -> None:
        """Do the static checks of `holodeck validate`. Raises ConfigError."""
        agent = self.agent_config
        if self._given_backend is not None:
            agent = agent.model_copy(update={"backend": IN_PYTHON})
        findings = check_before_run(agent, self.config)
        if not self.setup.evaluators:  # the findings do not know injected evaluators
            log_findings(findings)

    @asynccontextmanager
    async def open_lane(self, *, in_child: bool = False) -> AsyncIterator[Lane]:
        """Yield what a schedule needs to run the cases, and close what was opened for them.

        `in_child` runs them in another process. Raises ConfigError if that is impossible.
        """
        async with AsyncExitStack() as stack:
            if isinstance(self.file_processor, FileProcessor):
                stack.callback(self.file_processor.close)
            count = self._count_workers(in_child=in_child)
            if count == 0:
                yield await self._open_own_lane(stack)
            else:
                yield await self._open_lane_of_workers(stack, count)

    def _count_workers(self, *, in_child: bool) -> int | None:
        """Return what `count_workers` says. Raises ConfigError."""
        is_local = self.config.run_on in {None, "local"}
        if is_local and self.config.workers in {None, 1} and not in_child:
            return 0
        # The pool, its messages and events: most runs take place in this process.
        from holodeck.lib.test_runner.workers.lane import count_workers  # noqa: PLC0415

        if not is_local and self.config.recording in RECORDING_MODES:
            raise ConfigError(
                self.config.source_of("recording"),
                "what is recorded would stay on other machines; record without --on",
            )
        return count_workers(
            self.agent_config,
            self.config,
            len(self._run_state.remaining),
            of_caller=self._needs_this_process(),
            needs_child=in_child,
            note=self.setup.evaluator_set.note,
        )

    async def _open_lane_of_workers(self, stack: AsyncExitStack, count: int | None) -> Lane:
        # As above.
        from holodeck.lib.test_runner.workers.lane import open_worker_lane  # noqa: PLC0415

        self._prompts = prompt_versions(self.agent_config)
        self._open_events(stack)
        lane = open_worker_lane(
            self.agent_config_path,
            count,
            self.setup,
            self._run_state,
            on_start=self._report_start,
        )
        return await stack.enter_async_context(lane)

    def _open_events(self, stack: AsyncExitStack) -> None:
        """Publish events, if somebody listens, until the lane is closed."""
        if self.setup.events is not None:
            self.setup.events.open(self.options)
            stack.push_async_callback(self.setup.events.close)

    def _needs_this_process(self) -> str | None:
        """Return what the caller gave that no other process can have; None for nothing."""
        if self._given_backend is not None or self.setup.evaluators or self._injects_files:
            return "the agent, its checks or its files are objects of this process"
        is_debugged = self.options.is_debugged
        return "a person speaks for the users of conversations" if is_debugged else None

    async def _open_own_lane(self, stack: AsyncExitStack) -> Lane:
        setup = self.setup
        mode = self.config.recording
        if mode is not None and mode != "off":
            # Few runs use recordings.
            from holodeck.lib.test_runner.recordings import open_recordings  # noqa: PLC0415

            stack.enter_context(open_recordings(setup, mode, self.agent_config_path))
        stack.push_async_callback(setup.close_traces)
        if self._owns_backend:
            stack.push_async_callback(self.shutdown)
        stack.push_async_callback(setup.close_models)
        self._open_events(stack)
        stack.callback(asyncio.create_task(setup.evaluator_set.warm_up()).cancel)
        if setup.traces is not None:
            await setup.traces.start()
        with activity("starting the agent"):
            backend = await self._ready_backend()
        self._note_opened_tools(backend)
        problem = capabilities_of(backend).model_problem
        if setup.recordings is not None and problem is not None:
            setup.evaluator_set.note(UNSEEN.format(problem))
        self._prompts = [] if self._is_injected else prompt_versions(self.agent_config)
        require_history_support(self.agent_config, backend)
        for index in self._run_state.remaining:
            # raises if the backend takes no context
            setup.backend_for(backend, index, self.cases[index])
        return self._lane(backend)

    def _note_opened_tools(self, backend: AgentBackend) -> None:
        """Let metrics and checks know the tools that are known only now. Raises ConfigError."""
        offered = capabilities_of(backend).tools
        if self._is_injected or self.agent_config.has_own_model or offered is None:
            return
        self.setup.observations.offered = offered
        if any(tool.type != "function" for tool in self.agent_config.tools or ()):
            check_opened_tools(self.agent_config, offered)

    async def _ready_backend(self) -> AgentBackend:
        if self._backend is None:
            self._backend = await BackendSelector.select(
                self.setup.agent_to_select, mode="test", execution=self.config
            )
            return self._backend
        try:
            await self._backend.initialize()
        except HoloDeckError:
            raise
        except Exception as error:
            raise BackendInitError(with_location(error)) from error
        return self._backend

    def _lane(self, backend: AgentBackend) -> Lane:
        config, note = self.config, self.setup.evaluator_set.note
        concurrency = concurrency_of(
            backend, self.agent_config, config, is_injected=self._is_injected, note=note
        )
        self.is_one_at_a_time = (
            config.parallel_test_cases == "auto"
            and concurrency == 1
            and capabilities_of(backend).runs_user_code
        )
        return Lane(
            self.agent_config,
            self._run_state,
            partial(self.setup.new_run, backend),
            self._report_start,
            concurrency,
            self._preparation_costs(backend),
        )

    def _preparation_costs(self, backend: AgentBackend) -> Sequence[ModelCost]:
        """Return what models cost that were asked before the first case; it is noted if somebody
        counts."""
        costs, limits = capabilities_of(backend).preparation_costs, self.config
        is_limited = any((limits.max_cost, limits.max_tokens, limits.max_calls))
        if costs and (is_limited or self.agent_config.prices is not None):
            calls = plural(sum(cost.calls for cost in costs), "request", form=",")
            tokens = sum((cost.tokens for cost in costs), TokenUsage()).total_tokens
            self.setup.evaluator_set.note(PREPARED.format(calls, f"{tokens:,}"))
        return costs

    def _report_start(self, case: TestCaseModel) -> None:
        if self.on_test_start is not None:
            self.on_test_start(case)

    def _report_result(self, index: int, result: TestResult) -> None:
        if self.options.on_result is not None:
            self.options.on_result(index, result)
        if self.progress_callback is not None:
            self.progress_callback(result)

    def report(self, *, interrupted: bool = False) -> TestReport:
        """Return the report of the results so far."""
        stop, results = self._run_state.stop, self._run_state.results
        model = self.agent_config.model
        environment = {
            "python_version": f"Python {platform.python_version()}",
            "os": platform.system(),
        }
        if model is not None:
            environment["model"] = model.label
        return TestReport(
            agent_name=self.agent_config.name,
            agent_config_path=str(self.agent_config_path),
            results=results,
            summary=summarize(results, round((time.perf_counter() - self._started) * 1000)),
            timestamp=datetime.now(UTC).isoformat(timespec="seconds"),
            holodeck_version=holodeck.__version__,
            environment=environment,
            interrupted=interrupted,
            stopped=self._run_state.stopped,
            stopped_by=stop.kind if stop else None,
            planned_tests=len(self.cases),
            selection=self.options.selection,
            notes=self.setup.evaluator_set.notes,
            prompts=self._prompts,
        )

    async def shutdown(self) -> None:
        """Close the backend, on the event loop that ran the tests. May be called twice."""
        backend, self._backend = self._backend, self._after_shutdown
        if backend is None:
            return
        try:
            await backend.teardown()
        except Exception as error:  # noqa: BLE001 - results must not be lost to a clean-up
            logger.warning("closing the agent failed: %s", describe(error))


def __getattr__(name: str) -> object:
    if name not in _OF_DEEPEVAL:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported here because few metrics are DeepEval's.
    from holodeck.lib.evaluators.deepeval import rag  # noqa: PLC0415

    return getattr(rag, name)
