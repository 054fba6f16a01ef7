"""One question put to a judge, and what its answer is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.short_judge_prompt import (
    Example,
    Texts,
    json_prompt,
    reason_prompt,
    word_prompt,
)
from holodeck.lib.judging.judge import Judge
from holodeck.lib.llm.errors import RequestError
from holodeck.lib.text import one_line
from holodeck.models.judge_metric import Criterion

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
