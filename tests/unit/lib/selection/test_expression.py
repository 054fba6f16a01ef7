"""What `-k` means, and what is said of one that means nothing."""

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.selection.request import parse_expression

SAID = "refund of order 12, by card"


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("refund", True),
        ("REFUND", True),
        ("fund", True),
        ("gift", False),
        ("not gift", True),
        ("not not refund", True),
        ("refund and gift", False),
        ("refund AND card", True),
        ("gift or card", True),
        ("gift and card or refund", True),
        ("gift and (card or refund)", False),
        ("not (gift or voucher)", True),
        ('"order 12"', True),
        ("'12, by' and refund", True),
        ('"and"', False),
        ("(((card)))", True),
        ("  refund  ", True),
    ],
    ids=str,
)
def test_words_are_looked_for_anywhere_and_joined(text, fits):
    assert parse_expression(text).matches(SAID) is fits


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "-k '': character 1: found the end; expected a word, 'not' or '('"),
        ("a and", "character 6: found the end; expected a word"),
        ("a b", "character 3: found 'b'; expected 'and', 'or' or the end; put a phrase"),
        ("a or or b", "character 6: found 'or'; expected a word"),
        ("(a and b", "character 9: found the end; expected 'and', 'or' or ')'"),
        ("a) or b", "character 2: found ')'"),
        ("()", "character 2: found ')'; expected a word"),
        ("a and 'b", "character 7: the quote ' is never closed"),
        ('a or ""', "character 6: an empty phrase matches every case"),
        ("(" * 60 + "a", "more than 50 parentheses deep"),
    ],
    ids=lambda one: one[:12],
)
def test_what_cannot_be_read_is_told_with_its_place(text, said):
    with pytest.raises(ConfigError) as caught:
        parse_expression(text)

    assert said in str(caught.value)


@pytest.mark.parametrize("deep", [50, 51])
def test_fifty_parentheses_may_stand_in_each_other(deep):
    text = "(" * deep + "refund" + ")" * deep

    if deep == 50:
        assert parse_expression(f"{text} or {text}").matches(SAID)
    else:
        with pytest.raises(ConfigError, match="more than 50 parentheses deep"):
            parse_expression(text)


def test_a_word_may_hold_an_apostrophe():
    assert parse_expression("user's").words == ("user's",)


def test_a_thousand_nots_are_read():
    assert parse_expression("not " * 1001 + "gift").matches(SAID)
