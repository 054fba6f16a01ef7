"""Where the tool calls of two agents part."""

import pytest

from holodeck.lib.compare.trajectories import compare_trajectories
from holodeck.models.results.evidence import evidence
from holodeck.models.results.turn import StubUse
from holodeck.models.test_result import NO_RESULT, Outcome, Repeats, ToolInvocation, TurnResult
from support.results import a_result

SEEN, UNSEEN = evidence(tool_calls="adapter"), evidence()


def call(name, result=None, error=None, **args):
    return ToolInvocation(name=name, args=args, result=result, error=error)


def run(*calls, seen=SEEN, outcome=Outcome.PASSED):
    return a_result(outcome, tool_invocations=list(calls), evidence=seen)


def turn(*calls, seen=SEEN):
    return TurnResult(input="go", tool_invocations=list(calls), evidence=seen)


def talk(*turns, outcome=Outcome.PASSED):
    return a_result(outcome, turns=list(turns))


def repeated(*runs):
    repeats = Repeats(planned=len(runs), needed=1, passed=len(runs), runs=list(runs))
    return a_result(repeats=repeats)


def transfer(name, result, to="billing", **args):
    return ToolInvocation(name=name, args=args, result=result, transfer_to=to)


NO_ARGS = ToolInvocation(name="lookup", unknown=["args"])
LOOKUP, REFUND = call("lookup", id=7), call("refund", id=7)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (run(), run()),
        (run(LOOKUP, REFUND), run(LOOKUP, REFUND)),
        (run(call("Orders-lookup", id=7)), run(LOOKUP)),
        (run(LOOKUP), run(call("orders.lookup", id=7))),
        (run(call("lookup", id=7)), run(call("lookup", id=7.0))),
        (run(call("lookup", {"a": 1})), run(call("lookup", '{"a": 1}'))),
        (talk(turn(), turn(LOOKUP)), talk(turn(), turn(LOOKUP))),
        (run(transfer("Handoff-to", None)), run(transfer("hand_over", "{}", agent="billing"))),
    ],
    ids=[
        *("no call", "calls", "plugin of A", "plugin of B", "numbers", "JSON result", "turns"),
        "transfer",
    ],
)
def test_the_same_calls_are_the_same(first, second):
    assert compare_trajectories(first, second).state == "same"


@pytest.mark.parametrize(
    ("first", "second", "at", "kind"),
    [
        (run(LOOKUP, REFUND), run(LOOKUP), (1, 2), "missing"),
        (run(), run(LOOKUP), (1, 1), "missing"),
        (run(LOOKUP), run(REFUND), (1, 1), "tool"),
        (run(LOOKUP, REFUND), run(REFUND, LOOKUP), (1, 1), "order"),
        (run(LOOKUP), run(call("lookup", id="7")), (1, 1), "arguments"),
        (run(call("lookup", 1)), run(call("lookup", error="down")), (1, 1), "error"),
        (run(call("lookup", 1)), run(call("lookup", 2)), (1, 1), "result"),
        (talk(turn(), turn(LOOKUP)), talk(turn(), turn()), (2, 1), "missing"),
        (talk(turn()), talk(turn(), turn()), (2, 1), "missing"),
        (run(call("get"), call("get")), run(call("A-get"), call("B-get")), (1, 1), "tool"),
        (run(call("order")), run(call("get_order")), (1, 1), "tool"),
        (run(LOOKUP, REFUND), run(NO_ARGS), (1, 2), "missing"),
        (run(transfer("a", 1)), run(transfer("b", 1, to="refunds")), (1, 1), "tool"),
        (run(transfer("a", 1, why="x")), run(transfer("a", 1, why="y")), (1, 1), "arguments"),
        (run(transfer("a", 1)), run(call("a", 2)), (1, 1), "result"),
        (run(LOOKUP, transfer("a", 1)), run(transfer("b", 2), LOOKUP), (1, 1), "order"),
    ],
    ids=[
        "fewer",
        "more",
        "tool",
        "order",
        "arguments",
        "error",
        "result",
        "turn",
        "end",
        "vague",
        "part of a name",
        "after unknown arguments",
        "transfer to another agent",
        "transfer for another reason",
        "transfer of A alone",
        "transfer before a call",
    ],
)
def test_the_first_step_that_differs_is_found(first, second, at, kind):
    found = compare_trajectories(first, second)

    assert found.state == "parted"
    assert ((found.divergence.turn, found.divergence.call), found.divergence.kind) == (at, kind)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (run(seen=UNSEEN), run(), "the tool calls of A are unknown"),
        (run(), run(seen=UNSEEN), "the tool calls of B are unknown"),
        (run(seen=UNSEEN), run(seen=UNSEEN), "A are unknown and the tool calls of B are unknown"),
        (run(LOOKUP, REFUND), run(LOOKUP, outcome=Outcome.AGENT_ERROR), "B ended with an error"),
        (talk(turn(), turn(seen=UNSEEN)), talk(turn(), turn()), "the tool calls of A are unknown"),
        (run(LOOKUP), run(NO_ARGS), "the arguments of 'lookup' on B are unknown"),
        (None, run(), "A did not run the case"),
        (run(), a_result(Outcome.SKIPPED), "B did not run the case"),
    ],
    ids=[
        "A unseen",
        "B unseen",
        "both unseen",
        "error",
        "turn unseen",
        "arguments",
        "missing",
        "skipped",
    ],
)
def test_what_is_unknown_is_not_comparable(first, second, reason):
    found = compare_trajectories(first, second)

    assert (found.state, found.divergence) == ("unknown", None)
    assert reason in found.reason


def test_calls_before_an_error_can_part():
    broken = run(REFUND, outcome=Outcome.AGENT_ERROR)

    assert compare_trajectories(run(LOOKUP), broken).state == "parted"
    assert compare_trajectories(run(), broken).state == "parted"


def test_a_result_that_was_not_received_is_counted_and_equal_to_none():
    found = compare_trajectories(
        run(call("lookup", 1), REFUND), run(call("lookup", error=NO_RESULT), REFUND)
    )

    assert (found.state, found.unknown_results) == ("same", 1)


def test_the_result_of_a_stub_is_not_compared_with_that_of_the_tool():
    stubbed = call("lookup", 2).model_copy(update={"stub": StubUse(kind="returns")})

    found = compare_trajectories(run(call("lookup", 1)), run(stubbed))
    both = compare_trajectories(run(stubbed), run(stubbed.model_copy(update={"result": 3})))

    assert (found.state, found.unknown_results) == ("same", 1)
    assert both.state == "parted"


def test_repetitions_are_compared_in_their_order():
    found = compare_trajectories(
        repeated(run(LOOKUP), run(LOOKUP), run(LOOKUP)), repeated(run(LOOKUP), run(), run())
    )

    assert (found.state, found.compared, found.parted) == ("parted", 3, 2)
    assert found.divergence.repetition == 2


def test_one_unknown_repetition_makes_equal_ones_not_comparable():
    found = compare_trajectories(
        repeated(run(LOOKUP), run(LOOKUP)), repeated(run(LOOKUP), run(seen=UNSEEN))
    )

    assert (found.state, found.compared) == ("unknown", 1)


def test_steps_are_described_in_one_short_line():
    long = call("write", text="line\n" * 1_000)

    found = compare_trajectories(run(long), run()).divergence

    assert "\n" not in found.first
    assert len(found.first) < 200


def test_a_transfer_is_compared_with_the_names_of_the_second_agent():
    first = run(transfer("transfer", 1, to="BillingAgent", agent="BillingAgent"))
    second = run(transfer("transfer", 2, to="billing", agent="billing"))

    assert compare_trajectories(first, second).divergence.kind == "arguments"
    assert compare_trajectories(first, second, {"BillingAgent": "billing"}).state == "same"


def spoken(*agents, **fields):
    return a_result(agents=list(agents), evidence=SEEN, **fields)


def turns_of(*turns, outcome=Outcome.PASSED):
    rows = [TurnResult(input="go", agents=agents, evidence=SEEN) for agents in turns]
    return a_result(outcome, turns=rows)


BOTH = ["triage", "billing"]


@pytest.mark.parametrize(
    ("first", "second", "state", "turn"),
    [
        (spoken(*BOTH), spoken(*BOTH), "same", None),
        (spoken(*BOTH), spoken("triage", "refunds"), "parted", 1),
        (spoken(*BOTH), spoken("triage"), "parted", 1),
        (turns_of(["triage"], BOTH), turns_of(["triage"], ["triage"]), "parted", 2),
        (repeated(spoken(*BOTH)), repeated(spoken("triage")), "parted", 1),
        (spoken("support"), spoken("SupportAgent"), None, None),
        (spoken(*BOTH), run(), None, None),
        (turns_of(BOTH, None), turns_of(BOTH, BOTH), None, None),
        (turns_of(BOTH, ["x"]), turns_of(BOTH, ["y"], outcome=Outcome.AGENT_ERROR), None, None),
    ],
    ids=[
        "same",
        "other agent",
        "no hand-off",
        "second turn",
        "repeated",
        "renamed",
        "unknown",
        "turn unknown",
        "error",
    ],
)
def test_hand_offs_are_compared_where_both_are_known(first, second, state, turn):
    found = compare_trajectories(first, second)

    assert found.agents == state
    assert (found.agents_divergence and found.agents_divergence.turn) == turn


def test_a_turn_that_only_one_of_them_had_begins_with_its_first_call():
    more = compare_trajectories(talk(turn()), talk(turn(), turn(REFUND, LOOKUP)))
    silent = compare_trajectories(talk(turn(), turn()), talk(turn()))

    assert more.divergence.second == "called refund(id=7)"
    assert silent.divergence.first == "continued without a tool call"
