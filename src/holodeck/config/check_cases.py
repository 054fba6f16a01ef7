"""What is wrong with a test case: expectations nothing can meet, and checks nothing can fail."""

import re
from collections.abc import Iterator, Mapping, Sequence

from holodeck.config.check_metrics import check_forbidden_text, check_undecided
from holodeck.config.findings import Findings
from holodeck.config.python_files import require_target
from holodeck.config.source import KeyPath, find_file
from holodeck.errors import ConfigError
from holodeck.lib.backends.json_paths import has_placeholder
from holodeck.lib.evaluators.build import (
    RequiredInputs,
    can_fail,
    compares_nothing,
    metrics_of,
    metrics_of_turn,
)
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.lib.patterns import compiled
from holodeck.lib.suggestions import did_you_mean
from holodeck.lib.tools.names import matches_tool_name
from holodeck.models.agent import Agent, HttpBackendConfig
from holodeck.models.conversation import find_unanswered, step_kind, step_value
from holodeck.models.evaluation import ComparingMetric, MetricSettings, NotContainsMetric
from holodeck.models.test_case import ExpectedTool, TestCaseModel, TurnModel

_IN_NO_NAME = re.compile(r"[*?\[\]{}()|^$\\,;<>\"'`]")
"""Characters of patterns, lists and placeholders; no tool that a model calls has them."""


def check_forbidden_name(name: str, path: KeyPath, findings: Findings) -> bool:
    """Find a forbidden name that no tool can have; whether it is one."""
    sign = _IN_NO_NAME.search(name)
    if "{{" in name:
        why = "is a placeholder that nothing fills; add 'parameters', or write the tool's name"
    elif sign is not None and sign[0] in ",;":
        why = "is one name; write each tool as an item of its own: [a, b]"
    elif sign is not None:
        why = f"has {sign[0]!r} in it; names are compared as they are, patterns are not read"
    elif re.search(r"\s", name):
        why = "has white space around it or in it, which no tool's name has; remove it"
    else:
        return False
    findings.error(path, f"no call can match {name!r}: it {why}")
    return True


def warn_of_parts(name: str, tools: Sequence[str], path: KeyPath, findings: Findings) -> None:
    """Find tools whose calls meet an expectation that may be meant for another one."""
    parts = [tool for tool in tools if not matches_tool_name(name, tool)]
    if parts:
        findings.warning(
            path,
            f"{name!r} is only a part of {', '.join(map(repr, parts))}, whose calls count as well;"
            f" write '{{name: {parts[0]}}}' if that tool is meant",
        )


Tools = Mapping[str, list[str] | None]
"""Tool → names of its parameters; None for a tool that takes any."""
NO_JUDGE = "criteria need a model that judges; write 'evaluations: {model: …}'"
NO_SIMULATOR = (
    "a simulated user needs a model; write 'model' under 'simulate' or under 'evaluations'"
)
NOTHING_TO_COMPARE = (
    "'passfail' has nothing to compare and gives no verdict; write 'ground_truth'"
    " ('expected_output' in 'scenarios') or 'expected_tools'"
)
_LISTS = ("evaluations", "scorers")
_DECIDING_STEPS = frozenset({"judge", "succeed", "fail"})
_GROUND_TRUTH = frozenset({EvalParam.GROUND_TRUTH, EvalParam.EXPECTED_OUTPUT})


def check_case(
    agent: Agent,
    case: TestCaseModel,
    path: KeyPath,
    tools: Tools,
    inputs: RequiredInputs,
    findings: Findings,
) -> None:
    """Find what is wrong with one case and its turns."""
    metrics = metrics_of(agent, case)
    own = (*path, "evaluations") if case.evaluations is not None else path
    scorers = case.scorers or []
    _check_inputs(inputs, metrics[: len(metrics) - len(scorers)], case, own, findings)
    _check_inputs(inputs, scorers, case, (*path, "scorers"), findings)
    enabled = [one for one in metrics if one.enabled and not compares_nothing(one, case)]
    if is_decided(agent, case):
        check_undecided(case.evaluations or [], (*path, "evaluations"), findings)
        check_undecided(scorers, (*path, "scorers"), findings)
    elif case.skip is None:
        _warn_of_nothing_decided(enabled, path, findings)
    _check_expectations(agent, case, enabled, path, tools, inputs, findings)
    for at, turn in case.parts:
        place = (*path, *at)
        _check_inputs(inputs, turn.evaluations or [], turn, (*place, "evaluations"), findings)
        _check_inputs(inputs, turn.scorers or [], turn, (*place, "scorers"), findings)
        check_undecided(turn.evaluations or [], (*place, "evaluations"), findings)
        check_undecided(turn.scorers or [], (*place, "scorers"), findings)
        enabled = [metric for metric in metrics_of_turn(turn) if metric.enabled]
        _check_expectations(agent, turn, enabled, place, tools, inputs, findings)
    if case.context is not None:
        _check_context(agent, (*path, "context"), findings)
    if case.form != "input" or case.history is not None:
        # Imported here because most cases are one input.
        from holodeck.config.check_history import check_history_support  # noqa: PLC0415

        check_history_support(agent, path, case, findings)
    _check_models(agent, case, path, findings)
    _check_script(agent, case, (*path, "script"), findings)


def _check_script(agent: Agent, case: TestCaseModel, path: KeyPath, findings: Findings) -> None:
    left_open = find_unanswered(case.script or ())
    if left_open is not None:
        findings.warning((*path, left_open), "the agent never answers this; write 'agent' below it")
    for number, step in enumerate(case.script or ()):
        if step_kind(step) == "call":
            _check_code(agent, step_value(step), (*path, number, "call"), findings)


def _check_models(agent: Agent, case: TestCaseModel, path: KeyPath, findings: Findings) -> None:
    if case.uses_judge and agent.judge_model is None:
        key = "script" if case.criteria is None else "criteria"
        findings.error((*path, key), NO_JUDGE)
    if case.simulate is not None and agent.simulator_model(case) is None:
        findings.error((*path, "simulate"), NO_SIMULATOR)


def _check_context(agent: Agent, path: KeyPath, findings: Findings) -> None:
    """A context that goes nowhere changes nothing, whatever its author thinks."""
    backend = agent.backend
    if not agent.has_own_model:
        findings.error(path, "the built-in agent takes no context; only a 'backend' of yours may")
    elif isinstance(backend, HttpBackendConfig) and not has_placeholder(backend.request, "context"):
        findings.error(
            path, "the request has no place for the context; write '{context}' in backend.request"
        )


def _check_code(agent: Agent, target: str, place: KeyPath, findings: Findings) -> None:
    try:
        require_target(target, agent.base_dir, "call")
    except ConfigError as error:
        findings.of_error(place, error)


def _is_checked_elsewhere(case: TestCaseModel) -> bool:
    """Whether a turn, a criterion or a step of the script can decide the case."""
    if any(one.required for one in case.judged):
        return True
    if any(step_kind(one) in _DECIDING_STEPS for one in case.script or ()):
        return True
    return any(
        turn.expected_tools is not None
        or turn.forbidden_tools is not None
        or any(can_fail(one) for one in metrics_of_turn(turn) if not compares_nothing(one, turn))
        for _, turn in case.parts
    )


def _check_expectations(
    agent: Agent,
    case: TurnModel,
    metrics: Sequence[MetricSettings],
    path: KeyPath,
    tools: Tools,
    inputs: RequiredInputs,
    findings: Findings,
) -> None:
    if case.ground_truth is not None and not any(
        _reads_ground_truth(metric, inputs) for metric in metrics
    ):
        findings.warning(
            (*path, "ground_truth"),
            "is compared with nothing; add a metric such as 'exact_match' without 'value'",
        )
    for metric in metrics:
        if isinstance(metric, NotContainsMetric) and metric.expected_texts() is None:
            text = case.ground_truth or ""
            check_forbidden_text(text, metric, (*path, "ground_truth"), findings)
    _check_tool_expectations(agent, case, path, tools, findings)
    for index, file in enumerate(case.files or []):
        try:
            find_file(file.path, agent.base_dir, "")
        except ConfigError as error:
            findings.of_error((*path, "files", index, "path"), error, stops_the_run=False)


def _check_inputs(
    inputs: RequiredInputs,
    metrics: Sequence[MetricSettings],
    case: TurnModel,
    path: KeyPath,
    findings: Findings,
) -> None:
    """Metrics written in the case or turn are found at their own place, global ones at the case."""
    for index, metric in enumerate(metrics):
        missing = inputs.missing(metric, case) if metric.enabled else None
        place = (*path, index) if path[-1] in _LISTS else path
        if missing is not None:
            findings.error(place, missing)
        elif metric.enabled and compares_nothing(metric, case):
            findings.warning(place, NOTHING_TO_COMPARE)


def is_decided(agent: Agent, case: TestCaseModel) -> bool:
    """Whether anything that the case checks can fail it."""
    if case.expected_tools is not None or case.forbidden_tools is not None:
        return True
    metrics = (one for one in metrics_of(agent, case) if not compares_nothing(one, case))
    return _is_checked_elsewhere(case) or any(map(can_fail, metrics))


def _warn_of_nothing_decided(
    metrics: Sequence[MetricSettings], path: KeyPath, findings: Findings
) -> None:
    if not metrics:
        findings.warning(
            path, "checks nothing: add evaluations, criteria, expected_tools or forbidden_tools"
        )
    elif not any(one.required and one.threshold == 0 for one in metrics):  # which are errors
        names = ", ".join(dict.fromkeys(metric.label for metric in metrics))
        why = "without a threshold above 0 gives no verdict"
        if not all(metric.required for metric in metrics):
            why = "is only reported, by 'required: false' or for want of a threshold above 0"
        findings.warning(path, f"cannot fail: {names} {why}")


def _reads_ground_truth(metric: MetricSettings, inputs: RequiredInputs) -> bool:
    if isinstance(metric, ComparingMetric):
        return metric.expected_texts() is None
    return metric.user_code is not None or any(inputs.accepts(metric, one) for one in _GROUND_TRUTH)


def _check_tool_expectations(
    agent: Agent, case: TurnModel, path: KeyPath, tools: Tools, findings: Findings
) -> None:
    forbidden = set(case.forbidden_tools or [])
    for index, wanted in enumerate(case.expected_tools or []):
        place = (*path, "expected_tools", index)
        if isinstance(wanted, ExpectedTool):
            _check_matchers(wanted, place, findings)
        fitting = _fitting(wanted, tools) or [_name(wanted)]
        if forbidden.issuperset(fitting):
            findings.error(place, f"{_name(wanted)!r} is expected and forbidden")
        if not agent.has_own_model:
            _check_known(wanted, place, tools, findings)
    for index, name in enumerate(case.forbidden_tools or []):
        place = (*path, "forbidden_tools", index)
        if check_forbidden_name(name, place, findings) or agent.has_own_model:
            continue
        if name not in tools:
            findings.error(place, _unknown(name, tools))


def _check_known(
    wanted: str | ExpectedTool, place: KeyPath, tools: Tools, findings: Findings
) -> None:
    fitting = _fitting(wanted, tools)
    if not fitting:
        findings.error(place, _unknown(_name(wanted), tools))
    warn_of_parts(_name(wanted), fitting, place, findings)
    if isinstance(wanted, ExpectedTool):
        for argument, names in _unknown_arguments(wanted, fitting, tools) if fitting else ():
            hint = did_you_mean(argument, names, f"; it has {', '.join(names)}")
            findings.error(
                (*place, "args", argument), f"{fitting[0]!r} has no parameter {argument!r}{hint}"
            )


def _unknown_arguments(
    wanted: ExpectedTool, fitting: Sequence[str], tools: Tools
) -> Iterator[tuple[str, list[str]]]:
    """Arguments that no fitting tool has, with the parameters there are."""
    known: list[str] = []
    for name in fitting:
        parameters = tools[name]
        if parameters is None:
            return
        known += parameters
    for argument in wanted.args:
        if argument not in known:
            yield argument, known


def _check_matchers(wanted: ExpectedTool, place: KeyPath, findings: Findings) -> None:
    for argument, matcher in wanted.matchers().items():
        if matcher.regex is not None:
            check_pattern(matcher.regex, (*place, "args", argument, "regex"), findings)


def check_pattern(pattern: str, path: KeyPath, findings: Findings) -> None:
    """Find a regular expression that is none."""
    try:
        compiled(pattern)
    except ConfigError as error:
        findings.error(path, error.message)


def _name(wanted: str | ExpectedTool) -> str:
    return wanted if isinstance(wanted, str) else wanted.name


def _fitting(wanted: str | ExpectedTool, tools: Tools) -> list[str]:
    """The tools that an expectation is about."""
    if isinstance(wanted, ExpectedTool) and wanted.match == "exact":
        return [wanted.name] if wanted.name in tools else []
    return [name for name in tools if _name(wanted) in name]


def _unknown(name: str, tools: Tools) -> str:
    if not tools:
        return f"the agent has no tools, so none is called {name!r}"
    hint = did_you_mean(name, tools, ";")
    return f"no tool is called {name!r}{hint} there are {', '.join(tools)}"
