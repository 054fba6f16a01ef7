"""The public API: run the test cases of an agent and return the report."""

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from inspect import Parameter
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from pydantic import ValidationError

from holodeck.config.cases.suite_files import is_yaml
from holodeck.config.loader import ConfigLoader
from holodeck.config.secrets import collect
from holodeck.config.settings import conflict_message
from holodeck.config.yaml.validation_errors import expected_value
from holodeck.errors import ConfigError, ExecutionError
from holodeck.lib.checks.matching import Trajectory
from holodeck.lib.compare.against import ComparisonSession, with_tests_of
from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.evaluators.observation_metrics import CustomEvaluator
from holodeck.lib.processes.threads import SharedLoop
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.selection.request import SelectionRequest, parse_expression
from holodeck.lib.selection.select_cases import select as select_cases
from holodeck.lib.stubs.case_stubs import CaseStubs, check_deliveries
from holodeck.lib.support.stubs import in_place_of_tools
from holodeck.lib.support.text import did_you_mean_or_list
from holodeck.lib.test_runner.progress import RunDisplay, choose_display
from holodeck.lib.test_runner.session import SessionAgent, TestSession
from holodeck.models.agent import IN_PYTHON, Agent, unlocated
from holodeck.models.config import ExecutionConfig, settings_by_flag
from holodeck.models.evaluation import EvaluationConfig
from holodeck.models.llm import LLMProvider
from holodeck.models.metrics.base import MetricSettings
from holodeck.models.records.comparison import ComparisonReport
from holodeck.models.results.evidence import evidence
from holodeck.models.results.origin import Selection
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import TestReport, TestResult

if TYPE_CHECKING:
    from holodeck.lib.tap.scripted_model import ScriptedModel

logger = logging.getLogger(__name__)
Case = TestCaseModel | Mapping[str, Any] | str
"""A test case, its keys as in YAML, or only its input."""
Metric = MetricSettings | Mapping[str, Any] | str | BaseEvaluator | Callable[..., Any]
"""A metric as in YAML, its name, an evaluator, or a function that returns a score."""


_loop = SharedLoop()
"""Of `run()` and `compare_agents()`."""


class RunSettings(TypedDict, total=False):
    """The keys of `execution:` in YAML, as options of `run()`; they win over the agent's own."""

    llm_timeout: float
    attempt_timeout: float
    case_timeout: float
    run_timeout: float
    max_cost: float
    max_tokens: int
    max_calls: int
    max_time: float
    max_retries: int
    retries: int
    retry_delay: float
    max_answer_mb: float
    file_timeout: float
    download_timeout: float
    cache_enabled: bool
    allowed_hosts: list[str]
    parallel_test_cases: int | Literal["auto"]
    workers: int | Literal["auto"]
    run_on: str
    ray_variables: list[str]
    allow_side_effects: bool
    force_ingest: bool
    repeat: int
    min_pass: int
    min_pass_rate: float
    stop_early: bool
    fail_fast: bool
    maxfail: int
    give_up: bool
    offline: bool
    judge_trust: Literal["require", "warn", "off"] | Mapping[str, Any]
    events: str
    cache_dir: str
    recordings: str
    recording: Literal["replay", "missing", "failed", "all", "off"]
    strict_recordings: bool


class CaseSelection(TypedDict, total=False):
    """Which cases `run()` runs; a case must match all that are given."""

    select: str
    """An expression of words, as that of `-k`."""
    tags: Sequence[str]
    """A case needs one of them."""
    names: Sequence[str]
    """The names or ids of the cases, their suites, or `suite::name`."""


class RunOptions(RunSettings, CaseSelection, total=False):
    """The options of `run()`."""


def run(
    path_or_agent: object,
    cases: Iterable[Case] | str | Path | None = None,
    *,
    metrics: Sequence[Metric] | None = None,
    model: LLMProvider | Mapping[str, Any] | None = None,
    name: str | None = None,
    on_result: Callable[[TestResult], None] | None = None,
    progress: bool | None = None,
    **settings: Unpack[RunOptions],
) -> TestReport:
    """Run test cases against an agent and return the report; works in notebooks, too.

    Args:
        path_or_agent: The path of an agent.yaml or of its folder; or the agent itself: a function
            of the input, an object or class with `run(input)`, an AgentBackend, an `Agent`,
            `"module:attribute"`, or a mapping like `{"type": "http", "url": …}`.
        cases: Test cases, mappings with the keys of a test case, or inputs as text; or the path of
            a .csv, .json, .jsonl or .yaml file. They replace the cases of an agent.yaml; an agent
            of another kind needs them.
        metrics: Metrics of every case that has none of its own: names, mappings as in YAML,
            evaluators, or functions of an observation that return a score.
        model: The model that judges and plays users, as `evaluations: {model: …}` in YAML.
        name: What the report calls the agent.
        on_result: Called with each result as soon as there is one.
        progress: Whether to show the progress: in place in a notebook, else as lines on stdout.
            Default: in notebooks and in the IPython shell, but not in scripts.
        **settings: The keys of `execution:` in YAML, such as `repeat=5` or `llm_timeout=30`; and
            which cases to run: `select="refund and not slow"`, `tags=["a"]`, `names=["greets"]`.

    Returns:
        The report. `report.passed` is whether all is well, `report.results` has the test results.

    Raises:
        ConfigError: Something is wrong with the agent or its cases; the agent was not called.
        NothingSelected: `select`, `tags` and `names` select no case.
        BackendInitError: The agent cannot be built or reached at all.
        TypeError: An option is unknown.
    """
    work = partial(
        arun,
        path_or_agent,
        cases,
        metrics=metrics,
        model=model,
        name=name,
        on_result=on_result,
        progress=progress,
        **settings,
    )
    return _loop.run(work)


async def arun(
    path_or_agent: object,
    cases: Iterable[Case] | str | Path | None = None,
    *,
    metrics: Sequence[Metric] | None = None,
    model: LLMProvider | Mapping[str, Any] | None = None,
    name: str | None = None,
    on_result: Callable[[TestResult], None] | None = None,
    progress: bool | None = None,
    **settings: Unpack[RunOptions],
) -> TestReport:
    """Do what `run()` does on the caller's event loop."""
    loader = ConfigLoader()
    values: dict[str, Any] = dict(settings)
    request = _selection_request(values)
    execution = _execution_config(values)
    tested = _agent_under_test(loader, path_or_agent, cases, execution, metrics, name)
    agent = _with_evaluations(loader, tested.agent, metrics, model)
    agent, selection = _select(agent, request)
    redactor = Redactor(collect(agent, loader.environment(agent.base_dir)))
    display = choose_display(progress, redactor.redact)
    session = TestSession(
        [replace(tested, agent=agent)], redactor, display, selection=selection, on_result=on_result
    )
    return await session.arun()


def compare_agents(
    first: object,
    second: object,
    cases: Iterable[Case] | str | Path | None = None,
    *,
    metrics: Sequence[Metric] | None = None,
    model: LLMProvider | Mapping[str, Any] | None = None,
    **settings: Unpack[RunSettings],
) -> ComparisonReport:
    """Run the same test cases on two agents, case by case, and compare the results in pairs.

    Test cases, metrics and settings are those of the first agent. The judge is the same for both.

    Args:
        first: The path of an agent.yaml, or the agent itself: whatever `run()` takes.
        second: The other agent, likewise. Of an agent.yaml, only the agent itself is used.
        cases: Test cases, as `run()` takes them; an agent.yaml has its own.
        metrics: Metrics of every case that has none of its own, as `run()` takes them.
        model: The model that judges and plays users. Default: that of the first agent.
        **settings: The keys of `execution:` in YAML, such as `repeat=5` or `llm_timeout=30`.

    Returns:
        The comparison. `regressions` are the pairs that passed on the first agent only,
        `is_complete` is whether every pair has a verdict.

    Raises:
        ConfigError: Something is wrong with an agent or its cases; no agent was called.
        BackendInitError: An agent cannot be built or reached at all.
        TypeError: An option is unknown.
    """

    async def compare() -> ComparisonReport:
        loader = ConfigLoader()
        execution = _execution_config(dict(settings))
        tested = _agent_under_test(loader, first, cases, execution, metrics)
        tested = replace(tested, agent=_with_evaluations(loader, tested.agent, metrics, model))
        other = _agent_under_test(loader, second, [], execution, metrics)
        own_dir = other.agent.base_dir
        agent = with_tests_of(tested.agent, other.agent)
        other = replace(other, agent=agent, settings=tested.settings)
        secrets = collect(tested.agent, loader.environment(tested.agent.base_dir))
        redactor = Redactor([*secrets, *collect(agent, loader.environment(own_dir))])
        display = RunDisplay(redactor.redact)
        return await ComparisonSession([tested, other], redactor, display).arun()

    return _loop.run(compare)


def load_agent(path: str | Path, suites: Sequence[str | Path] = ()) -> Agent:
    """Return the agent that an agent.yaml describes, with the cases of suite files besides its own.

    Raises ConfigError, with file, line and column, for what is wrong in it.
    """
    return ConfigLoader().load_agent_yaml(path, suites)


def scripted_model(
    replies: Sequence[Mapping[str, Any]], faults: Sequence[Mapping[str, Any]] = ()
) -> "ScriptedModel":
    """Return a model for agents that are built in Python, which gives its replies in order.

        with holodeck.scripted_model([{"text": "It has been sent."}]) as model:
            client = AsyncOpenAI(base_url=model.url, api_key="none")

    Args:
        replies: Mappings such as `{"tool_calls": [{"get_order": {"id": 7}}]}` and
            `{"text": "Done."}`.
        faults: What goes wrong with which request, such as `{"call": 2, "status": 429}`.

    Raises:
        ConfigError: A reply or a fault is wrong.
    """
    # A server that few programs need.
    from holodeck.lib.tap.scripted_model import ScriptedModel  # noqa: PLC0415

    written = {"name": "scripted", "backend": IN_PYTHON, "model_replies": [*replies]}
    written |= {"model_faults": [*faults]} if faults else {}
    agent = ConfigLoader().agent_from(written)
    return ScriptedModel(agent.model_replies or (), agent.model_faults or ())


@contextmanager
def stub(
    stubs: Mapping[str, Sequence[Mapping[str, Any]]], *, sealed: bool = False
) -> Iterator[CaseStubs]:
    """Let stubs take the calls of tools within the block, in tests that are written in Python.

        with holodeck.stub({"get_order": [{"returns": {"status": "sent"}}]}):
            answer = shop_agent("Where is order 7?")

    They take the calls of functions that are marked with `holodeck.stubbed`, also in scenarios.
    Test cases have stubs of their own.

    Args:
        stubs: Tool → its stubs, with the keys of `stubs` in YAML.
        sealed: Whether no tool runs: a call without a stub is an error.

    Raises:
        ConfigError: A stub is wrong.
        ExecutionError: A stub was not delivered, or a sealed tool was called without one.
    """
    written = {"name": "stubs", "backend": IN_PYTHON, "stubs": {**stubs}}
    settings = ConfigLoader().agent_from(written | ({"tools_in_test": "sealed"} if sealed else {}))
    taking = CaseStubs(settings)
    with in_place_of_tools(taking):
        yield taking
    seen = Trajectory((), evidence(tool_calls="runner"))
    rows = check_deliveries(settings, seen, taking.calls)
    if rows:
        raise ExecutionError("\n".join(str(row.error or row.reason) for row in rows))


def _agent_under_test(
    loader: ConfigLoader,
    path_or_agent: Any,
    cases: Iterable[Case] | str | Path | None,
    execution: ExecutionConfig,
    metrics: Sequence[Metric] | None,
    name: str | None = None,
) -> SessionAgent:
    """Return the agent with its test cases, and with the settings of the call."""
    backend = None
    if cases is not None and not isinstance(cases, str | Path):
        cases = [{"input": case} if isinstance(case, str) else case for case in cases]
    if isinstance(path_or_agent, Agent):
        agent, source = path_or_agent, path_or_agent.name
    elif _is_path(path_or_agent):
        agent, source = loader.load_agent_yaml(path_or_agent), str(path_or_agent)
    elif cases is None:
        raise TypeError("run() needs 'cases' for an agent that is not an agent.yaml")
    else:
        source, written = _name_of(path_or_agent), path_or_agent
        if not isinstance(path_or_agent, str | Mapping):
            backend, written = path_or_agent, IN_PYTHON
        agent = loader.agent_from({"name": name or source, "backend": written}, cases)
        cases = None
    if cases is not None:
        validated = loader.agent_from({"name": agent.name, "backend": IN_PYTHON}, cases)
        agent = agent.model_copy(update={"test_cases": validated.test_cases}).with_locator(
            unlocated
        )
    if name is not None:
        agent = agent.model_copy(update={"name": name})
    if not agent.has_base_dir:
        agent = agent.with_base_dir(Path(source).absolute().parent)
    return SessionAgent(
        source,
        agent,
        loader.settings_of(agent, execution),
        backend=backend,
        evaluators=_evaluators(metrics or ()),
        config_loader=loader,
    )


def _is_path(path_or_agent: object) -> bool:
    """Whether it is the path of an agent.yaml, and not `module:attribute`."""
    if isinstance(path_or_agent, str):
        is_file = is_yaml(path_or_agent) or Path(path_or_agent).exists()
        return is_file or ":" not in path_or_agent
    return isinstance(path_or_agent, PathLike)


def _name_of(agent: object) -> str:
    if isinstance(agent, Mapping):
        return str(agent.get("url", "agent"))
    if isinstance(agent, str):
        return agent.rpartition(":")[2]
    name = str(getattr(agent, "__name__", type(agent).__name__))
    return "agent" if name == "<lambda>" else name


def _selection_request(options: dict[str, Any]) -> SelectionRequest:
    """Return which cases the options of a run select, and remove these options."""
    for name in ("names", "tags"):
        if isinstance(values := options.get(name), str):  # whose letters would be its values
            raise TypeError(f"run(): {name!r} is a list of texts; write {name}=[{values!r}]")
    keyword = options.pop("select", None)
    return SelectionRequest(
        names=tuple(options.pop("names", None) or ()),
        tags=tuple(options.pop("tags", None) or ()),
        keyword=None if keyword is None else parse_expression(keyword),
    )


def _select(agent: Agent, request: SelectionRequest) -> tuple[Agent, Selection | None]:
    """Return the agent with the selected cases; no Selection if all of them run."""
    if not request.args():
        return agent, None
    selected = select_cases(agent.test_cases or [], request)
    for warning in selected.warnings:
        logger.warning("%s", warning)
    return agent.with_cases(selected.indexes), selected.selection


def _with_evaluations(
    loader: ConfigLoader,
    agent: Agent,
    metrics: Sequence[Metric] | None,
    model: LLMProvider | Mapping[str, Any] | None,
) -> Agent:
    """Return the agent with these metrics and this judge in place of its own, where given."""
    if metrics is None and model is None:
        return agent
    written = [
        {"metric": metric} if isinstance(metric, str) else metric
        for metric in metrics or ()
        if isinstance(metric, MetricSettings | Mapping | str)
    ]
    values: dict[str, Any] = {"metrics": written} if written else {}
    if model is not None:
        values["model"] = model
    update: dict[str, Any] = {} if metrics is None else {"metrics": []}
    if values:
        written_agent = {"name": agent.name, "backend": IN_PYTHON, "evaluations": values}
        validated = loader.agent_from(written_agent, folder=agent.base_dir).evaluations
        update |= {name: getattr(validated, name) for name in values}
    evaluations = agent.evaluations or EvaluationConfig.model_construct(metrics=[])
    return agent.model_copy(update={"evaluations": evaluations.model_copy(update=update)})


def _evaluators(metrics: Sequence[Metric]) -> dict[str, BaseEvaluator]:
    """Return the metrics that are Python code, by name."""
    found: dict[str, BaseEvaluator] = {}
    for metric in metrics:
        if isinstance(metric, MetricSettings | Mapping | str):
            continue
        evaluator = metric if isinstance(metric, BaseEvaluator) else CustomEvaluator(metric)
        if evaluator.name in found:
            raise ConfigError("metrics", f"two evaluators have the name {evaluator.name!r}")
        found[evaluator.name] = evaluator
    return found


def _execution_config(settings: dict[str, Any]) -> ExecutionConfig:
    for option in settings:
        if option not in RunSettings.__annotations__:
            raise TypeError(f"run() has no option {option!r}{_suggested_option(option)}")
    try:
        return ExecutionConfig(**settings)
    except ValidationError as error:
        path = error.errors(include_url=False)[0]["loc"]
        if not path:
            raise ConfigError("run()", conflict_message(error)) from None
        option = str(path[0])
        raise ConfigError(
            option, f"found {settings[option]!r}; expected {expected_value(error)}"
        ) from None


def _suggested_option(option: str) -> str:
    if option in ExecutionConfig.model_fields:
        return ": only `holodeck test` prints results and records runs"
    if meant := settings_by_flag().get(option):
        return f"; did you mean {meant!r}?"
    return did_you_mean_or_list(option, RunSettings.__annotations__)


def _show_options(function: Callable[..., Any], options: type) -> None:
    """Let `help()` and completion show each option by its name."""
    signature = inspect.signature(function)
    own = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not Parameter.VAR_KEYWORD
    ]
    settings = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in options.__annotations__.items()
    ]
    function.__signature__ = signature.replace(parameters=[*own, *settings])  # type: ignore[attr-defined]


_show_options(run, RunOptions)
_show_options(arun, RunOptions)
_show_options(compare_agents, RunSettings)
