"""Prices of models."""

import pytest

from holodeck.models.token_usage import Price, PriceTable

CHEAP, DEAR = Price(input=1, output=2), Price(input=10, output=20)


@pytest.mark.parametrize(
    ("models", "model", "price"),
    [
        ({"openai/gpt-x": DEAR, "gpt-x": CHEAP}, "openai/gpt-x", DEAR),
        ({"gpt-x": CHEAP, "openai/gpt-*": DEAR}, "openai/gpt-x", CHEAP),
        ({"gpt-*": CHEAP, "*": DEAR}, "openai/gpt-x", CHEAP),
        ({"org/large": DEAR}, "openai/org/large", DEAR),
        ({"gpt-x": CHEAP}, "openai/gpt-x-mini", None),
        ({"local/*": DEAR}, "local/smollm2", DEAR),
        ({}, "local/smollm2", Price(input=0, output=0)),
        ({}, "ollama/llama", None),
        ({"agent": CHEAP}, "agent", CHEAP),
        ({"gpt-x": CHEAP, "*": DEAR}, "openai/gpt-x-2026-07-18", CHEAP),
        ({"gpt-x": CHEAP, "gpt-x-20260718": DEAR}, "gpt-x-20260718", DEAR),
    ],
    ids=[
        "full-name-first",
        "name-before-pattern",
        "longer-pattern-first",
        "slash-in-name",
        "no-prefixes",
        "local-if-said",
        "local-is-free",
        "ollama-is-not-free",
        "own-agent",
        "without-date",
        "date-first",
    ],
)
def test_a_model_has_the_price_that_says_most_about_it(models, model, price):
    assert PriceTable(models=models).price_of(model) == price
