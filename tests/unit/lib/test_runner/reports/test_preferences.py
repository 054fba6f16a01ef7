"""The words for the answers that a judge prefers."""

import pytest

from holodeck.lib.judging.agreement import mcnemar_p_value
from holodeck.lib.reports.against import describe_preferences
from holodeck.models.records.comparison import Preferences
from holodeck.models.token_usage import TokenUsage


def preferences(first, second, left_out=0):
    return Preferences(
        criteria="More facts win",
        judge="openai/wise",
        first=first,
        second=second,
        none=1,
        undecided=2,
        left_out=left_out,
        p_value=mcnemar_p_value(first, second) if first + second else None,
        judge_calls=4,
        judge_tokens=TokenUsage(),
    )


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (preferences(0, 0), ["in 0 cases and that of B in 0; 1 changed with the order, 2"]),
        (
            preferences(8, 1),
            ["in 8 cases", "prefers A more often than luck explains (sign test, p ="],
        ),
        (
            preferences(0, 6),
            ["in 0 cases", "prefers B more often than luck explains (sign test, p ="],
        ),
        (
            preferences(1, 3, left_out=2),
            ["in 1 case and", "2 pairs without two answers", "Luck may explain this difference"],
        ),
    ],
)
def test_what_may_be_luck_is_said(found, lines):
    described = list(describe_preferences(found))

    assert len(described) == len(lines)
    assert [line for line, text in zip(lines, described, strict=True) if line not in text] == []
