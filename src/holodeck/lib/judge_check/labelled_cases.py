"""Responses of recorded runs that people label, and labelled ones as recorded test cases.

A check of a judge so asks what a run asks.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.base import Observation, Turn
from holodeck.lib.evaluators.build import can_fail, needs_judge
from holodeck.lib.evaluators.judge_metric import JudgeEvaluator
from holodeck.lib.judge_check.check_result import Judgement
from holodeck.lib.judge_check.labels import Label
from holodeck.lib.judging.judges import Judges
from holodeck.lib.records.run_store import Run
from holodeck.lib.support.text import did_you_mean, one_line
from holodeck.lib.test_runner.case_state import CaseState
from holodeck.lib.test_runner.grading.checks import CaseChecks, EvaluatorSet
from holodeck.lib.test_runner.grading.grade import ObservationBuilder, grade
from holodeck.lib.test_runner.grading.recorded import (
    Redact,
    keyed_cases,
    match_answers,
    recorded_answers,
)
from holodeck.lib.test_runner.rescore import recorded_state
from holodeck.models.agent import Agent
from holodeck.models.base import KeyPath
from holodeck.models.evaluation import EvaluationConfig
from holodeck.models.metrics.base import MetricSettings
from holodeck.models.metrics.judge import Criterion, JudgeInput, JudgeMetric
from holodeck.models.metrics.judge_trust import CRITERIA
from holodeck.models.results.evidence import Unknown, evidence
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import ToolInvocation, TurnResult
from holodeck.models.token_usage import UsageMeter


def _locate_label(labels: Sequence[Label], agent: Agent, path: KeyPath) -> tuple[str, KeyPath]:
    """Locate a value of an agent whose test cases are labels; `agent` has everything else."""
    match path:
        case ("test_cases", int(index), *_):
            return labels[index].location, ()
    return agent.location(*path), agent.source_path(*path)


class LabelledCases:
    """Grades labelled responses with the code that grades recorded answers in a run.

    Args:
        agent: Has the judge, and the tools and instructions that some metrics read.
        metric: The metric; None for yes-or-no questions with default settings, and `CRITERIA` for
            the judge of `criteria`.
        labels: The responses.
        judges: Where judges are taken from.

    Raises ConfigError if a label lacks an input of the metric, or if no criterion is its own.
    """

    def __init__(
        self,
        agent: Agent,
        metric: MetricSettings | str | None,
        labels: Sequence[Label],
        judges: Judges,
    ) -> None:
        _require_verdict(metric)
        self._agent = agent
        self._metric = metric
        self._judges = judges
        self._observations = ObservationBuilder(agent)
        self._cases: dict[int, tuple[Label, TestCaseModel, CaseChecks]] = {}
        groups: dict[tuple[str | bool, ...], list[tuple[int, Label]]] = {}
        for at, label in enumerate(labels):  # those of a group share an evaluator
            shown = (label.ground_truth is not None, label.retrieval_context is not None)
            groups.setdefault((label.criterion or "", *shown), []).append((at, label))
        for group in groups.values():
            self._add(group)
        self.usage = UsageMeter()

    @property
    def rounds(self) -> int | None:
        """How often the words can change; None if they are always the same."""
        _, _, checks = self._cases[0]
        evaluators = [check.evaluator for check in checks.at_end]
        if evaluators and isinstance(evaluators[0], JudgeEvaluator):
            return evaluators[0].rounds
        return None

    async def judge(self, at: int, *, words: int = 0, variant: Label | None = None) -> Judgement:
        """Return the verdict on the label at that index, as a run would decide it.

        Args:
            at: The index of the label.
            words: The number of the set of wordings, below `rounds`.
            variant: A label to judge instead, with another response or other passages.
        """
        label, case, checks = self._cases[at]
        if variant is not None:
            label = variant
            case = case.model_copy(update={"retrieval_context": variant.retrieval_context})
        if words:
            reworded = [
                replace(check, evaluator=check.evaluator.reworded(words))
                for check in checks.at_end
                if isinstance(check.evaluator, JudgeEvaluator)
            ]
            checks = replace(checks, at_end=reworded or checks.at_end)
        history = label.history or []
        state = CaseState(case, history, turns=[_turn(label)])
        await grade(state, checks, self._observations)
        return self._judgement(label, state)

    def _add(self, group: Sequence[tuple[int, Label]]) -> None:
        """Build the checks of labels that share an evaluator."""
        labels = [label for _, label in group]
        metric, is_about_criteria = self._metric_of(labels[0]), self._metric == CRITERIA
        for label in labels:
            if is_about_criteria and label.criterion is None:
                raise ConfigError(label.location, "'criterion' is missing, which is to be judged")
        cases = [
            TestCaseModel(
                input=label.input,
                ground_truth=label.ground_truth,
                retrieval_context=label.retrieval_context,
                history=label.history,
                expected_tools=label.expected_tools,
                criteria=[label.criterion] if is_about_criteria and label.criterion else None,
            )
            for label in labels
        ]
        shared = self._agent.evaluations or EvaluationConfig.model_construct()
        metrics = [] if metric is None else [metric]
        evaluations = shared.model_copy(update={"metrics": metrics})
        update = {"test_cases": cases, "evaluations": evaluations}
        agent = self._agent.model_copy(update=update)
        agent = agent.with_locator(partial(_locate_label, labels, self._agent))
        checks = EvaluatorSet(agent, judges=self._judges)
        if metric is not None and not checks.checks_of(0).at_end[0].evaluator.asks_judge:
            raise _asks_no_judge(metric)
        for number, (at, label) in enumerate(group):
            self._cases[at] = (label, cases[number], checks.checks_of(number))

    def _metric_of(self, label: Label) -> MetricSettings | None:
        """Return the metric with the label's criterion only; None for the judge of criteria."""
        if self._metric is None:
            return _default_metric(label)
        if isinstance(self._metric, str):
            return None
        if not isinstance(self._metric, JudgeMetric):
            if label.criterion not in (None, self._metric.label):
                raise ConfigError(
                    label.location,
                    f"{self._metric.label!r} has no criteria of its own, and the label has"
                    f" {one_line(label.criterion, 80)!r}; remove 'criterion'",
                )
            return self._metric.model_copy(update={"required": True, "enabled": True})
        return with_one_criterion(self._metric, label)

    def _judgement(self, label: Label, state: CaseState) -> Judgement:
        cost = state.grades.judge_cost
        if cost is not None:
            model = cost.model or ""
            self.usage.add(cost.tokens, model, requests=cost.calls, failed=cost.failed)
        if state.final_ending is not None:
            return Judgement(label, error=state.final_ending.reasoning)
        if state.grades.criteria:
            criterion = state.grades.criteria[0]
            passed = {"passed": True, "failed": False, "inconclusive": None}[criterion.status]
            score = None if passed is None else float(passed)
            return Judgement(label, score, passed, criterion.reasoning)
        row = state.grades.rows[0]
        if row.judge_calls:
            self.usage.add(
                row.judge_tokens,
                row.model_used or "",
                requests=row.judge_calls,
                failed=row.judge_failed,
                seconds=(row.judge_ms or 0) / 1000,
            )
        if row.error is not None:
            return Judgement(label, error=row.error)
        passed = None if row.inconclusive else row.passed
        return Judgement(label, row.score, passed, row.reasoning or "")


def _asks_no_judge(metric: MetricSettings) -> ConfigError:
    return ConfigError("--metric", f"{metric.label!r} asks no judge; name a judged metric")


def _require_verdict(metric: MetricSettings | str | None) -> None:
    """Raise ConfigError for a metric that asks no judge, or that cannot fail."""
    if metric is None or isinstance(metric, str):
        return
    if not needs_judge(metric):
        raise _asks_no_judge(metric)
    if not can_fail(metric.model_copy(update={"required": True, "enabled": True})):
        raise ConfigError(
            "--metric", f"{metric.label!r} has no threshold, so it decides nothing; write one"
        )


def _default_metric(label: Label) -> JudgeMetric:
    """Return a `type: judge` metric with default settings, which sees all texts of the label."""
    if label.criterion is None:
        raise ConfigError(
            label.location, "'criterion' is missing; write one, or name the metric with --metric"
        )
    inputs: list[JudgeInput] = ["history", "input", "response"]
    if label.ground_truth is not None:
        inputs.append("ground_truth")
    if label.retrieval_context is not None:
        inputs.append("retrieval_context")
    return JudgeMetric(type="judge", name="judge", criteria=[label.criterion], inputs=inputs)


def with_one_criterion(metric: JudgeMetric, label: Label) -> JudgeMetric:
    """Return the metric with only the question that the label is about, and its examples."""
    update: dict[str, object] = {"required": True, "enabled": True, "include_reason": False}
    if label.criterion is None:
        return metric.model_copy(update=update)
    questions = [criterion.question for criterion in metric.questions]
    if label.criterion not in questions:
        known = "; ".join(repr(one_line(question, 80)) for question in questions)
        nearest = did_you_mean(label.criterion, questions)
        raise ConfigError(
            label.location,
            f"{metric.label!r} has no criterion {one_line(label.criterion, 80)!r}"
            f"{nearest or f'; known: {known}'}",
        )
    number = questions.index(label.criterion)
    examples = [
        example.model_copy(update={"answers": [example.answers[number]]})
        for example in metric.examples
    ]
    criteria: list[str | Criterion] = [metric.questions[number]]
    return metric.model_copy(update={**update, "criteria": criteria, "examples": examples})


def _turn(label: Label) -> TurnResult:
    """Return what a record would contain of the response."""
    calls = [
        ToolInvocation(name=call.name, args=call.arguments, result=call.result, error=call.error)
        for call in label.tool_calls or ()
    ]
    return TurnResult(
        input=label.input,
        agent_response=label.response,
        tool_invocations=calls,
        evidence=evidence(
            tool_calls=None if label.tool_calls is None else "adapter", history="runner"
        ),
    )


@dataclass(frozen=True)
class UnlabelledResponse:
    """A response that a person is to judge."""

    keys: dict[str, Any]
    """The keys of its label, without the verdict."""

    @property
    def question(self) -> str:
        """What makes it the same as a label, whatever the verdict."""
        return self.label("pass").question

    def label(self, verdict: str, labeler: str | None = None) -> Label:
        """Return the label with the verdict of a person, "pass" or "fail"."""
        given = {"label": verdict} if labeler is None else {"labels": {labeler: verdict}}
        return Label.model_validate({**self.keys, **given})


def responses_to_label(
    agent: Agent, run: Run, metric: MetricSettings | str, redact: Redact = str
) -> list[UnlabelledResponse]:
    """Return a question per recorded response and criterion, in an order that tells nothing.

    The order depends on the texts only, so that labelling can be resumed, and the labels of a part
    are those of a random sample. Equal questions appear once. Raises ConfigError if nothing in the
    run can be labelled.
    """
    observations = ObservationBuilder(agent)
    answers = match_answers(keyed_cases(agent, run, redact), recorded_answers(run))
    responses: dict[str, UnlabelledResponse] = {}
    for index, case in enumerate(agent.test_cases or []):
        result = answers.get(index)
        if result is None or result.outcome in (Outcome.AGENT_ERROR, Outcome.SKIPPED):
            continue
        for repetition in result.repeats.runs if result.repeats else [result]:
            state = recorded_state(repetition, case, CaseChecks([]))
            if not state.turns or state.turns[-1].agent_response is None:
                continue
            observation = observations.of_case(state)
            for criterion in _criteria(case, metric):
                response = UnlabelledResponse(_keys(observation, criterion))
                responses.setdefault(response.question, response)
    if not responses:
        raise ConfigError(
            "RUN",
            f"run {run.id} has no response to label: none of its responses belongs to a case of"
            " this agent that has such criteria",
        )
    hashes = {
        hashlib.sha256(question.encode("utf-8", "surrogatepass")).digest(): response
        for question, response in responses.items()
    }
    return [response for _, response in sorted(hashes.items())]


def _criteria(case: TestCaseModel, metric: MetricSettings | str) -> Sequence[str | None]:
    """Return what is asked about the responses of a case; None for the metric as a whole."""
    if metric == CRITERIA:
        return [setting.text for setting in case.criterion_settings]
    if isinstance(metric, JudgeMetric):
        return [question.question for question in metric.questions]
    return [None]


def _keys(case: Observation, criterion: str | None) -> dict[str, Any]:
    optional = {
        "criterion": criterion,
        "ground_truth": case.ground_truth,
        "retrieval_context": [text for text in case.known_passages if text.strip()],
        "history": list(_history(case.turns[:-2])),
        "expected_tools": [
            tool if isinstance(tool, str) else tool.name for tool in case.expected_tools or ()
        ],
    }
    keys: dict[str, Any] = {"input": case.input, "response": case.response}
    keys |= {key: value for key, value in optional.items() if value}
    if isinstance(case.tool_calls, Unknown):
        return keys
    calls = [
        {"name": call.name, "arguments": call.args, "result": call.result}
        | ({"error": call.error} if call.error else {})
        for call in case.tool_calls
    ]
    return {**keys, "tool_calls": calls}


def _history(turns: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    """Yield earlier messages, tool calls with ids of their own."""
    ids = map("call_{}".format, count(1))
    for turn in turns:
        calls = [(next(ids), call) for call in turn.tool_calls or ()]
        if calls:
            functions = [
                {"id": call_id, "function": {"name": call.name, "arguments": call.args}}
                for call_id, call in calls
            ]
            yield {"role": "assistant", "tool_calls": functions}
        for call_id, call in calls:
            text = call.error if call.result is None and call.error else call.result
            yield {"role": "tool", "tool_call_id": call_id, "content": str(text)}
        yield {"role": turn.role, "content": turn.content}
