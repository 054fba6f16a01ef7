"""Metrics of similarity to a reference, all offline: F1, BLEU, ROUGE, METEOR, embeddings."""

import re
import string
import threading
import unicodedata
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, get_args

from holodeck.errors import EvaluationError, MissingExtra
from holodeck.lib.evaluators.base import ComparingEvaluator, Score
from holodeck.lib.evaluators.text_metrics import without_punctuation
from holodeck.lib.judging.judges import embedding_model
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.support.text import plural, quote
from holodeck.lib.ui.activity import loading
from holodeck.models.metrics.text import ROUGEMetric, Tokenize, Variant, WordMetric

if TYPE_CHECKING:
    from holodeck.lib.local_models.runtime import EmbeddingModel

_VARIANTS: tuple[Variant, ...] = get_args(Variant)
_ASCII_WORDS = re.compile(r"[^\W_]+")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_JOINERS = str.maketrans("", "", "\u200c\u200d")
"""Zero-width joiners, which Persian and Indic words are spelled with or without."""
_MOST_CELLS = 10_000_000
"""Largest table of word pairs that ROUGE-L may fill: about four seconds and 80 MB."""


class NLPMetricsError(EvaluationError):
    """A metric of this module could not be computed."""


class OverlapEvaluator(ComparingEvaluator):
    """Scores the response against each reference; the best score counts.

    Without a threshold the score is only reported and fails no test.
    """

    has_verdict = False
    error_class = NLPMetricsError

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        response, references = self._response(kwargs), self._references(kwargs)
        return await run_in_thread(lambda: self._best(response, references))

    def _best(self, response: str, references: Sequence[str]) -> Score:
        normalized = unicodedata.normalize("NFC", response)
        scores = [
            (self._compare(normalized, unicodedata.normalize("NFC", reference)), reference)
            for reference in references
        ]
        best, reference = max(scores, key=lambda pair: pair[0].score)
        reason = f"{best.reason}; expected {quote(reference)}, got {quote(response)}"
        return replace(best, reason=reason)

    @abstractmethod
    def _compare(self, response: str, reference: str) -> Score:
        """Score the response against a reference."""


class WordEvaluator(OverlapEvaluator):
    """Compares words, which `tokenize` finds in languages without spaces."""

    settings: WordMetric

    def _configure(self) -> None:
        self._tokenize = self.settings.tokenize

    def _best(self, response: str, references: Sequence[str]) -> Score:
        score = super()._best(response, references)
        uncut = uncut_scripts("\n".join((response, *references)), self._tokenize)
        return replace(score, note=note_about(uncut, self._tokenize)) if uncut else score


class F1ScoreEvaluator(WordEvaluator, metric="f1_score"):
    """Word F1 as in SQuAD: ignores case, punctuation, English articles and order."""

    def _compare(self, response: str, reference: str) -> Score:
        texts = response, reference
        words, expected = (_squad_words(cut(text, self._tokenize)) for text in texts)
        _require_words(expected, reference, self.metric)
        common = sum((Counter(words) & Counter(expected)).values())
        score = 2 * common / (len(words) + len(expected))
        reason = f"{common} of {len(words)} words are among the {len(expected)} expected"
        return Score(score, reason=reason)


def _squad_words(text: str) -> list[str]:
    bare = without_punctuation(text.lower(), also=string.punctuation)
    return _ARTICLES.sub(" ", bare).split()


class BLEUEvaluator(WordEvaluator, metric="bleu"):
    """Sentence BLEU by sacrebleu, divided by 100.

    The tokenizer is 13a or `tokenize`, the smoothing exponential; case matters. Rounding noise
    above 1 is cut off.
    """

    extra = "nlp"
    libraries = ("sacrebleu",)

    async def prepare(self) -> None:
        await run_in_thread(_sacrebleu)

    def _compare(self, response: str, reference: str) -> Score:
        bleu = _sacrebleu().sentence_bleu(
            response, [reference], smooth_method="exp", tokenize=self._tokenize
        )
        precisions = " ".join(f"{precision / 100:.2f}" for precision in bleu.precisions)
        reason = f"precision of 1 to 4 words in a row {precisions}, brevity {bleu.bp:.2f}"
        return Score(min(1.0, bleu.score / 100), reason=reason)


class ROUGEEvaluator(WordEvaluator, metric="rouge"):
    """ROUGE F-measures by rouge-score, with stemming; `variant` selects the score.

    On plain ASCII text the results equal those of rouge-score's own tokenizer, which drops letters
    of other alphabets, accented letters and vowel signs. Here they are kept.
    """

    settings: ROUGEMetric
    extra = "nlp"
    libraries = ("rouge_score", "nltk")

    async def prepare(self) -> None:
        await run_in_thread(_rouge)

    def _compare(self, response: str, reference: str) -> Score:
        scorer = _rouge()(list(_VARIANTS), tokenizer=_StemmingTokenizer())
        response, reference = cut(response, self._tokenize), cut(reference, self._tokenize)
        words, expected = len(_words(response)), len(_words(reference))
        _require_words(range(expected), reference, self.metric)
        if words * expected > _MOST_CELLS:
            raise EvaluationError(
                f"{self.name}: {words} words against {expected} are too many to compare"
            )
        scores = scorer.score(reference, response)
        measures: dict[str, float] = {
            variant: float(scores[variant].fmeasure) for variant in _VARIANTS
        }
        variant = self.settings.variant
        chosen = scores[variant]
        reason = f"{variant} precision {chosen.precision:.2f}, recall {chosen.recall:.2f}"
        return Score(measures[variant], reason=reason, figures=measures)


class METEOREvaluator(WordEvaluator, metric="meteor"):
    """METEOR by nltk with exact and stem matches.

    There is no synonym stage, so that no word list has to be downloaded. By METEOR's definition a
    perfect short response scores below 1: one word scores 0.5, two words 0.94.
    """

    extra = "nlp"
    libraries = ("nltk",)

    async def prepare(self) -> None:
        await run_in_thread(_meteor)

    def _compare(self, response: str, reference: str) -> Score:
        meteor_score, tokenizer = _meteor()
        tokens, expected = (
            tokenizer.tokenize(cut(text, self._tokenize)) for text in (response, reference)
        )
        score = float(meteor_score([expected], tokens, wordnet=_NoSynonyms()))
        return Score(score, reason=f"{plural(len(tokens), 'token')} against {len(expected)}")


class _NoSynonyms:
    """Replaces WordNet in nltk and knows no synonyms."""

    def synsets(self, _word: str) -> list[Any]:
        return []


class _StemmingTokenizer:
    """Splits text into lower-case words and stems those of more than three letters."""

    def __init__(self) -> None:
        with _nltk_imports:
            from nltk.stem.porter import PorterStemmer

        self._stem: Any = PorterStemmer()

    def tokenize(self, text: str) -> list[str]:
        words = _words(text.lower())
        return [self._stem.stem(word) if len(word) > 3 else word for word in words]


def _words(text: str) -> list[str]:
    """Return the words of a text: letters, combining marks and digits of any script."""
    bare = text.translate(_JOINERS)
    if bare.isascii():
        return _ASCII_WORDS.findall(bare)
    letters = (char if unicodedata.category(char)[0] in "LMN" else " " for char in bare)
    return "".join(letters).split()


def _require_words(words: Sequence[object], reference: str, metric: str) -> None:
    if not words:
        raise EvaluationError(
            f"{metric} compares words, and the expected {quote(reference)} has none"
        )


_nltk_imports = threading.Lock()
"""Held while nltk is imported: its modules import each other, which fails in two threads."""


@contextmanager
def _importing(metric: str, library: str, module: str) -> Iterator[None]:
    """Import the library of a metric inside the block. Raises MissingExtra."""
    try:
        with loading(library, module), _nltk_imports:
            yield
    except ImportError as error:
        raise MissingExtra("nlp", f"metric {metric}") from error


def _sacrebleu() -> Any:
    with _importing("bleu", "sacrebleu", "sacrebleu"):
        import sacrebleu
    return sacrebleu


def _rouge() -> Any:
    with _importing("rouge", "rouge-score", "rouge_score.rouge_scorer"):
        from rouge_score.rouge_scorer import RougeScorer
    return RougeScorer


def _meteor() -> Any:
    with _importing("meteor", "nltk", "nltk.translate.meteor_score"):
        from nltk.tokenize.destructive import NLTKWordTokenizer
        from nltk.translate.meteor_score import meteor_score
    return meteor_score, NLTKWordTokenizer()


class SemanticSimilarityEvaluator(OverlapEvaluator, metric="semantic_similarity"):
    """Cosine similarity of the embeddings of response and reference, at least 0; the best counts.

    Embeddings show what a text is about, not whether it is true: a denial is similar to what it
    denies.

    Args:
        threshold: Score to reach; 0.7 by default, which most paraphrases reach, and texts about
            something else do not.
        embeddings: Loads the embedding model, and may block; the built-in model by default.
        options: As for `ScoredEvaluator`.
    """

    uses = ("embeddings",)
    has_verdict = True
    extra = "local"
    libraries = ("xllamacpp",)

    def __init__(
        self,
        threshold: float | None = None,
        *,
        embeddings: Callable[[], "EmbeddingModel"] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(threshold, **options)
        self._embeddings = embeddings or embedding_model

    @cached_property
    def _model(self) -> "EmbeddingModel":
        return self._embeddings()

    async def prepare(self) -> None:
        await run_in_thread(lambda: self._model)

    def _compare(self, response: str, reference: str) -> Score:
        score = self._model.similarity(response, reference)
        return Score(score, reason=f"cosine similarity {score:.2f}")


_WITHOUT_SPACES = {
    "Chinese characters": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "Japanese kana": "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "Thai": "\u0e00-\u0e7f",
    "Lao": "\u0e80-\u0eff",
    "Burmese": "\u1000-\u109f",
    "Khmer": "\u1780-\u17ff",
}
"""Scripts that are written without spaces between words, as ranges of a regular expression."""
_RUNS = {script: re.compile(f"[{letters}]{{2}}") for script, letters in _WITHOUT_SPACES.items()}
"""Two letters in a row may be two words."""
_CUT_BY: dict[Tokenize | None, frozenset[str]] = {
    None: frozenset(),
    "zh": frozenset({"Chinese characters"}),
    "char": frozenset(_RUNS),
}


def cut(text: str, tokenizer: Tokenize | None) -> str:
    """Return the text with spaces between its words; unchanged without a tokenizer.

    `char` keeps combining marks with their letter, as people read them.
    """
    if tokenizer is None:
        return text
    if tokenizer == "char":
        marks = {char for char in set(text) if unicodedata.category(char)[0] == "M"}
        return "".join(char if char in marks else f" {char}" for char in text).lstrip()
    return str(_tokenizer(tokenizer)(text))


@cache
def _tokenizer(name: Tokenize) -> Any:
    """Return sacrebleu's tokenizer, made once as loading a dictionary takes a while."""
    from sacrebleu import BLEU

    return BLEU(tokenize=name).tokenizer


@lru_cache(maxsize=1024)
def uncut_scripts(text: str, tokenizer: Tokenize | None) -> Sequence[str]:
    """Return the scripts of the text between whose words the tokenizer finds no border."""
    if text.isascii():
        return ()
    known = _CUT_BY[tokenizer]
    return tuple(
        script for script, run in _RUNS.items() if script not in known and run.search(text)
    )


def note_about(scripts: Sequence[str], tokenizer: Tokenize | None) -> str:
    """Return a sentence for people about texts that were not cut into words."""
    better = "zh" if scripts == ("Chinese characters",) else "char"
    by = "the default tokenizer" if tokenizer is None else f"tokenize: {tokenizer}"
    return (
        f"{by} cannot cut {' and '.join(scripts)} into words, so the score compares whole"
        f" phrases; write tokenize: {better}"
    )
