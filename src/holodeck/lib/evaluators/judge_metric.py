"""The short judge: a question per criterion in a few lines, good enough for small models."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Any, ClassVar, TypedDict, TypeVar, Unpack

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import DEFAULT_THRESHOLD, JudgedEvaluator, RetryConfig
from holodeck.lib.evaluators.judge_prompt import (
    TAGS,
    Example,
    Texts,
    examples_for,
    json_prompt,
    passages,
    reason_prompt,
    word_prompt,
)
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.judging.judge import Judge
from holodeck.lib.llm.errors import RequestError
from holodeck.lib.text import one_line
from holodeck.models.judged_metrics import (
    Criterion,
    JudgeExample,
    Shown,
    as_criterion,
    refuse_other_marks,
)
from holodeck.models.llm import LLMProvider

ALTERNATIVES = 10
"""So many first tokens are told with their chances; more some endpoints refuse."""
LEAST_SHARE = 0.5
"""Where marks share less of the chances, the judge is not about to answer."""
MOST_REASON = 300
_REFUSED = frozenset({400, 404, 422})


@dataclass(frozen=True)
class Opinion:
    """What a judge thinks of one criterion."""

    score: float
    """From 0 (worst) to 1 (best)."""
    mark: str
    """The likeliest of the criterion's marks."""
    reason: str | None = None
    """In the judge's words; None where it was not asked for any."""


class CriterionAsker:
    """Asks for a word and reads how sure the judge is of it.

    Where an endpoint does not tell the chances of words, or does not take the question, it is
    asked for JSON from then on.
    """

    def __init__(self) -> None:
        self._tells_chances = True

    async def opinion(
        self,
        judge: Judge,
        criterion: Criterion,
        texts: Texts,
        shots: Sequence[Example],
        wording: int,
    ) -> Opinion:
        """The judge's opinion. Raises EvaluationError."""
        if self._tells_chances:
            found = await self._by_chances(judge, criterion, texts, shots, wording)
            if found is not None:
                return found
        return await _by_json(judge, criterion, texts, shots, wording)

    async def _by_chances(
        self,
        judge: Judge,
        criterion: Criterion,
        texts: Texts,
        shots: Sequence[Example],
        wording: int,
    ) -> Opinion | None:
        """None where no opinion can be read from chances."""
        messages = word_prompt(criterion, texts, shots, wording)
        try:
            said = await judge.say(messages, max_tokens=1, top_logprobs=ALTERNATIVES)
        except EvaluationError as error:
            fault = error.__cause__
            if not isinstance(fault, RequestError) or fault.status not in _REFUSED:
                raise
            # Some models want room to think, and refuse to answer in one token.
            self._tells_chances = False
            return None
        if said.token_probabilities is None:
            self._tells_chances = False
            return None
        return probability_of_marks(said.token_probabilities, criterion.marks)


async def _by_json(
    judge: Judge, criterion: Criterion, texts: Texts, shots: Sequence[Example], wording: int
) -> Opinion:
    schema = {
        "type": "object",
        "properties": {
            "reason": {"type": "string"},
            "answer": {"type": "string", "enum": list(criterion.marks)},
        },
        "required": ["reason", "answer"],
        "additionalProperties": False,
    }
    said = await judge.ask(json_prompt(criterion, texts, shots, wording), schema)
    score = criterion.marks.index(said["answer"]) / (len(criterion.marks) - 1)
    return Opinion(score, said["answer"], one_line(said["reason"], MOST_REASON) or None)


async def reason_for(
    judge: Judge, criterion: Criterion, texts: Texts, shots: Sequence[Example], mark: str
) -> str:
    """Why the judge said so, in its words. Raises EvaluationError."""
    schema = {
        "type": "object",
        "properties": {"reason": {"type": "string", "minLength": 1}},
        "required": ["reason"],
        "additionalProperties": False,
    }
    asked = reason_prompt(word_prompt(criterion, texts, shots), mark)
    said = await judge.ask(asked, schema)
    return one_line(said["reason"], MOST_REASON)


def probability_of_marks(
    token_probabilities: Mapping[str, float], marks: Sequence[str]
) -> Opinion | None:
    """What the chances of the first tokens say; None if they are hardly about the marks.

    The score is the mean of the marks' places by their chances: of yes and no, the chance of yes.
    """
    weights = dict.fromkeys(marks, 0.0)
    for token, chance in token_probabilities.items():
        word = token.strip(" \t\n▁Ġ\"'*.`").lower()
        if word in weights:
            weights[word] += chance
    share = sum(weights.values())
    if share < LEAST_SHARE:
        return None
    if (
        len(token_probabilities) == 1
    ):  # the others are not told: what is left may belong to any of them
        rest = max(0.0, 1 - share) / len(marks)
        weights = {mark: weight + rest for mark, weight in weights.items()}
        share = sum(weights.values())
    places = enumerate(weights.values())
    mean = sum(place * weight for place, weight in places) / share
    likeliest = max(weights, key=lambda mark: weights[mark])
    return Opinion(min(1.0, mean / (len(marks) - 1)), likeliest)


T = TypeVar("T")

_PARAMS: dict[Shown, EvalParam] = {
    "input": EvalParam.QUERY,
    "response": EvalParam.RESPONSE,
    "ground_truth": EvalParam.GROUND_TRUTH,
    "retrieval_context": EvalParam.RETRIEVAL_CONTEXT,
}


class ShortJudgeOptions(TypedDict, total=False):
    """How it is run, and who judges."""

    model_config: LLMProvider | None
    timeout: float | None
    retry_config: RetryConfig | None
    judge: Judge | None


@dataclass(frozen=True)
class CriterionFinding:
    """What was found about one criterion."""

    criterion: Criterion
    opinions: tuple[Opinion, ...]
    threshold: float
    margin: float
    reason: str | None = None

    @property
    def score(self) -> float:
        """The median of the opinions; of two in the middle, the worse one."""
        return median_low(one.score for one in self.opinions)

    @property
    def is_close(self) -> bool:
        """Whether the score is too close to the threshold for a verdict."""
        return abs(self.score - self.threshold) < self.margin

    @property
    def passed(self) -> bool:
        return self.score >= self.threshold

    @property
    def needs_confirming(self) -> bool:
        """Whether the score is under the threshold or close to it."""
        return self.is_close or not self.passed

    def levelled(self, threshold: float) -> float:
        """The score on a scale on which `threshold` is what has to be reached.

        So criteria with thresholds of their own can be compared with the others.
        """
        if self.threshold == threshold:
            return self.score
        if not self.passed:
            return threshold * self.score / self.threshold
        if self.threshold == 1:
            return 1.0
        return threshold + (1 - threshold) * (self.score - self.threshold) / (1 - self.threshold)

    def in_words(self) -> str:
        """Question, score and what it had to be."""
        every = [self._shown(one.score) for one in self.opinions]
        asked = f" (median of {', '.join(every)})" if len(every) > 1 else ""
        line = (
            f"{self.criterion.question} {self._shown(self.score, named=True)}{asked},"
            f" needs {self._shown(self.threshold)}"
        )
        return f"{line}: {self.reason}" if self.reason else line

    def _shown(self, score: float, *, named: bool = False) -> str:
        if self.criterion.kind == "1-5":
            return f"{1 + 4 * score:.2f}" + (" of 5" if named else "")
        return f"p(yes) = {score:.2f}" if named else f"{score:.2f}"


class JudgeEvaluator(JudgedEvaluator):
    """Asks a judge one short question per criterion; the score is that of the worst criterion.

    The chance that the judge says yes is the score, where its endpoint tells chances; otherwise it
    answers with a reason and a verdict.

    Args:
        criteria: The questions, put so that yes (or 5) is good.
        threshold: Score from 0 to 1 that every criterion without one of its own has to reach.
        inputs: What of the case the judge sees.
        examples: Judged answers, shown before the one that counts.
        votes: How often each question is asked, in other words each time; the median counts.
        confirm_on_fail: How often it is asked again if the score is under the threshold or close.
        margin: A score closer to the threshold than this is inconclusive.
        include_reason: Whether the judge is asked why, where it did not say.
        first_wording: In which of the `WORDINGS` ways it is asked first.
    """

    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({EvalParam.RESPONSE}),
        optional=frozenset({EvalParam.QUERY, EvalParam.GROUND_TRUTH, EvalParam.RETRIEVAL_CONTEXT}),
    )
    metric = "judge"

    def __init__(  # noqa: PLR0913 - the keys of the metric
        self,
        criteria: Sequence[str | Criterion],
        threshold: float = DEFAULT_THRESHOLD,
        *,
        inputs: Sequence[Shown] = ("input", "response"),
        examples: Sequence[JudgeExample] = (),
        votes: int = 1,
        confirm_on_fail: int = 0,
        margin: float = 0.0,
        include_reason: bool = False,
        first_wording: int = 0,
        **judged: Unpack[ShortJudgeOptions],
    ) -> None:
        super().__init__(threshold=threshold, **judged)
        self.criteria = [as_criterion(one) for one in criteria]
        _refuse_nonsense(self.criteria, examples, inputs)
        self._inputs = [key for key in TAGS if key in inputs]
        self._shots = [
            examples_for(criterion, number, examples, self._inputs)
            for number, criterion in enumerate(self.criteria)
        ]
        self._votes = votes
        self._confirmations = confirm_on_fail
        self._margin = margin
        self._include_reason = include_reason
        self._first_wording = first_wording
        self._asker = CriterionAsker()

    def required_params(self) -> frozenset[EvalParam]:
        return self.PARAM_SPEC.required | {_PARAMS[key] for key in self._inputs}

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        texts = self._texts(kwargs)
        findings = await gather_all(
            self._finding(criterion, shots, texts)
            for criterion, shots in zip(self.criteria, self._shots, strict=True)
        )
        return self._row(findings)

    async def _finding(
        self, criterion: Criterion, shots: list[Example], texts: Texts
    ) -> CriterionFinding:
        async def ask(wordings: Iterable[int]) -> tuple[Opinion, ...]:
            asked = (
                self._asker.opinion(
                    self.judge, criterion, texts, shots, self._first_wording + wording
                )
                for wording in wordings
            )
            return tuple(await gather_all(asked))

        threshold = self.threshold if criterion.threshold is None else criterion.threshold
        opinions = await ask(range(self._votes))
        found = CriterionFinding(criterion, opinions, threshold, self._margin)
        if self._confirmations and found.needs_confirming:
            opinions += await ask(range(self._votes, self._votes + self._confirmations))
            found = CriterionFinding(criterion, opinions, threshold, self._margin)
        reason = await self._reason(found, shots, texts)
        return CriterionFinding(criterion, opinions, threshold, self._margin, reason)

    async def _reason(
        self, found: CriterionFinding, shots: list[Example], texts: Texts
    ) -> str | None:
        """That of an opinion which is like the score; asked for only if wanted."""
        deciding = next(one for one in found.opinions if one.score == found.score)
        if deciding.reason is not None or not self._include_reason:
            return deciding.reason
        return await reason_for(self.judge, found.criterion, texts, shots, deciding.mark)

    def _texts(self, kwargs: Mapping[str, Any]) -> Texts:
        given = {key: kwargs[_PARAMS[key].value] for key in self._inputs}
        return {
            key: text if isinstance(text, str) else passages(text) for key, text in given.items()
        }

    def _row(self, findings: Sequence[CriterionFinding]) -> dict[str, Any]:
        score = min(one.levelled(self.threshold) for one in findings)
        fails = any(not one.passed and not one.is_close for one in findings)
        row: dict[str, Any] = {
            "score": score,
            self.metric: score,
            "passed": all(one.passed for one in findings),
            "inconclusive": not fails and any(one.is_close for one in findings),
            "reasoning": "; ".join(one.in_words() for one in findings),
        }
        if len(findings) == 1 and findings[0].criterion.kind == "1-5":
            row |= {"raw_score": 1 + 4 * findings[0].score, "raw_scale": "1-5"}
        return row


async def gather_all(asked: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What all give, computed at the same time; the first error ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in asked]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _refuse_nonsense(
    criteria: list[Criterion], examples: Sequence[JudgeExample], inputs: Sequence[Shown]
) -> None:
    """For those who build it without a configuration. Raises ConfigError."""
    if not criteria:
        raise ConfigError("criteria", "is empty: write what the judge is to be asked")
    if not inputs:
        raise ConfigError("inputs", "is empty: say what the judge is to see")
    for index, example in enumerate(examples):
        try:
            refuse_other_marks(criteria, example, f"examples[{index}]")
        except ValueError as error:
            raise ConfigError("examples", str(error)) from error
