"""The metric `type: judge`: a short question per criterion, which small models can answer."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import JudgedEvaluator, Score
from holodeck.lib.evaluators.inputs import history_of
from holodeck.lib.evaluators.judge_prompt import (
    TAGS,
    WORDINGS,
    Question,
    Texts,
    examples_for,
    join_passages,
    join_turns,
    json_prompt,
    reason_prompt,
    word_prompt,
)
from holodeck.lib.evaluators.param_spec import EvalParam, takes
from holodeck.lib.judging.judge import Judge, is_refused_request
from holodeck.lib.llm.errors import RequestError
from holodeck.lib.processes.threads import gather_all
from holodeck.lib.support.json_schemas import object_schema
from holodeck.lib.support.text import one_line, plural
from holodeck.models.metrics.judge import Criterion, JudgeInput, JudgeMetric
from holodeck.models.results.outcome import Vote

ALTERNATIVES = 10
"""How many first tokens to request with their probabilities; some endpoints refuse more."""
LEAST_SHARE = 0.5
"""If the marks have a smaller share of the probabilities, the judge is not about to answer."""
MAX_REASON = 300
_REFUSED = frozenset({400, 404, 422})


@dataclass(frozen=True)
class Opinion:
    """An answer of the judge to a criterion."""

    score: float
    """From 0 (worst) to 1 (best)."""
    mark: str
    """The most likely mark of the criterion."""
    reason: str | None = None
    """The judge's reason; None if it was not asked for."""


class QuestionAsker:
    """Asks the judge for a word and reads the probability of each mark.

    If the endpoint does not return probabilities or rejects the request, all further requests ask
    for JSON.
    """

    def __init__(self) -> None:
        self._has_probabilities = True
        self.image_refusal: str | None = None
        """Why images are not sent; None if the judge has refused none."""

    async def opinion(self, judge: Judge, question: Question, wording: int) -> Opinion:
        """Return the judge's opinion, if need be without the images. Raises EvaluationError."""
        if not question.images:
            return await self._opinion(judge, question, wording)
        if self.image_refusal is None:
            has_probabilities = self._has_probabilities
            try:
                return await self._opinion(judge, question, wording)
            except EvaluationError as error:
                if not is_refused_request(error.__cause__):
                    raise
                # Most models take no images and say so, each provider in its own words.
                refusal, self._has_probabilities = str(error), has_probabilities
        else:
            refusal = self.image_refusal
        opinion = await self._opinion(judge, replace(question, images=()), wording)
        self.image_refusal = refusal
        return opinion

    async def _opinion(self, judge: Judge, question: Question, wording: int) -> Opinion:
        if self._has_probabilities:
            opinion = await self._by_probabilities(judge, question, wording)
            if opinion is not None:
                return opinion
        return await _by_json(judge, question, wording)

    async def _by_probabilities(
        self, judge: Judge, question: Question, wording: int
    ) -> Opinion | None:
        """Return None if the probabilities do not show an opinion."""
        messages = word_prompt(question, wording)
        try:
            response = await judge.ask_for_text(
                messages, max_tokens=1, top_logprobs=ALTERNATIVES, is_trial=True
            )
        except EvaluationError as error:
            fault = error.__cause__
            if not isinstance(fault, RequestError) or fault.status not in _REFUSED:
                raise
            # reasoning models refuse to answer in a single token
            self._has_probabilities = False
            return None
        if response.token_probabilities is None:
            self._has_probabilities = False
            return None
        return probability_of_marks(response.token_probabilities, question.criterion.marks)


async def _by_json(judge: Judge, question: Question, wording: int) -> Opinion:
    marks = question.criterion.marks
    schema = object_schema(
        reason={"type": "string"}, answer={"type": "string", "enum": list(marks)}
    )
    messages = json_prompt(question, wording)
    answer = await judge.ask(messages, schema, is_trial=bool(question.images))
    score = marks.index(answer["answer"]) / (len(marks) - 1)
    return Opinion(score, answer["answer"], one_line(answer["reason"], MAX_REASON) or None)


def probability_of_marks(
    token_probabilities: Mapping[str, float], marks: Sequence[str]
) -> Opinion | None:
    """Return the opinion that the first token shows; None if the marks are unlikely.

    The score is the mean position of the marks, weighted by their probabilities. For yes and no
    that is the probability of yes.
    """
    weights = dict.fromkeys(marks, 0.0)
    for token, probability in token_probabilities.items():
        word = token.strip(" \t\n▁Ġ\"'*.`").lower()
        if word in weights:
            weights[word] += probability
    share = sum(weights.values())
    if share < LEAST_SHARE:
        return None
    if len(token_probabilities) == 1:
        # the other tokens are unknown, so the rest of the probability may belong to any mark
        rest = max(0.0, 1 - share) / len(marks)
        weights = {mark: weight + rest for mark, weight in weights.items()}
        share = sum(weights.values())
    positions = enumerate(weights.values())
    mean = sum(position * weight for position, weight in positions) / share
    likeliest = max(weights, key=lambda mark: weights[mark])
    return Opinion(min(1.0, mean / (len(marks) - 1)), likeliest)


_PARAMS: dict[JudgeInput, EvalParam] = {
    "history": EvalParam.TURNS,
    "input": EvalParam.QUERY,
    "response": EvalParam.RESPONSE,
    "ground_truth": EvalParam.GROUND_TRUTH,
    "retrieval_context": EvalParam.RETRIEVAL_CONTEXT,
}


@dataclass(frozen=True)
class CriterionScore:
    """The result of a criterion."""

    criterion: Criterion
    opinions: tuple[Opinion, ...]
    threshold: float
    margin: float
    reason: str | None = None

    @property
    def score(self) -> float:
        """The median of the opinions; the lower of two in the middle."""
        return median_low(opinion.score for opinion in self.opinions)

    @property
    def is_close(self) -> bool:
        """Whether the score is within the margin, so that it is inconclusive."""
        return abs(self.score - self.threshold) < self.margin

    @property
    def passed(self) -> bool:
        return self.score >= self.threshold

    def rescale(self, threshold: float) -> float:
        """Return the score on a scale on which `threshold` is the score to reach.

        This makes criteria with different thresholds comparable.
        """
        if self.threshold == threshold:
            return self.score
        if not self.passed:
            return threshold * self.score / self.threshold
        if self.threshold == 1:
            return 1.0
        return threshold + (1 - threshold) * (self.score - self.threshold) / (1 - self.threshold)

    def describe(self) -> str:
        """Return the question, the score and the threshold as text."""
        votes = [self._format(opinion.score) for opinion in self.opinions]
        median = f" (median of {', '.join(votes)})" if len(votes) > 1 else ""
        line = (
            f"{self.criterion.question} {self._format(self.score, named=True)}{median},"
            f" needs {self._format(self.threshold)}"
        )
        return f"{line}: {self.reason}" if self.reason else line

    def votes(self) -> list[Vote]:
        """Return the opinions, each with its question."""
        return [
            Vote(
                question=self.criterion.question,
                answer=opinion.mark,
                score=opinion.score,
                reason=opinion.reason,
            )
            for opinion in self.opinions
        ]

    def _format(self, score: float, *, named: bool = False) -> str:
        if self.criterion.kind == "1-5":
            return f"{1 + 4 * score:.2f}" + (" of 5" if named else "")
        return f"p(yes) = {score:.2f}" if named else f"{score:.2f}"


class JudgeEvaluator(JudgedEvaluator, metric="judge"):
    """Asks the judge a short question per criterion; the worst criterion is the score.

    If the judge's endpoint returns token probabilities, a criterion's score is the probability of a
    yes. Otherwise the judge answers with a reason and a verdict.

    """

    settings: JudgeMetric
    PARAM_SPEC = takes(
        "response", optional=("turns", "query", "ground_truth", "retrieval_context", "images")
    )

    def _configure(self) -> None:
        settings = self.settings
        self._inputs = [key for key in TAGS if key in settings.inputs]
        self._examples = [
            examples_for(criterion, number, settings.examples, self._inputs)
            for number, criterion in enumerate(settings.questions)
        ]
        self._first_wording = 0
        self._asker = QuestionAsker()

    @property
    def rounds(self) -> int:
        """How many times everything can be asked without using a wording twice."""
        return max(1, WORDINGS // self._most_votes)

    @property
    def _most_votes(self) -> int:
        return self.settings.votes + self.settings.confirm_on_fail

    def reworded(self, number: int) -> "JudgeEvaluator":
        """Return the evaluator of round `number`, below `rounds`, with wordings of its own."""
        other = copy(self)
        other._first_wording = number * self._most_votes  # noqa: SLF001 - a copy of its own class
        return other

    def required_params(self) -> frozenset[EvalParam]:
        shown = {_PARAMS[key] for key in self._inputs}
        return self.PARAM_SPEC.required | shown - {EvalParam.TURNS}

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        texts = self._texts(kwargs)
        images = (kwargs.get(EvalParam.IMAGES) or ()) if "input" in self._inputs else ()
        scores = await gather_all(
            self._score_criterion(Question(criterion, texts, examples, images))
            for criterion, examples in zip(self.settings.questions, self._examples, strict=True)
        )
        refusal = self._asker.image_refusal
        if not images or refusal is None:
            return self._join(scores)
        note = f"judged without {plural(len(images), 'image')}: {one_line(refusal, MAX_REASON)}"
        return replace(self._join(scores), note=note)

    async def _score_criterion(self, question: Question) -> CriterionScore:
        async def ask(wordings: Iterable[int]) -> tuple[Opinion, ...]:
            opinions = (
                self._asker.opinion(self.judge, question, self._first_wording + wording)
                for wording in wordings
            )
            return tuple(await gather_all(opinions))

        criterion, settings = question.criterion, self.settings
        threshold = settings.threshold if criterion.threshold is None else criterion.threshold
        opinions = await ask(range(settings.votes))
        score = CriterionScore(criterion, opinions, threshold, settings.margin)
        if settings.confirm_on_fail and (score.is_close or not score.passed):
            opinions += await ask(range(settings.votes, self._most_votes))
            score = replace(score, opinions=opinions)
        return replace(score, reason=await self._reason(score, question))

    async def _reason(self, score: CriterionScore, question: Question) -> str | None:
        """Return the reason of the median opinion; ask the judge for it only if configured."""
        median = next(opinion for opinion in score.opinions if opinion.score == score.score)
        if median.reason is not None or not self.settings.include_reason:
            return median.reason
        if self._asker.image_refusal is not None:
            question = replace(question, images=())
        schema = object_schema(reason={"type": "string", "minLength": 1})
        answer = await self.judge.ask(reason_prompt(question, median.mark), schema)
        return one_line(answer["reason"], MAX_REASON)

    def _texts(self, kwargs: Mapping[str, Any]) -> Texts:
        turns = history_of(kwargs.get(EvalParam.TURNS)) if "history" in self._inputs else ()
        texts: dict[JudgeInput, str] = {"history": join_turns(turns)} if turns else {}
        for key in self._inputs:
            if key != "history":
                value = kwargs[_PARAMS[key].value]
                texts[key] = value if isinstance(value, str) else join_passages(value)
        return texts

    def _join(self, scores: Sequence[CriterionScore]) -> Score:
        fails = any(not item.passed and not item.is_close for item in scores)
        score = Score(
            min(item.rescale(self.settings.threshold) for item in scores),
            all(item.passed for item in scores),
            "; ".join(item.describe() for item in scores),
            inconclusive=not fails and any(item.is_close for item in scores),
            votes=[vote for item in scores for vote in item.votes()],
        )
        if len(scores) == 1 and scores[0].criterion.kind == "1-5":
            return replace(score, raw_score=1 + 4 * scores[0].score, raw_scale="1-5")
        return score

    def _decide(self, score: Score) -> Score:
        """Return the score as it is: each criterion has a threshold."""
        return score
