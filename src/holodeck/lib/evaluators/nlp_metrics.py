"""How much of a reference an answer has in common with it: F1, BLEU, ROUGE, METEOR; all offline."""

import re
import string
import unicodedata
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, Unpack

from holodeck.errors import EvaluationError, MissingExtra
from holodeck.lib.evaluators.base import ComparingEvaluator, ComparisonOptions, Score, quote
from holodeck.lib.evaluators.text_metrics import without_punctuation
from holodeck.lib.judging.judge import embedding_model
from holodeck.lib.text import plural
from holodeck.lib.threads import run_in_thread

Variant = Literal["rouge1", "rouge2", "rougeL"]

_ASCII_WORDS = re.compile(r"[^\W_]+")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_JOINERS = str.maketrans("", "", "\u200c\u200d")
"""Persian and Indic words are spelled with and without them."""
_MOST_CELLS = 10_000_000
"""Largest table of word pairs that ROUGE-L may fill: about four seconds and 80 MB."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """What an answer and one reference have in common."""

    score: float
    detail: str
    more: dict[str, float] = field(default_factory=dict)


class OverlapEvaluator(ComparingEvaluator):
    """Scores the answer against each reference by itself; the best one counts.

    It has no verdict of its own: without a threshold the score is reported and fails no test.
    """

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        response, references = self._response(kwargs), self._references(kwargs)
        return await run_in_thread(lambda: self._best(response, references))

    def _best(self, response: str, references: Sequence[str]) -> dict[str, Any]:
        said = unicodedata.normalize("NFC", response)
        overlaps = [
            self._compare(said, unicodedata.normalize("NFC", reference)) for reference in references
        ]
        best = max(range(len(overlaps)), key=lambda index: overlaps[index].score)
        overlap = overlaps[best]
        reason = f"{overlap.detail}; expected {quote(references[best])}, got {quote(response)}"
        return self._row(Score(overlap.score, reason=reason), **overlap.more)

    @abstractmethod
    def _compare(self, response: str, reference: str) -> Overlap:
        """Score of the answer against one reference."""


class F1ScoreEvaluator(OverlapEvaluator):
    """Word F1 as for SQuAD: case, punctuation and English articles do not count, nor does order."""

    metric = "f1_score"

    def _compare(self, response: str, reference: str) -> Overlap:
        said, wanted = _squad_words(response), _squad_words(reference)
        _refuse_wordless(wanted, reference, self.metric)
        common = sum((Counter(said) & Counter(wanted)).values())
        score = 2 * common / (len(said) + len(wanted))
        return Overlap(score, f"{common} of {len(said)} words are among the {len(wanted)} expected")


def _squad_words(text: str) -> list[str]:
    bare = without_punctuation(text.lower(), also=string.punctuation)
    return _ARTICLES.sub(" ", bare).split()


class BLEUEvaluator(OverlapEvaluator):
    """Sentence BLEU by sacrebleu, divided by 100.

    Its tokenizer is 13a, its smoothing exponential; case counts. Rounding noise above 1 is cut.
    """

    metric = "bleu"

    async def prepare(self) -> None:
        await run_in_thread(_sacrebleu)

    def _compare(self, response: str, reference: str) -> Overlap:
        bleu = _sacrebleu().sentence_bleu(response, [reference], smooth_method="exp")
        precisions = " ".join(f"{precision / 100:.2f}" for precision in bleu.precisions)
        detail = f"precision of 1 to 4 words in a row {precisions}, brevity {bleu.bp:.2f}"
        return Overlap(min(1.0, bleu.score / 100), detail)


class ROUGEEvaluator(OverlapEvaluator):
    """ROUGE F-measures by rouge-score, with stemming; `variant` picks the one that is the score.

    On plain ASCII text the numbers are those of rouge-score's own tokenizer; letters of other
    alphabets, accented ones and vowel signs are kept, where that one would drop them.
    """

    metric = "rouge"
    variants: ClassVar[tuple[Variant, ...]] = ("rouge1", "rouge2", "rougeL")

    def __init__(
        self,
        threshold: float | None = None,
        variant: Variant = "rougeL",
        **comparison: Unpack[ComparisonOptions],
    ) -> None:
        super().__init__(threshold, **comparison)
        self.variant = variant

    async def prepare(self) -> None:
        await run_in_thread(_rouge)

    def _compare(self, response: str, reference: str) -> Overlap:
        scorer = _rouge()(list(self.variants), tokenizer=_StemmedWords())
        said, wanted = len(_words(response)), len(_words(reference))
        _refuse_wordless(range(wanted), reference, self.metric)
        if said * wanted > _MOST_CELLS:
            raise EvaluationError(
                f"{self.name}: {said} words against {wanted} are too many to compare"
            )
        scores = scorer.score(reference, response)
        measures: dict[str, float] = {
            variant: float(scores[variant].fmeasure) for variant in self.variants
        }
        chosen = scores[self.variant]
        detail = f"{self.variant} precision {chosen.precision:.2f}, recall {chosen.recall:.2f}"
        return Overlap(measures[self.variant], detail, measures)


class METEOREvaluator(OverlapEvaluator):
    """METEOR by nltk with exact and stem matches.

    There is no synonym stage, so that no word list has to be downloaded. By METEOR's definition a
    perfect short answer stays below 1: one word scores 0.5, two words 0.94.
    """

    metric = "meteor"

    async def prepare(self) -> None:
        await run_in_thread(_meteor)

    def _compare(self, response: str, reference: str) -> Overlap:
        meteor_score, tokenizer = _meteor()
        said, wanted = tokenizer.tokenize(response), tokenizer.tokenize(reference)
        score = float(meteor_score([wanted], said, wordnet=_NoSynonyms()))
        return Overlap(score, f"{plural(len(said), 'token')} against {len(wanted)}")


class _NoSynonyms:
    """Stands where nltk looks for WordNet, and knows no word."""

    def synsets(self, _word: str) -> list[Any]:
        return []


class _StemmedWords:
    """Words in lower case; those of more than three letters are cut to their stem."""

    def __init__(self) -> None:
        self._stem = _stemmer()

    def tokenize(self, text: str) -> list[str]:
        words = _words(text.lower())
        return [self._stem.stem(word) if len(word) > 3 else word for word in words]


def _words(text: str) -> list[str]:
    """The words of a text: letters, the marks on them, and digits of any script."""
    bare = text.translate(_JOINERS)
    if bare.isascii():
        return _ASCII_WORDS.findall(bare)
    kept = (one if unicodedata.category(one)[0] in "LMN" else " " for one in bare)
    return "".join(kept).split()


def _refuse_wordless(words: Sequence[object], reference: str, metric: str) -> None:
    if not words:
        raise EvaluationError(
            f"{metric} compares words, and the expected {quote(reference)} has none"
        )


def _sacrebleu() -> Any:
    try:
        import sacrebleu
    except ImportError as error:
        raise MissingExtra("nlp", "metric bleu") from error
    return sacrebleu


def _rouge() -> Any:
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise MissingExtra("nlp", "metric rouge") from error
    return RougeScorer


def _stemmer() -> Any:
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()


def _meteor() -> Any:
    try:
        from nltk.tokenize.destructive import NLTKWordTokenizer
        from nltk.translate.meteor_score import meteor_score
    except ImportError as error:
        raise MissingExtra("nlp", "metric meteor") from error
    return meteor_score, NLTKWordTokenizer()


SIMILARITY_THRESHOLD = 0.7
"""What most paraphrases reach and no text about something else."""


class Likeness(Protocol):
    """Compares meanings."""

    def likeness(self, one: str, other: str) -> float:
        """How alike two texts are, from 0 to 1."""
        ...


class SemanticSimilarityEvaluator(OverlapEvaluator):
    """Cosine of the embeddings of answer and reference, at least 0; the best reference counts.

    It sees what texts are about and not whether they are true: a denial is close to what it denies.

    Args:
        threshold: Score to reach; 0.7 if not given.
        embeddings: Gives what compares, and may block; else the model that holodeck knows.
    """

    metric = "semantic_similarity"

    def __init__(
        self,
        threshold: float | None = None,
        *,
        embeddings: Callable[[], Likeness] | None = None,
        **comparison: Unpack[ComparisonOptions],
    ) -> None:
        super().__init__(SIMILARITY_THRESHOLD if threshold is None else threshold, **comparison)
        self._embeddings = embeddings or embedding_model

    @cached_property
    def _model(self) -> Likeness:
        return self._embeddings()

    async def prepare(self) -> None:
        await run_in_thread(lambda: self._model)

    def _compare(self, response: str, reference: str) -> Overlap:
        score = self._model.likeness(response, reference)
        return Overlap(score, f"cosine of the meanings {score:.2f}")
