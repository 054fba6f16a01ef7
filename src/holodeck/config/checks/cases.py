"""Static checks of a test case: can its expectations be met, and can a response fail it?"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress

from holodeck.config.checks.findings import CheckContext, Tools
from holodeck.config.checks.metrics import check_forbidden_text, check_metrics, warn_of_no_threshold
from holodeck.config.checks.python_files import require_target
from holodeck.config.yaml.source import KeyPath, find_file
from holodeck.errors import ConfigError
from holodeck.lib.backends.json_paths import has_placeholder
from holodeck.lib.evaluators.build import can_fail, compares_nothing, metrics_of, metrics_of_turn
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.lib.support.patterns import compile_pattern, passes_every_text
from holodeck.lib.support.text import did_you_mean, plural
from holodeck.lib.support.tool_names import is_forbidden, matches_tool_name, tools_named
from holodeck.models.agent import Agent
from holodeck.models.backend import HttpBackendConfig
from holodeck.models.cases.conversation import find_unanswered_step, step_kind, step_value
from holodeck.models.metrics.base import MetricSettings
from holodeck.models.metrics.text import ComparingMetric, NotContainsMetric
from holodeck.models.test_case import ExpectedTool, TestCaseModel, TurnModel

NO_JUDGE = "criteria need a judge model; write 'evaluations: {model: …}'"
NO_SIMULATOR = (
    "a simulated user needs a model; write 'model' under 'simulate' or under 'evaluations'"
)
NOTHING_TO_COMPARE = (
    "'passfail' has nothing to compare and gives no verdict; write 'ground_truth'"
    " ('expected_output' in 'scenarios') or 'expected_tools'"
)
_DECIDING_STEPS = frozenset({"judge", "succeed", "fail"})
_GROUND_TRUTH = frozenset({EvalParam.GROUND_TRUTH, EvalParam.EXPECTED_OUTPUT})
_NOT_IN_TOOL_NAMES = re.compile(r"[?\[\]{}()|^$\\,;<>\"'`]")
"""Characters of patterns, lists and placeholders; no tool that a model calls has them."""
_WORDS_FOR_NOTHING = frozenset({"n/a", "na", "nil", "none", "null"})
"""What people write into a cell of a table to leave it empty."""


def check_case(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Report the findings about one case and its turns."""
    for check in CASE_CHECKS:
        check(context, case, path)


def can_fail_case(agent: Agent, case: TestCaseModel) -> bool:
    """Whether a check of the case can fail it."""
    if case.checks_trajectory or case.checks_spans or case.max_turns_to_done is not None:
        return True
    if any(criterion.required for criterion in case.criterion_settings):
        return True
    if any(step_kind(step) in _DECIDING_STEPS for step in case.script or ()):
        return True
    for _, turn in case.checked_turns:
        if turn.checks_trajectory:
            return True
        if any(can_fail(one) for one in metrics_of_turn(turn) if not compares_nothing(one, turn)):
            return True
    metrics = metrics_of(agent, case)
    return any(can_fail(metric) for metric in metrics if not compares_nothing(metric, case))


def check_pattern(context: CheckContext, pattern: str, path: KeyPath) -> None:
    """Check that a regular expression is valid."""
    try:
        compile_pattern(pattern)
    except ConfigError as error:
        context.error(path, error.message)


def _check_metrics(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    parts: list[tuple[KeyPath, TurnModel]] = [((), case), *case.checked_turns]
    for part_path, part in parts:
        check_metrics(context, part.evaluations or [], (*path, *part_path, "evaluations"))
        check_metrics(context, part.scorers or [], (*path, *part_path, "scorers"))


def _check_verdict(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Check that the metrics have their inputs, and that one of the checks can fail the case."""
    metrics = metrics_of(context.agent, case)
    scorers = case.scorers or []
    evaluations = metrics[: len(metrics) - len(scorers)]
    has_own = case.evaluations is not None
    _check_inputs(context, evaluations, case, (*path, "evaluations"), None if has_own else path)
    _check_inputs(context, scorers, case, (*path, "scorers"))
    if case.todo is not None:
        context.warning((*path, "todo"), f"cannot pass until this is removed: {case.todo}")
    if can_fail_case(context.agent, case):
        warn_of_no_threshold(context, case.evaluations or [], (*path, "evaluations"))
        warn_of_no_threshold(context, scorers, (*path, "scorers"))
    elif case.skip is None and case.todo is None:
        enabled = [
            metric for metric in metrics if metric.enabled and not compares_nothing(metric, case)
        ]
        _warn_of_no_verdict(context, enabled, path)


def _check_case_expectations(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    metrics = metrics_of(context.agent, case)
    enabled = [
        metric for metric in metrics if metric.enabled and not compares_nothing(metric, case)
    ]
    _check_expectations(context, case, enabled, path)


def _check_turns(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    for part_path, turn in case.checked_turns:
        turn_path = (*path, *part_path)
        evaluations, scorers = turn.evaluations or [], turn.scorers or []
        _check_inputs(context, evaluations, turn, (*turn_path, "evaluations"))
        _check_inputs(context, scorers, turn, (*turn_path, "scorers"))
        warn_of_no_threshold(context, evaluations, (*turn_path, "evaluations"))
        warn_of_no_threshold(context, scorers, (*turn_path, "scorers"))
        enabled = [metric for metric in metrics_of_turn(turn) if metric.enabled]
        _check_expectations(context, turn, enabled, turn_path)


def _check_context(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Find a `context` that does not reach the agent and so has no effect."""
    backend = context.agent.backend
    if case.context is None:
        return
    if not context.agent.has_own_model:
        context.error(
            (*path, "context"), "the built-in agent takes no context; only a 'backend' of yours can"
        )
    elif isinstance(backend, HttpBackendConfig) and not has_placeholder(backend.request, "context"):
        context.error(
            (*path, "context"),
            "the request does not contain the context; write '{context}' in backend.request",
        )


def _check_history(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    if case.input_kind != "input" or case.history is not None:
        # Imported here because most cases are one input.
        from holodeck.config.checks.history import check_history_support  # noqa: PLC0415

        check_history_support(context, case, path)


def _check_models(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    if case.uses_judge and context.agent.judge_model is None:
        context.error((*path, "script" if case.criteria is None else "criteria"), NO_JUDGE)
    if case.simulate is not None and context.agent.simulator_model(case) is None:
        context.error((*path, "simulate"), NO_SIMULATOR)


def _check_script(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    unanswered = find_unanswered_step(case.script or ())
    if unanswered is not None:
        context.warning(
            (*path, "script", unanswered), "the agent never answers this; write 'agent' below it"
        )
    for number, step in enumerate(case.script or ()):
        if step_kind(step) == "call":
            try:
                require_target(step_value(step), context.agent.base_dir, "call")
            except ConfigError as error:
                context.config_error((*path, "script", number, "call"), error)


def _check_turns_to_done(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    most = case.most_turns
    if case.max_turns_to_done is not None and most is not None and case.max_turns_to_done >= most:
        context.error(
            (*path, "max_turns_to_done"),
            f"cannot fail: the agent has at most {plural(most, 'turn')}; write less",
        )


def _check_traces(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    if case.checks_spans:
        # Imported here because few cases check spans.
        from holodeck.config.checks.history import check_traces  # noqa: PLC0415

        check_traces(context, case, path)


CASE_CHECKS: tuple[Callable[[CheckContext, TestCaseModel, KeyPath], None], ...] = (
    _check_metrics,
    _check_verdict,
    _check_case_expectations,
    _check_turns,
    _check_context,
    _check_history,
    _check_models,
    _check_script,
    _check_turns_to_done,
    _check_traces,
)
"""Every check of a test case, in the order of the findings."""


def _check_inputs(
    context: CheckContext,
    metrics: Sequence[MetricSettings],
    case: TurnModel,
    path: KeyPath,
    shared_path: KeyPath | None = None,
) -> None:
    """Check that the case has what its metrics need.

    `path` is the list of the metrics; `shared_path` takes its place for metrics of other cases too.
    """
    for index, metric in enumerate(metrics):
        missing = context.inputs.describe_missing(metric, case) if metric.enabled else None
        metric_path = (*path, index) if shared_path is None else shared_path
        if missing is not None:
            context.error(metric_path, missing)
        elif metric.enabled and compares_nothing(metric, case):
            context.warning(metric_path, NOTHING_TO_COMPARE)


def _warn_of_no_verdict(
    context: CheckContext, metrics: Sequence[MetricSettings], path: KeyPath
) -> None:
    if not metrics:
        context.warning(
            path, "checks nothing; add evaluations, criteria, expected_tools or forbidden_tools"
        )
        return
    if any(metric.required and metric.threshold == 0 for metric in metrics):
        return  # reported as errors
    names = ", ".join(dict.fromkeys(metric.label for metric in metrics))
    reason = "without a threshold above 0 gives no verdict"
    if not all(metric.required for metric in metrics):
        reason = "is only reported, because of 'required: false' or no threshold above 0"
    context.warning(path, f"cannot fail: {names} {reason}")


def _check_expectations(
    context: CheckContext, case: TurnModel, metrics: Sequence[MetricSettings], path: KeyPath
) -> None:
    if case.ground_truth is not None:
        if not any(_reads_ground_truth(context, metric) for metric in metrics):
            context.warning(
                (*path, "ground_truth"),
                "no metric compares with it; add one such as 'exact_match' without 'value'",
            )
        for metric in metrics:
            if isinstance(metric, NotContainsMetric) and metric.expected_texts() is None:
                check_forbidden_text(context, case.ground_truth, metric, (*path, "ground_truth"))
    check_tool_names(context, case, path)
    for index, file in enumerate(case.files or []):
        if file.path is None:
            continue
        try:
            find_file(file.path, context.agent.base_dir, "")
        except ConfigError as error:
            file_path = (*path, "files", index, "path")
            context.config_error(file_path, error, stops_the_run=False)


def _reads_ground_truth(context: CheckContext, metric: MetricSettings) -> bool:
    if isinstance(metric, ComparingMetric):
        return metric.expected_texts() is None
    accepts = context.inputs.accepts
    return metric.user_code is not None or any(accepts(metric, one) for one in _GROUND_TRUTH)


def check_tool_names(context: CheckContext, case: TurnModel, path: KeyPath) -> None:
    """Check what a case or turn expects and forbids of tools."""
    is_known = context.knows_all_tools and not context.agent.has_own_model
    tools = context.tools if is_known else None
    for index, expected in enumerate(case.expected_tools or []):
        tool_path = (*path, "expected_tools", index)
        if isinstance(expected, ExpectedTool):
            _check_matchers(context, expected, tool_path)
        matching = _matching_tools(expected, context.tools) or [_name(expected)]
        if all(
            any(is_forbidden(one, tool.name, context.tools, tool.allow) for tool in case.forbidden)
            for one in matching
        ):
            context.error(tool_path, f"{_name(expected)!r} is both expected and forbidden")
        if tools is not None:
            _check_expected_tool(context, expected, tool_path, tools)
    for index, forbidden in enumerate(case.forbidden):
        tool_path = (*path, "forbidden_tools", index)
        for name in (forbidden.name, *forbidden.allow):
            reason = _reason_not_a_tool_name(name)
            if reason is not None:
                context.error(tool_path, f"no call can match {name!r}: {reason}")
            elif tools is not None and not any(is_forbidden(tool, name, tools) for tool in tools):
                context.error(tool_path, _unknown_tool(name, tools))
    _check_most_calls(context, case, path)
    if not context.agent.has_own_model:
        _check_agents(context, case, path)


def _check_agents(context: CheckContext, case: TurnModel, path: KeyPath) -> None:
    """Find checks of the agents that speak, where the built-in agent is the only one."""
    keys: list[KeyPath] = [] if case.handoffs is None else [("handoffs",)]
    keys += [
        ("expected_tools", index, "agent")
        for index, expected in enumerate(case.expected_tools or [])
        if isinstance(expected, ExpectedTool) and expected.agent is not None
    ]
    for key in keys:
        context.error(
            (*path, *key), "the built-in agent is the only one; remove it, or test a 'backend'"
        )


def _check_matchers(context: CheckContext, expected: ExpectedTool, path: KeyPath) -> None:
    """Find patterns that are invalid, and one for the result that every result matches."""
    for argument, matcher in expected.matchers().items():
        if matcher.regex is not None:
            check_pattern(context, matcher.regex, (*path, "args", argument, "regex"))
    result = expected.result_matcher()
    if result is None or result.regex is None:
        return
    result_path = (*path, "result", "regex")
    check_pattern(context, result.regex, result_path)
    with suppress(ConfigError):  # reported above
        if passes_every_text(compile_pattern(result.regex), whole=True) is not None:
            context.error(
                result_path, f"{result.regex!r} matches every text, so no result can fail"
            )


def _check_most_calls(context: CheckContext, case: TurnModel, path: KeyPath) -> None:
    """Find a maximum of tool calls that the expected calls exceed."""
    expected = case.expected_tools
    if case.max_tool_calls is None or not expected or case.order == "subset":
        return
    counts = [1 if isinstance(one, str) else one.count or 1 for one in expected]
    needed = sum(counts) if case.tool_order else max(counts)
    if needed > case.max_tool_calls:
        context.error(
            (*path, "max_tool_calls"),
            f"cannot be met: 'expected_tools' needs {plural(needed, 'tool call')}",
        )


def _reason_not_a_tool_name(name: str) -> str | None:
    """Return why no tool can have this name; None if one can."""
    character = _NOT_IN_TOOL_NAMES.search(name)
    if "{{" in name:
        return "nothing fills this placeholder; add 'parameters', or write the tool's name"
    if character is not None and character[0] in ",;":
        return "it is one name; write each tool as an item of the list: [a, b]"
    if character is not None:
        return f"it contains {character[0]!r}; of patterns, only '*' is read"
    if name.casefold() in _WORDS_FOR_NOTHING or not re.search(r"\w", name):
        return "it is not a tool; leave the list or cell empty, or write the tool's name"
    if re.search(r"\s", name):
        return "it contains white space, which no tool's name has; remove it"
    return None


def _check_expected_tool(
    context: CheckContext, expected: str | ExpectedTool, path: KeyPath, tools: Tools
) -> None:
    matching = _matching_tools(expected, tools)
    name = _name(expected)
    if not matching and _means_a_server(expected, context.tools_of_servers):
        return
    if not matching:
        context.error(path, _unknown_tool(name, tools))
    if isinstance(expected, ExpectedTool) and expected.match == "exact" and len(matching) > 1:
        context.error(
            path, f"{name!r} may be {' or '.join(map(repr, matching))}; write the whole name"
        )
        return
    longer = [tool for tool in matching if not matches_tool_name(name, tool)]
    if longer:
        context.warning(
            path,
            f"{name!r} is only a part of {', '.join(map(repr, longer))}, whose calls count as well;"
            f" write '{{name: {longer[0]}}}' if you mean that tool",
        )
    if isinstance(expected, ExpectedTool) and matching:
        for argument, known in _unknown_arguments(expected, matching, tools):
            hint = did_you_mean(argument, known, f"; it has {', '.join(known)}")
            context.error(
                (*path, "args", argument), f"{matching[0]!r} has no parameter {argument!r}{hint}"
            )


def _unknown_arguments(
    expected: ExpectedTool, matching: Sequence[str], tools: Tools
) -> Iterator[tuple[str, list[str]]]:
    """Yield the arguments that no matching tool has, each with the known parameters."""
    known: list[str] = []
    for name in matching:
        parameters = tools[name]
        if parameters is None:
            return
        known += parameters
    for argument in expected.args:
        if argument not in known:
            yield argument, known


def _name(expected: str | ExpectedTool) -> str:
    return expected if isinstance(expected, str) else expected.name


def _matching_tools(expected: str | ExpectedTool, tools: Tools) -> list[str]:
    if isinstance(expected, ExpectedTool) and expected.match == "exact":
        return tools_named(expected.name, tools)
    return [name for name in tools if _name(expected) in name]


def _means_a_server(expected: str | ExpectedTool, tools: Collection[str]) -> bool:
    """Whether calls of a server's tools count, as in HoloDeck, which calls them `memory-read`."""
    is_part = isinstance(expected, str) or expected.match == "substring"
    return is_part and any(_name(expected) in tool for tool in tools)


def _unknown_tool(name: str, tools: Tools) -> str:
    if not tools:
        return f"unknown tool {name!r}: the agent has no tools"
    return f"unknown tool {name!r}{did_you_mean(name, tools, ';')} known: {', '.join(tools)}"
