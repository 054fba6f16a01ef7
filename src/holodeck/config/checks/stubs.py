"""Static checks of stubs: are there such tools and arguments, and can each stub be delivered?"""

from collections.abc import Iterator

from holodeck.config.checks.findings import CheckContext
from holodeck.config.checks.tools import check_pattern, unknown_tool
from holodeck.config.yaml.source import KeyPath
from holodeck.lib.backends.base import (
    NO_MODEL_STAND_INS,
    NO_SEAL_BEHIND_TAP,
    NO_STUBS,
    model_problem,
)
from holodeck.lib.checks.matching import short
from holodeck.lib.stubs.case_stubs import change, must_be_delivered
from holodeck.lib.support.text import did_you_mean, plural
from holodeck.lib.support.tool_names import is_forbidden, tools_named
from holodeck.models.agent import IN_PYTHON
from holodeck.models.backend import (
    A2aBackendConfig,
    HttpBackendConfig,
    McpBackendConfig,
    ProcessBackendConfig,
)
from holodeck.models.cases.expectations import ExpectedTool
from holodeck.models.cases.stubs import Stub
from holodeck.models.test_case import TestCaseModel


def check_stubs(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Check what stands in for the tools of a case."""
    backend = context.agent.backend
    elsewhere = HttpBackendConfig | ProcessBackendConfig | A2aBackendConfig | McpBackendConfig
    if isinstance(backend, elsewhere):
        is_tapped, can_be = getattr(backend, "tap", False), hasattr(backend, "tap")
        if case.stubs and not is_tapped:
            advice = ", or write 'tap: true' under 'backend'" if can_be else ""
            context.error((*path, "stubs"), f"{NO_STUBS}{advice}")
        if case.is_sealed:
            context.error((*path, "tools_in_test"), NO_SEAL_BEHIND_TAP if is_tapped else NO_STUBS)
    for tool, stubs in case.stubs_of_tools.items():
        tools = tools_named(tool, context.tools)
        knows_tools = context.knows_all_tools and not context.agent.has_own_model
        if knows_tools and not tools:
            context.error((*path, "stubs", tool), unknown_tool(tool, context.tools))
        for at, stub in enumerate(stubs):
            stub_path = (*path, "stubs", tool, at)
            _check_arguments(context, stub, tools, stub_path)
            _check_effect(context, stub, stub_path)
            if case.is_sealed and stub.runs_tool:
                message = f"{stub.kind!r} runs the tool, which is sealed; write 'returns' beside it"
                context.error(stub_path, message)
            if must_be_delivered(stub, at):
                for reason in _reasons_not_reached(case, tool, stub):
                    context.error(stub_path, f"{stub} cannot be delivered: {reason}")


def check_model(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Check what stands in for the model of a case."""
    agent, replies, faults = context.agent, case.model_replies, case.model_faults or []
    problem = model_problem(agent.model)
    if agent.has_own_model:
        # of an object, only the run knows
        passes = agent.backend == IN_PYTHON or getattr(agent.backend, "tap", False)
        problem = None if passes else NO_MODEL_STAND_INS
    for key, given in {"model_replies": replies, "model_faults": faults}.items():
        if given and problem is not None:
            context.error((*path, key), problem)
    if replies is None:
        if agent.model is not None and agent.model.protocol == "scripted":
            context.error(path, "'provider: scripted' needs 'model_replies', which the case lacks")
        return
    for index, fault in enumerate(faults):
        # a request with one of these takes no reply
        replaced = [other for other in faults if other.replaces_response]
        earlier = sum(other.call < fault.call for other in replaced)
        if fault.call > len(replies) + earlier + fault.replaces_response:
            reason = f"'model_replies' has {plural(len(replies), 'reply', 'replies')}"
            message = f"the fault {fault.kind!r} at call {fault.call} cannot be delivered: {reason}"
            context.error((*path, "model_faults", index), message)


def _check_arguments(context: CheckContext, stub: Stub, tools: list[str], path: KeyPath) -> None:
    """Check the arguments that calls must have, as far as those of the tools are known."""
    for argument, matcher in stub.matchers().items():
        if matcher.regex is not None:
            check_pattern(context, matcher.regex, (*path, "when", argument, "regex"))
        for tool in tools:
            known = context.tools.get(tool)
            if known is not None and argument not in known:
                hint = did_you_mean(argument, known, f"; it has {', '.join(known) or 'none'}")
                message = f"{tool!r} has no parameter {argument!r}{hint}"
                context.error((*path, "when", argument), message)


def _check_effect(context: CheckContext, stub: Stub, path: KeyPath) -> None:
    """Find a fault that changes nothing of the result that is written beside it."""
    is_change = stub.has_result and stub.kind not in {"returns", "delay"}
    if is_change and change(stub, stub.returns) == stub.returns:
        context.error(path, f"{stub.kind!r} changes nothing of {short(stub.returns)}")


def _reasons_not_reached(case: TestCaseModel, tool: str, stub: Stub) -> Iterator[str]:
    """Yield why a case that passes cannot make a call that gets the stub."""
    if any(is_forbidden(tool, other.name, (), other.allow) for other in case.forbidden):
        yield f"'forbidden_tools' forbids {tool!r}; write 'optional: true'"
    if case.expected_tools == []:
        yield "'expected_tools: []' forbids all tools; write 'optional: true'"
    number = stub.call or 1
    counts = [
        expected.count
        for expected in case.expected_tools or ()
        if isinstance(expected, ExpectedTool) and expected.name == tool and not expected.args
    ]
    count = counts[0] if len(counts) == 1 else None
    if count is not None and count < number:
        yield f"'expected_tools' expects {plural(count, 'call')} of {tool!r}"
    if case.max_tool_calls is not None and case.max_tool_calls < number:
        yield f"'max_tool_calls' is {case.max_tool_calls}"
