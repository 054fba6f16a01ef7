"""Grade what was observed of a test case: tool checks, metrics, criteria, and the outcome."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from holodeck.config.agent_files import load_instructions
from holodeck.errors import ConfigError
from holodeck.lib.checks.matching import Trajectory
from holodeck.lib.checks.tool_checks import check_approvals, check_side_effects, check_tools
from holodeck.lib.evaluators.base import Observation, OfferedTool, Turn
from holodeck.lib.evaluators.inputs import retrieved_passages
from holodeck.lib.support.text import plural
from holodeck.lib.test_runner.case_state import (
    CaseState,
    agents_in,
    approvals_in,
    calls_in,
    evidence_of,
    passages_reported_in,
    result_of_case,
    tools_in,
)
from holodeck.lib.test_runner.grading.checks import CaseChecks, Check
from holodeck.lib.test_runner.grading.scoring import compute_metrics
from holodeck.lib.test_runner.messages import (
    conversation_messages,
    conversation_of,
    count_images,
    to_judge_messages,
)
from holodeck.lib.tools.base import Tool
from holodeck.models.agent import Agent
from holodeck.models.cases.messages import Image
from holodeck.models.results.evidence import Evidence, Unknown, evidence
from holodeck.models.results.outcome import ConversationEnd, CriterionRow, Outcome, combine_outcomes
from holodeck.models.test_case import TurnModel
from holodeck.models.test_result import (
    MetricResult,
    TestResult,
    ToolCheck,
    TurnResult,
    tools_matched,
)
from holodeck.models.token_usage import sum_of

logger = logging.getLogger(__name__)

NO_CONCLUSION = (
    "the script ended without a conclusion: end it with 'judge', 'succeed' or 'fail', or write"
    " 'criteria' or other checks for the case"
)
UNGRADED = ConversationEnd(code="timeout", reasoning="still computing metrics", broke=True)
"""How a case ends whose time runs out while metrics are computed."""
_BY_USER_OR_JUDGE = frozenset({"user_done", "judged"})
"""Ends of a conversation that decide nothing themselves, but say that it is over."""


async def grade(state: CaseState, checks: CaseChecks, observations: "ObservationBuilder") -> None:
    """Check and judge everything that was observed; the grades of the state get the results.

    Where the agent failed or the conversation broke off, nothing is graded, except that the tool
    calls that are known of a case of one input are checked.
    """
    case, grades, ending = state.case, state.grades, state.final_ending
    broke_off = ending is not None and ending.broke
    is_complete = bool(state.turns) and not state.errors and not broke_off
    if is_complete and case.turns is not None:
        for at, (turn, turn_checks) in enumerate(zip(case.turns, checks.of_turns, strict=True)):
            conversation = conversation_of(state.history, state.turns[: at + 1])
            await grade_turn(state, at, turn, turn_checks, observations, conversation)
    if is_complete or (case.input and state.answers):
        grades.tool_checks = _check_tools(case, state.turns, observations)
        grades.tool_checks += check_side_effects(calls_in(state.turns))
        grades.tool_checks += _check_stubs(state)
    grades.tool_checks += _check_requests(state)
    if not is_complete:
        return
    grades.tool_checks += _check_trace(case, state.turns)
    observation = observations.of_case(state)
    await _compute_metrics(state, checks.at_end, observation, grades.rows)
    criteria = checks.criteria
    if criteria is not None and criteria.are_about_the_whole and not state.are_criteria_judged:
        messages = state.messages or conversation_messages(state.turns, state.images)
        await criteria.judge(state, [*to_judge_messages(state.history), *messages])
    if case.max_turns_to_done is not None:
        grades.tool_checks.append(_check_turns_to_done(case.max_turns_to_done, state))
    if criteria is not None:
        criteria.end_if_distrusted(state)


async def grade_turn(
    state: CaseState,
    index: int,
    expectations: TurnModel,
    checks: Sequence[Check],
    observations: "ObservationBuilder",
    conversation: tuple[Turn, ...],
) -> Outcome:
    """Check a turn, with the conversation until its end; return what these checks decide.

    The results are added to those of earlier checks of the turn.
    """
    turn, rows = state.graded_turns[index], list[MetricResult]()
    tool_checks = _check_tools(expectations, [turn], observations)
    tool_checks += _check_trace(expectations, [turn])
    images = state.images[index] if index < len(state.images) else ()
    observation = observations.of_turn(turn, expectations, conversation, state.case.name, images)
    try:
        await _compute_metrics(state, checks, observation, rows)
    finally:
        outcome = outcome_of_checks([], tool_checks, rows, checks)
        known = [turn.outcome] if turn.outcome is not None else []
        of_agent = [Outcome.FAILED] if turn.errors else []
        update = {
            "expected_tools": expectations.expected_tools or turn.expected_tools,
            "tool_checks": [*turn.tool_checks, *tool_checks],
            "metric_results": [*turn.metric_results, *rows],
            "ground_truth": expectations.ground_truth or turn.ground_truth,
            "outcome": combine_outcomes([*known, *of_agent, outcome]),
        }
        state.grades.turns[index] = turn.model_copy(update=update)
    return outcome


def _check_tools(
    expectations: TurnModel, turns: Sequence[TurnResult], observations: "ObservationBuilder"
) -> list[ToolCheck]:
    """Return the rows about the tool calls and the agents of these turns."""
    offered = tools_in(turns)
    trajectory = Trajectory(
        calls_in(turns),
        evidence_of(turns),
        agents_in(turns),
        observations.tool_names(offered),
        observations.withheld_tools(offered),
    )
    asked = approvals_in(turns)
    return [*check_tools(expectations, trajectory), *check_approvals(expectations, asked)]


def _check_stubs(state: CaseState) -> list[ToolCheck]:
    """Return the rows about stubs that were not delivered, and about calls without a stub."""
    if not (state.case.stubs_of_tools or state.case.is_sealed):
        return []
    # Imported here because few cases have stubs.
    from holodeck.lib.stubs.case_stubs import check_deliveries  # noqa: PLC0415

    turns = state.turns
    observed = Trajectory(calls_in(turns), evidence_of(turns))
    return check_deliveries(
        state.case, observed, [call for turn in turns for call in turn.stubbed_calls]
    )


def _check_requests(state: CaseState) -> list[ToolCheck]:
    """Return the rows about the scripted model and the faults of the model."""
    case = state.case
    requests = [request for turn in state.turns for request in turn.handled_requests]
    if not state.turns or not (requests or case.model_replies or case.model_faults):
        return []
    # Imported here because few cases have any.
    from holodeck.lib.tap.case_requests import check_requests  # noqa: PLC0415

    rows = check_requests(case.model_replies or (), case.model_faults or (), requests)
    # the error of an agent that got no answer mostly says why
    return [row for row in rows if not any(str(row.error) in error for error in state.errors)]


def _check_trace(expectations: TurnModel, turns: Sequence[TurnResult]) -> list[ToolCheck]:
    """Return the rows about the spans of the agent in these turns."""
    if expectations.trace is None:
        return []
    # Imported here because few cases check spans.
    from holodeck.lib.checks.trace_checks import check_trace  # noqa: PLC0415

    return check_trace(expectations.trace, [turn.trace for turn in turns])


def _check_turns_to_done(most: int, state: CaseState) -> ToolCheck:
    """Return the row for `max_turns_to_done` of a conversation that took place.

    It ended with success if its script or its judge says so, or the simulated user was done, and no
    required criterion was missed.
    """
    ending, turns, reason = state.final_ending, len(state.turns), None
    missed = [row.criterion for row in state.grades.criteria if row.is_missed]
    if ending is None:
        reason = "the conversation has no end"
    elif missed:
        reason = f"it ended without success: criterion {missed[0]!r} was missed"
    elif not ending.passed and (ending.passed is False or ending.code not in _BY_USER_OR_JUDGE):
        reason = f"it ended without success: {ending.reasoning or ending.code}"
    elif turns > most:
        reason = f"it took {plural(turns, 'turn')} of the agent instead of at most {most}"
    expectation = f"done within {plural(most, 'turn')} of the agent"
    return ToolCheck(expectation=expectation, passed=reason is None, reason=reason)


def decide_outcome(state: CaseState, checks: CaseChecks) -> tuple[Outcome, ConversationEnd | None]:
    """Return what became of the case, and how it ended.

    A script that nothing concludes, no check either, fails.

    A case with a `todo` does not pass, whatever its other checks say.
    """
    if state.misses:
        return Outcome.METRIC_ERROR, state.final_ending
    if state.errors:
        return Outcome.AGENT_ERROR, state.final_ending
    grades, ending = state.grades, state.final_ending
    faults = state.turns[0].errors if state.case.input and state.turns else []
    outcome = combine_outcomes(
        [
            outcome_of_checks(faults, grades.tool_checks, grades.rows, checks.at_end),
            *(turn.outcome for turn in state.graded_turns if turn.outcome is not None),
            _outcome_of_ending(ending),
            _outcome_of_criteria(grades.criteria),
        ]
    )
    is_open = ending is not None and ending.code == "no_conclusion"
    if ending is not None and is_open and outcome is Outcome.UNCHECKED:
        update = {"passed": False, "reasoning": NO_CONCLUSION}
        return Outcome.FAILED, ending.model_copy(update=update)
    is_unwritten = state.case.todo is not None and outcome is Outcome.PASSED
    return Outcome.UNCHECKED if is_unwritten else outcome, ending


def outcome_of_checks(
    faults: Sequence[str],
    tool_checks: Sequence[ToolCheck],
    rows: Sequence[MetricResult],
    checks: Sequence[Check],
) -> Outcome:
    """Return what the checks of a case or turn decide; `faults` are what the agent did wrong.

    What is decided outranks what is not, and nothing passes without a check that could fail. Rows
    that are not required decide nothing.
    """
    rows = [row for row in rows if row.required]
    failed = [row for row in rows if row.passed is False]
    final = {check.name for check in checks if check.fail_on_error}
    broken = [row for row in failed if row.error is not None and row.metric_name not in final]
    undecided = [row for row in rows if row.inconclusive]
    if faults or len(failed) > len(broken):
        return Outcome.FAILED
    if any(not check.passed and check.error is None for check in tool_checks):
        return Outcome.FAILED
    if any(row.metric_name in final for row in undecided):
        return Outcome.FAILED
    if broken or undecided or any(check.error for check in tool_checks):
        return Outcome.METRIC_ERROR
    is_decided = tool_checks or any(row.passed is not None for row in rows)
    return Outcome.PASSED if is_decided else Outcome.UNCHECKED


def _outcome_of_ending(ending: ConversationEnd | None) -> Outcome:
    if ending is None:
        return Outcome.UNCHECKED
    if ending.broke:
        return Outcome.METRIC_ERROR
    return {True: Outcome.PASSED, False: Outcome.FAILED, None: Outcome.UNCHECKED}[ending.passed]


def _outcome_of_criteria(rows: Sequence[CriterionRow]) -> Outcome:
    if any(row.is_missed for row in rows):
        return Outcome.FAILED
    return Outcome.PASSED if any(row.required for row in rows) else Outcome.UNCHECKED


def ending_errors(ending: ConversationEnd | None) -> list[str]:
    """Return what the end of a conversation adds to the errors of a result."""
    if ending is None or not (ending.broke or ending.passed is False):
        return []
    return [ending.reasoning or ending.code]


def build_result(
    state: CaseState, checks: CaseChecks, observations: "ObservationBuilder", elapsed_ms: int
) -> TestResult:
    """Return the result of a run of a case from what is known of it."""
    case, turns, seconds = state.case, state.turns, state.agent_seconds
    calls, observed = calls_in(turns), evidence_of(turns)
    is_answered = bool(turns) and not state.errors
    # but for those that say that a request is not recorded
    errors = [error for error in state.errors if not any(miss in error for miss in state.misses)]
    return result_of_case(
        case,
        history=list(state.history),
        processed_files=[file for turn in turns for file in turn.processed_files],
        agent_response=turns[-1].agent_response if is_answered else None,
        tool_calls=[call.name for call in calls],
        tool_invocations=calls,
        execution_time_ms=elapsed_ms,
        agent_time_ms=None if seconds is None else round(seconds * 1000),
        raised=state.raised,
        attempts=[attempt for turn in turns for attempt in turn.attempts],
        model_requests=[request for turn in turns for request in turn.model_requests],
        stubbed_calls=[call for turn in turns for call in turn.stubbed_calls],
        handled_requests=[request for turn in turns for request in turn.handled_requests],
        token_usage=sum_of(answer.token_usage for answer in state.answers),
        model=turns[0].model if len(turns) == 1 else None,
        agents=None if observed.agents is None else agents_in(turns),
        tools=None if observed.tools is None else tools_in(turns),
        retrieval_context=passages_reported_in(turns),
        approvals=approvals_in(turns),
        recording=state.recording.use if state.recording is not None else None,
        evidence=observations.with_tools(observed),
        **_graded_fields(state, checks, [*state.misses, *errors, *state.faults]),
    )


def regraded_result(recorded: TestResult, state: CaseState, checks: CaseChecks) -> TestResult:
    """Return a recorded result with what is known of it now that it is graded again."""
    update = _graded_fields(state, checks, state.faults)
    case = state.case
    update |= {"expected_tools": case.expected_tools, "ground_truth": case.ground_truth}
    return recorded.model_copy(update={**update, "cost": None})


def _graded_fields(state: CaseState, checks: CaseChecks, errors: list[str]) -> dict[str, Any]:
    """Return the fields of a result that grading decides; `errors` are those of the agent."""
    outcome, ending = decide_outcome(state, checks)
    grades, turns = state.grades, state.graded_turns
    return {
        "tools_matched": tools_matched(grades.tool_checks),
        "tool_checks": grades.tool_checks,
        "metric_results": grades.rows,
        "todo": state.case.todo,
        "passed": outcome is Outcome.PASSED,
        "outcome": outcome,
        "errors": [*errors, *ending_errors(ending)],
        "turns": [] if state.case.input else turns,
        "trace": turns[0].trace if state.case.input and turns else None,
        "messages": state.messages,
        "criteria": grades.criteria,
        "ending": ending,
        "judge_cost": grades.judge_cost,
        "simulator_cost": state.simulator_cost,
    }


class ObservationBuilder:
    """Builds what metrics see: what was observed, with what is known of the agent."""

    def __init__(self, agent: Agent, *, is_injected: bool = False) -> None:
        self._agent = agent
        self.offered: Sequence[Tool] | None = None
        """The tools of the built-in agent; None if the run did not open them."""
        self._knows_tools = not (is_injected or agent.has_own_model)
        self._configured_tools = [tool.name for tool in agent.tools or []]

    def of_case(self, state: CaseState) -> Observation:
        """Return the observation of the whole case."""
        conversation: tuple[Turn, ...] = ()
        if state.history or not state.case.input:
            conversation = conversation_of(state.history, state.turns, state.messages)
        if state.case.input and state.agent_seconds is not None:
            latency: float | None = state.agent_seconds * 1000
        else:
            known = [turn.agent_time_ms for turn in state.turns if turn.agent_time_ms is not None]
            is_replayed = any(turn.evidence.history == "replay" for turn in state.turns)
            latency = sum(known) if known and not is_replayed else None
        observation = self._build(state.turns, state.case, conversation, state.case.name, latency)
        return replace(
            observation,
            graded_from=sum(turn.earlier for turn in conversation),
            images=tuple(image for images in state.images for image in images),
        )

    def of_turn(
        self,
        turn: TurnResult,
        expectations: TurnModel,
        conversation: tuple[Turn, ...],
        name: str | None,
        images: Sequence[Image] = (),
    ) -> Observation:
        """Return the observation of a turn of the case of that name."""
        observation = self._build([turn], expectations, conversation, name, turn.agent_time_ms)
        return replace(observation, graded_from=len(conversation) - 1, images=tuple(images))

    def with_tools(self, observed: Evidence) -> Evidence:
        """Return the evidence with where the tools of the agent are known from."""
        return evidence(**vars(observed) | {"tools": "backend"}) if self._knows_tools else observed

    def tool_names(self, observed: Sequence[str]) -> Sequence[str]:
        """Return the tools that the agent is known to have: those its backend names, or ours."""
        return observed or self._configured_tools

    def withheld_tools(self, offered: Sequence[str]) -> Sequence[str]:
        """Return the tools that the agent has but that the model was not offered."""
        filtering = self._agent.tool_filtering
        if not self._knows_tools or filtering is None or not filtering.enabled:
            return ()
        return [tool.name for tool in self._known_tools or () if tool.name not in offered]

    def _build(
        self,
        turns: Sequence[TurnResult],
        expectations: TurnModel,
        conversation: tuple[Turn, ...],
        name: str | None,
        latency_ms: float | None,
    ) -> Observation:
        """Return the observation; `input` is what the user said since the response before.

        Without `retrieval_context`, the passages are those that the agent retrieved.
        """
        calls, given = calls_in(turns), expectations.retrieval_context
        files = [file.markdown_content for turn in turns for file in turn.processed_files]
        observed = evidence_of(turns)
        return Observation(
            response=turns[-1].agent_response or "",
            input=turns[-1].input if conversation else expectations.input,
            ground_truth=expectations.ground_truth,
            retrieval_context=tuple(given) if given else self._retrieved(turns),
            tool_calls=Unknown("tool_calls", observed)
            if observed.tool_calls is None
            else tuple(calls),
            case_name=name,
            latency_ms=latency_ms,
            file_content="\n\n".join(files) or None,
            image_count=sum(count_images(turn) for turn in turns),
            expected_tools=expectations.expected_tools,
            turns=conversation,
            instructions=self._instructions,
            tools=self._tools() if self._knows_tools else Unknown("tools"),
            evidence=self.with_tools(observed),
        )

    def _retrieved(self, turns: Sequence[TurnResult]) -> tuple[str, ...] | Unknown:
        """Return what the agent retrieved; of the built-in agent, all is known."""
        tools, passages = self._agent.retrieving_tools, list[str]()
        for number, turn in enumerate(turns, 1):
            retrieved = retrieved_passages(turn, tools)
            if not isinstance(retrieved, Unknown):
                passages += retrieved
            elif tools or not self._knows_tools:
                place = f"turn {number}: " if len(turns) > 1 else ""
                return Unknown("retrieval_context", reason=place + retrieved.reason)
        return tuple(passages)

    @cached_property
    def _instructions(self) -> str | None:
        return load_instructions(self._agent) or None

    def _tools(self) -> tuple[OfferedTool, ...] | Unknown:
        if self._known_tools is None:
            return Unknown("tools")
        return tuple(
            OfferedTool(tool.name, tool.description, tool.parameters, tool.server)
            for tool in self._known_tools
        )

    @property
    def _known_tools(self) -> Sequence[Tool] | None:
        return self.offered if self.offered is not None else self._functions

    @cached_property
    def _functions(self) -> Sequence[Tool] | None:
        """The tools of the agent.yaml; None if some are known only once they are opened."""
        from holodeck.lib.tools.toolbox import Toolbox, ToolContext  # noqa: PLC0415 - only `score`

        try:
            return Toolbox(ToolContext(self._agent)).tools
        except ConfigError as error:  # only `holodeck score` gets here; a run would have failed
            logger.warning("metrics do not see the agent's tools: %s", error)
            return ()


async def _compute_metrics(
    state: CaseState, checks: Sequence[Check], observation: Observation, rows: list[MetricResult]
) -> None:
    """Compute the metrics; if time runs out meanwhile, the agent is not to blame."""
    state.late_ending = UNGRADED
    await compute_metrics(checks, observation, rows)
    state.late_ending = None
