import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.nlp_metrics import (
    BLEUEvaluator,
    F1ScoreEvaluator,
    METEOREvaluator,
    ROUGEEvaluator,
    _StemmingTokenizer,
)

ALL = [F1ScoreEvaluator, BLEUEvaluator, ROUGEEvaluator, METEOREvaluator]
REFERENCE = "The library opens at nine o'clock, and dogs are allowed inside."
ANSWER = "Dogs are allowed in the library, which opens at 9 o'clock."


@pytest.fixture
def sacrebleu():
    import sacrebleu  # here, not in every process that collects the tests

    return sacrebleu


def rouge_scorer(variants):
    from rouge_score.rouge_scorer import RougeScorer  # imports nltk, which takes more than a second

    return RougeScorer(variants, use_stemmer=True)


async def score(evaluator, response, ground_truth=None):
    result = await evaluator.evaluate(response=response, ground_truth=ground_truth)
    return result["score"]


# Worked out by hand from the definitions.
@pytest.mark.parametrize(
    ("evaluator", "response", "reference", "expected"),
    [
        (F1ScoreEvaluator(), "The quick, brown fox!", "a quick fox", 4 / 5),
        (F1ScoreEvaluator(), "fox fox fox", "fox", 1 / 2),
        (F1ScoreEvaluator(), "cat", "dog", 0.0),
        (F1ScoreEvaluator(), "L’été est là…", "l'ete est la", 1 / 3),
        (BLEUEvaluator(), "a b c d e", "a b c d f", (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25),
        (BLEUEvaluator(), "Paris", "Paris", 1.0),
        (ROUGEEvaluator(), "the cat sat on the mat", "the cat lay on the mat", 5 / 6),
        (
            ROUGEEvaluator(variant="rouge2"),
            "the cat sat on the mat",
            "the cat lay on the mat",
            3 / 5,
        ),
        (ROUGEEvaluator(variant="rouge1"), "runs quickly", "running quick", 1 / 2),
        (ROUGEEvaluator(), "été chaud", "été froid", 1 / 2),
        (
            METEOREvaluator(),
            "the cat was sat on the mat",
            "the cat sat on the mat",
            (6 / 7) / (0.9 * 6 / 7 + 0.1) * (1 - 0.5 * (2 / 6) ** 3),
        ),
        (METEOREvaluator(), "Paris", "paris", 0.5),
        (METEOREvaluator(), "running", "run", 0.5),
    ],
)
async def test_scores_are_those_of_the_definition(evaluator, response, reference, expected):
    assert await score(evaluator, response, reference) == pytest.approx(expected)


async def test_bleu_is_sacrebleus_sentence_bleu_over_100(sacrebleu):
    expected = sacrebleu.sentence_bleu(ANSWER, [REFERENCE], smooth_method="exp").score / 100

    assert 0 < expected < 1
    assert await score(BLEUEvaluator(), ANSWER, REFERENCE) == pytest.approx(expected)


async def test_rounding_noise_never_lifts_bleu_above_one(sacrebleu):
    text = "The cat sat on the mat."

    assert sacrebleu.sentence_bleu(text, [text]).score > 100
    assert await score(BLEUEvaluator(), text, text) == 1.0


@pytest.mark.parametrize("variant", ["rouge1", "rouge2", "rougeL"])
async def test_rouge_is_rouge_scores_f_measure_of_the_chosen_variant(variant):
    expected = rouge_scorer([variant]).score(REFERENCE, ANSWER)[variant].fmeasure

    result = await ROUGEEvaluator(variant=variant).evaluate(response=ANSWER, ground_truth=REFERENCE)

    assert 0 < expected < 1
    assert result["score"] == result["rouge"] == result[variant] == pytest.approx(expected)


@given(
    words=st.lists(
        st.sampled_from(["the", "cats", "Sitting", "on_mats", "42", "o'clock"]), min_size=1
    )
)
@settings(max_examples=20)
def test_rouge_reads_ascii_text_as_rouge_score_does(words):
    text = " ".join(words)
    theirs = rouge_scorer(["rougeL"])._tokenizer.tokenize(text)

    assert _StemmingTokenizer().tokenize(text) == theirs


TAMIL = "நான் நாளை காலை சென்னைக்கு போகிறேன்"
HINDI = "मैं कल सुबह दिल्ली जाऊँगा"
UNRELATED = {
    "Tamil": (TAMIL, "அவள் நேற்று இரவு புத்தகம் படித்தாள்"),
    "Hindi": (HINDI, "लड़कियाँ नदी में तैरती हैं"),
    "Thai vowels": ("น้ำดี", "ไม้ดำ"),
    "Arabic vowels": ("كِتَابٌ", "بَيْتٌ"),
}


@pytest.mark.parametrize("variant", ["rouge1", "rougeL"])
@pytest.mark.parametrize(("one", "other"), UNRELATED.values(), ids=UNRELATED)
async def test_rouge_cuts_no_word_at_its_vowel_signs(variant, one, other):
    evaluator = ROUGEEvaluator(variant=variant)

    assert await score(evaluator, one, other) == 0
    assert await score(evaluator, one, one) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (TAMIL, TAMIL.split()),
        (HINDI, HINDI.split()),
        ("می‌خواهم، ශ්‍රී", ["میخواهم", "ශ්රී"]),
        ("Größe naïve_v2 café\u0301", ["größe", "naïv", "v2", "café\u0301"]),
    ],
    ids=["Tamil", "Hindi", "joiners", "accents"],
)
def test_words_of_rouge_are_letters_with_their_marks_and_digits(text, words):
    assert _StemmingTokenizer().tokenize(text) == words


async def test_rouge_gives_all_variants():
    result = await ROUGEEvaluator().evaluate(response="a b", ground_truth="a b")

    assert [result[key] for key in ("rouge", "rouge1", "rouge2", "rougeL")] == [1.0] * 4


@pytest.mark.parametrize("make", ALL)
async def test_an_empty_answer_scores_zero(make):
    assert await score(make(), "", REFERENCE) == 0.0


@pytest.mark.parametrize("make", ALL)
async def test_the_best_of_several_references_counts(make):
    one = await score(make(value=REFERENCE), ANSWER)
    best = await score(make(values=["something else entirely", REFERENCE]), ANSWER)

    assert best == one > 0


@pytest.mark.parametrize("make", ALL)
async def test_a_configured_value_is_compared_with_instead_of_the_ground_truth(make):
    assert await score(make(value="entirely different words"), REFERENCE, REFERENCE) == 0.0


@pytest.mark.parametrize(
    ("threshold", "passed"), [(0.0, True), (0.8, True), (0.81, False), (None, None)]
)
async def test_the_threshold_decides_and_without_one_nothing_does(threshold, passed):
    result = await F1ScoreEvaluator(threshold).evaluate(
        response="quick brown fox", ground_truth="quick fox"
    )

    assert result["score"] == 0.8
    assert result["passed"] is passed


async def test_the_reason_shows_what_was_expected_and_what_was_said():
    result = await F1ScoreEvaluator().evaluate(response="red fox", ground_truth="brown fox")

    assert result["reasoning"] == (
        "1 of 2 words are among the 2 expected; expected 'brown fox', got 'red fox'"
    )


@pytest.mark.parametrize("make", [F1ScoreEvaluator, ROUGEEvaluator])
async def test_a_reference_without_words_is_an_error_not_a_perfect_score(make):
    with pytest.raises(EvaluationError, match="has none"):
        await score(make(), "", "…!")


async def test_texts_too_long_for_rouge_are_an_error_instead_of_an_hour():
    with pytest.raises(EvaluationError, match="too many to compare"):
        await score(ROUGEEvaluator(), "word " * 100_000, "word " * 200)


@pytest.mark.parametrize("wrong", [{"value": " "}, {"values": []}, {"values": ["a", ""]}])
@pytest.mark.parametrize("make", ALL)
def test_nothing_to_compare_with_is_a_configuration_error(make, wrong):
    with pytest.raises(ConfigError, match="is empty"):
        make(**wrong)


def test_value_and_values_together_are_refused():
    with pytest.raises(ConfigError, match="not both"):
        BLEUEvaluator(value="a", values=["b"])


TEXT = st.text(alphabet="ab cdé.,!\n1", max_size=30)


@pytest.mark.parametrize("make", ALL)
@given(response=TEXT, reference=TEXT.filter(lambda text: any(map(str.isalnum, text))))
@settings(max_examples=40)
def test_a_score_lies_between_zero_and_one(make, response, reference):
    try:
        score = make()._best(response, [reference]).score
    except EvaluationError:  # only articles: nothing to compare with
        return

    assert 0 <= score <= 1


@given(one=TEXT, other=TEXT)
@settings(max_examples=60)
def test_f1_does_not_depend_on_which_is_the_reference(one, other):
    try:
        there = F1ScoreEvaluator()._best(one, [other]).score
        back = F1ScoreEvaluator()._best(other, [one]).score
    except EvaluationError:
        return

    assert there == back


@pytest.mark.parametrize(
    ("response", "reference", "is_a_match"),
    [("cats", "cat", True), ("its", "it", False), ("Running", "runs", True)],
)
async def test_rouge_compares_stems_of_words_of_more_than_three_letters(
    response, reference, is_a_match
):
    assert (await score(ROUGEEvaluator(), response, reference) > 0) is is_a_match


def test_rouge_and_meteor_can_begin_at_the_same_time():
    begin = """
import threading
from holodeck.lib.evaluators import nlp_metrics

failed = []
together = threading.Barrier(2)

def load(what):
    together.wait()
    try:
        what()
    except Exception as error:
        failed.append(error.__cause__)

loaded = (nlp_metrics._rouge, nlp_metrics._meteor)
threads = [threading.Thread(target=load, args=[one]) for one in loaded]
for one in threads:
    one.start()
for one in threads:
    one.join()
assert not failed, failed
"""

    command = [sys.executable, "-c", begin]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
