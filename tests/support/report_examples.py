"""Reports that show everything a page can show."""

from holodeck.models.records.record import CaseTrend, PastOutcome, RateChange, RunLine, RunTrends
from holodeck.models.results.outcome import Attempt, CriterionRow, Outcome, RaisedError, Vote
from holodeck.models.test_result import (
    MetricResult,
    Repeats,
    Spread,
    TestReport,
    TestResult,
    ToolCheck,
    ToolInvocation,
    TurnResult,
)
from holodeck.models.token_usage import Cost, TokenUsage
from support.results import a_report, a_result


def contains(is_found: bool, wanted: str = "thirty") -> MetricResult:
    return MetricResult(
        metric_name="contains",
        score=float(is_found),
        threshold=1,
        passed=is_found,
        reasoning=None if is_found else f"did not find {wanted!r}",
    )


def refund() -> TestResult:
    """A failed case with tool calls, a judge, tokens and costs."""
    return a_result(
        Outcome.FAILED,
        test_name="refunds nothing on its own",
        test_id="refund",
        suite="returns",
        tags=["smoke", "money"],
        location="agent.yaml:41:5",
        test_input="I bought shoes 12 days ago and they don't fit. Can I get my money back?",
        agent_response="You can return them within thirty days. I have started the refund.",
        ground_truth="Returns are possible within thirty days.",
        tool_invocations=[
            ToolInvocation(
                name="search_terms",
                args={"query": "returns", "top_k": 1},
                result="Returns: within thirty days, unworn, with the receipt.",
                duration_ms=41,
            ),
            ToolInvocation(
                name="start_refund",
                args={"order": 12345678901234567890, "customer": {"name": "Ada", "vip": True}},
                result={"ok": True, "amount": 79.9},
                duration_ms=210,
            ),
        ],
        tool_checks=[
            ToolCheck(
                expectation="forbidden_tools: start_refund",
                passed=False,
                reason="start_refund was called",
            )
        ],
        metric_results=[
            contains(True),
            MetricResult(
                metric_name="faithfulness",
                score=0.52,
                threshold=0.8,
                passed=False,
                model_used="gpt-4o",
                judge_calls=3,
                judge_ms=1800,
                judge_tokens=TokenUsage.of(900, 60),
                reasoning="The context says nothing of a refund that was started.",
                judge_prompts=["system:\nYou check answers.\n\nuser:\n<answer 1>Paid.</answer 1>"],
                votes=[
                    Vote(question="Does the context support the answer?", answer=one, score=share)
                    for one, share in (("no", 0.21), ("yes", 0.83), ("no", 0.52))
                ],
            ),
        ],
        token_usage=TokenUsage.of(812, 94),
        cost=Cost(currency="USD", total=0.0093, agent=0.0041, judges=0.0052),
        execution_time_ms=3120,
        agent_time_ms=1320,
    )


def example_report() -> TestReport:
    """A report with every kind of case."""
    raised = RaisedError(
        error="KeyError: 'order'",
        file="agent.py",
        line=12,
        function="answer",
        code="return orders[number]",
        traceback=['  File "agent.py", line 12, in answer', "    return orders[number]"],
    )
    turns = [
        TurnResult(
            input="I am asking about order 7.",
            agent_response="Sure, order 7.",
            outcome=Outcome.PASSED,
            metric_results=[contains(True)],
        ),
        TurnResult(
            input="Has it been paid?",
            agent_response="Which order?",
            outcome=Outcome.FAILED,
            metric_results=[contains(False, "paid")],
        ),
    ]
    runs = [
        a_result(
            Outcome.PASSED if is_right else Outcome.FAILED,
            agent_response="Within thirty days." if is_right else "Within a month.",
            metric_results=[contains(is_right)],
        )
        for is_right in (True, False, True)
    ]
    return a_report(
        a_result(test_name="greets", suite="small talk", metric_results=[contains(True, "hello")]),
        refund(),
        a_result(
            Outcome.AGENT_ERROR,
            test_name="looks an order up",
            suite="orders",
            agent_response=None,
            errors=["KeyError: 'order'"],
            raised=[raised],
            attempts=[Attempt(number=1, error="429 Too Many Requests", retry_after_ms=1000)],
        ),
        a_result(
            Outcome.FAILED,
            test_name="keeps the order in mind",
            suite="orders",
            tags=["memory"],
            test_input="I am asking about order 7.\nHas it been paid?",
            agent_response="Which order?",
            turns=turns,
            criteria=[CriterionRow(criterion="It is polite", status="passed")],
        ),
        a_result(
            Outcome.FAILED,
            test_name="names the window for returns",
            suite="returns",
            repeats=Repeats(
                planned=3,
                needed=3,
                passed=2,
                interval=(0.21, 0.94),
                spread=[Spread(metric_name="contains", scored=3, mean=0.67, least=0, most=1)],
                runs=runs,
            ),
        ),
        a_result(
            Outcome.FLAKY,
            test_name="says good-bye",
            suite="small talk",
            tries=[a_result(Outcome.FAILED, metric_results=[contains(False, "bye")])],
            metric_results=[contains(True, "bye")],
        ),
        a_result(Outcome.SKIPPED, test_name="speaks Dutch", suite="small talk"),
        agent_name="support",
        notes=["Two judges disagree."],
    )


def example_trends() -> RunTrends:
    """Twelve runs: a case that broke at the seventh, a flaky one, a new one, and one of another
    agent."""
    runs = [
        RunLine(
            id=f"202601{day:02d}-120000-000000-aaaaaa",
            tags=["v1.0"] if day == 6 else [],
            agent="helper" if day == 12 else "support",
            started=f"2026-01-{day:02d}T12:00:00+00:00",
            state="killed" if day == 3 else "finished",
            outcomes={},
            passed=1 if day > 6 else 2,
            ran=3,
            wall_time_ms=None if day == 3 else 21_000,
            cost=0.01 * day,
            currency="USD",
            commit=f"{day:040x}",
            selected="1 of 3 test cases: --tag smoke" if day == 4 else None,
            hashes={"instructions": "1" if day < 7 else "2"},
        )
        for day in range(1, 13)
    ]
    change = RateChange(
        run=runs[6].id,
        before=runs[5].id,
        passed_before=6,
        ran_before=6,
        passed_since=0,
        ran_since=5,
        p_value=0.0043,
    )
    broken = _trend("refunds", "PPPPPPFFFFF", runs, change=change, failing_since=runs[6].id)
    flaky = _trend("greets", "PFPPFPEPFPP", runs, is_flaky=True)
    new = _trend("looks up", "        SPP", runs)
    return RunTrends(
        runs=runs,
        cases=[broken, flaky, new, _trend("helps", "           F", runs, agent="helper")],
        notes=["3 older runs left out, to keep the page small."],
    )


_OUTCOMES = {
    "P": Outcome.PASSED,
    "F": Outcome.FAILED,
    "E": Outcome.AGENT_ERROR,
    "S": Outcome.SKIPPED,
}


def _trend(name: str, letters: str, runs: list[RunLine], **fields: object) -> CaseTrend:
    outcomes = {
        run.id: _OUTCOMES[letter]
        for run, letter in zip(runs, letters, strict=False)
        if letter != " "
    }
    past = [
        PastOutcome(
            run=run,
            timestamp="",
            outcome=outcome,
            elapsed_ms=1200,
            score=float(outcome.is_pass),
            reason="" if outcome.is_pass else f"contains: did not find {name!r}",
        )
        for run, outcome in outcomes.items()
    ]
    basis = {
        "agent": "support",
        "name": name,
        "id": None,
        "suite": "orders" if name == "looks up" else None,
        "input": "hi",
        "tags": ["smoke"],
        "location": "agent.yaml:4:5",
    }
    return CaseTrend.model_validate({**basis, "outcomes": outcomes, "past": past, **fields})
