"""Word metrics on languages that are written without spaces, or with vowel signs."""

import pytest

from holodeck.lib.evaluators.nlp_metrics import (
    BLEUEvaluator,
    F1ScoreEvaluator,
    METEOREvaluator,
    ROUGEEvaluator,
    cut,
    uncut_scripts,
)

ALL = [F1ScoreEvaluator, BLEUEvaluator, ROUGEEvaluator, METEOREvaluator]

CHINESE = "我们的退货期限是三十天，从收到货物的那一天算起。"
CHINESE_CLOSE = "退货期限是三十天，从收到货物之日算起。"
CHINESE_OTHER = "猫喜欢在窗边睡觉。"
JAPANESE = "返品は商品の到着後三十日以内に受け付けます。"
JAPANESE_CLOSE = "商品の到着後三十日以内の返品を受け付けます。"
JAPANESE_OTHER = "猫がねむった"
THAI = "ร้านเปิดเวลาเก้าโมงเช้าทุกวัน"
THAI_CLOSE = "ร้านเปิดเก้าโมงเช้าทุกวัน"
TAMIL = ("நான் நாளை காலை சென்னைக்கு போகிறேன்", "அவள் நேற்று இரவு புத்தகம் படித்தாள்")
HINDI = ("मैं कल सुबह दिल्ली जाऊँगा", "लड़कियाँ नदी में तैरती हैं")


async def result_of(evaluator, response, reference):
    return await evaluator.evaluate(response=response, ground_truth=reference)


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize(
    ("tokenize", "reference", "close", "other"),
    [
        ("zh", CHINESE, CHINESE_CLOSE, CHINESE_OTHER),
        ("char", JAPANESE, JAPANESE_CLOSE, JAPANESE_OTHER),
        ("char", THAI, THAI_CLOSE, "丁"),
    ],
)
async def test_a_similar_sentence_scores_high_and_another_low(
    make, tokenize, reference, close, other
):
    evaluator = make(tokenize=tokenize)

    similar = await result_of(evaluator, close, reference)
    different = await result_of(evaluator, other, reference)

    assert similar["score"] > 0.5
    assert different["score"] < 0.2
    assert "note" not in similar


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize(("one", "other"), [TAMIL, HINDI], ids=["Tamil", "Hindi"])
async def test_no_tokenizer_is_needed_for_words_with_vowel_signs(make, one, other):
    unrelated, same = await result_of(make(), one, other), await result_of(make(), one, one)

    assert unrelated["score"] == 0
    assert same["score"] > 0.99
    assert "note" not in unrelated


@pytest.mark.parametrize("tokenize", ["zh", "char"])
async def test_bleu_with_a_tokenizer_is_sacrebleus(tokenize):
    import sacrebleu

    theirs = sacrebleu.sentence_bleu(JAPANESE_CLOSE, [JAPANESE], tokenize=tokenize)

    found = await result_of(BLEUEvaluator(tokenize=tokenize), JAPANESE_CLOSE, JAPANESE)

    assert 0 < theirs.score < 100
    assert found["score"] == pytest.approx(theirs.score / 100)


@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize(
    ("tokenize", "text", "script", "advice"),
    [
        (None, CHINESE, "Chinese characters", "zh"),
        (None, JAPANESE, "Japanese kana", "char"),
        ("zh", JAPANESE, "Japanese kana", "char"),
        (None, THAI, "Thai", "char"),
    ],
)
async def test_a_script_that_is_not_cut_is_named_in_the_row(make, tokenize, text, script, advice):
    found = await result_of(make(tokenize=tokenize), "yes", text)

    assert script in found["note"]
    assert found["note"].endswith(f"write tokenize: {advice}")


@pytest.mark.parametrize("text", ["plain", "naïve café", TAMIL[0], "한국어 문장", "one 字 alone"])
def test_scripts_with_spaces_get_no_note(text):
    assert uncut_scripts(text, None) == ()


def test_characters_keep_their_marks():
    assert cut("நாளை a", "char").split() == ["நா", "ளை", "a"]
