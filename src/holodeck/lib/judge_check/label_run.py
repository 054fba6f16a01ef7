"""The responses of a recorded run, as questions to a person who labels them for a check."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.base import Observation, Turn
from holodeck.lib.judging.labels import Label
from holodeck.lib.records.run_store import Run
from holodeck.lib.test_runner.checks import CaseChecks
from holodeck.lib.test_runner.grade import ObservationBuilder
from holodeck.lib.test_runner.recorded import Redact, keyed_cases, match_answers, recorded_answers
from holodeck.lib.test_runner.rescore import recorded_state
from holodeck.models.agent import Agent
from holodeck.models.metrics.base import MetricSettings
from holodeck.models.metrics.judge import JudgeMetric
from holodeck.models.metrics.judge_trust import CRITERIA
from holodeck.models.results.evidence import Unknown
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import ToolInvocation


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
    """Return one question per recorded response and criterion, in an order that tells nothing.

    The order depends on the texts only, so that labelling can be resumed, and the labels of a part
    are those of a random sample. Equal questions appear once. Raises ConfigError if nothing in the
    run can be labelled.
    """
    observations = ObservationBuilder(agent)
    answers = match_answers(keyed_cases(agent, run, redact), recorded_answers(run))
    found: dict[str, UnlabelledResponse] = {}
    for index, case in enumerate(agent.test_cases or []):
        result = answers.get(index)
        if result is None or result.outcome in (Outcome.AGENT_ERROR, Outcome.SKIPPED):
            continue
        for one in result.repeats.runs if result.repeats else [result]:
            state = recorded_state(one, case, CaseChecks([]))
            if not state.turns or state.turns[-1].agent_response is None:
                continue
            observation = observations.of_case(state)
            for criterion in _criteria(case, metric):
                response = UnlabelledResponse(_keys(observation, criterion))
                found.setdefault(response.question, response)
    if not found:
        raise ConfigError(
            "RUN",
            f"run {run.id} has no response to label: none of its responses belongs to a case of"
            " this agent that has such criteria",
        )
    return sorted(found.values(), key=_shuffled)


def _shuffled(response: UnlabelledResponse) -> bytes:
    return hashlib.sha256(response.question.encode("utf-8", "surrogatepass")).digest()


def _criteria(case: TestCaseModel, metric: MetricSettings | str) -> Sequence[str | None]:
    """Return what is asked about the responses of a case; None for the metric as a whole."""
    if metric == CRITERIA:
        return [one.text for one in case.criterion_settings]
    if isinstance(metric, JudgeMetric):
        return [one.question for one in metric.questions]
    return [None]


def _keys(seen: Observation, criterion: str | None) -> dict[str, Any]:
    known = {} if isinstance(seen.tool_calls, Unknown) else {"tool_calls": _calls(seen.tool_calls)}
    earlier = list(_history(seen.turns[:-2]))
    expected = [one if isinstance(one, str) else one.name for one in seen.expected_tools or ()]
    optional = {
        "criterion": criterion,
        "ground_truth": seen.ground_truth,
        "retrieval_context": [one for one in seen.retrieval_context if one.strip()],
        "history": earlier,
        "expected_tools": expected,
    }
    return {
        "input": seen.input,
        "response": seen.response,
        **{key: value for key, value in optional.items() if value},
        **known,
    }


def _calls(calls: Sequence[ToolInvocation]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "arguments": one.args,
            "result": one.result,
            **({"error": one.error} if one.error else {}),
        }
        for one in calls
    ]


def _history(turns: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    """Yield earlier messages, tool calls with ids of their own."""
    count = 0
    for turn in turns:
        calls = []
        for call in turn.tool_calls or ():
            count += 1
            calls.append((f"call_{count}", call))
        if calls:
            functions = [
                {"id": name, "function": {"name": one.name, "arguments": one.args}}
                for name, one in calls
            ]
            yield {"role": "assistant", "tool_calls": functions}
            for name, one in calls:
                text = one.error if one.result is None and one.error else one.result
                yield {"role": "tool", "tool_call_id": name, "content": str(text)}
        yield {"role": turn.role, "content": turn.content}
