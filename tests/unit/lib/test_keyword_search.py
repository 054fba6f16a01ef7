"""Keyword search: terms, ranking, and merged rankings."""

import pytest

from holodeck.lib.tools.keyword_search import KeywordIndex, count_terms, fuse_ranks

TEXTS = {
    "weather": "get_weather: the current weather and the forecast for a city",
    "orders": "list_orders: the orders of a customer, newest first",
    "refund": "refundOrder: pays an order back to the customer",
}


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("get_weather", {"get", "weather"}),
        ("getHTTPServer", {"gethttpserver", "get", "http", "server"}),
        ("PostgreSQL 17.2", {"postgresql", "postgre", "sql", "17.2"}),
        ("Policies, boxes, classes, status", {"policy", "box", "class", "status"}),
        ("ＦＵＬＬ Straße", {"full", "strasse"}),
        ("東京駅", {"東", "京", "駅", "東京", "京駅"}),
        ("…!?", set()),
    ],
)
def test_a_text_is_cut_into_terms(text, terms):
    assert set(count_terms(text)) == terms


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("What is the weather in Rome?", ["weather"]),
        ("refund my order", ["refund", "orders"]),
        ("customers", ["orders", "refund"]),
        ("the", ["weather", "orders", "refund"]),
        ("parking", []),
        ("", []),
    ],
)
def test_texts_with_rare_terms_of_the_query_come_first(query, found):
    assert [key for key, _ in KeywordIndex(TEXTS).search(query)] == found


def test_a_search_returns_the_best_texts_up_to_its_limit():
    index = KeywordIndex(TEXTS)
    best = index.search("orders of a customer", limit=1)

    assert best == index.search("orders of a customer")[:1]
    assert best[0][0] == "orders"


def test_texts_can_be_added_by_terms_that_were_counted_before():
    index = KeywordIndex[str]()
    for key, text in TEXTS.items():
        index.add(key, count_terms(text))

    assert index.search("order") == KeywordIndex(TEXTS).search("order")
    assert len(index) == 3
    with pytest.raises(ValueError, match="orders"):
        index.add("orders", count_terms("again"))


def test_an_index_without_texts_finds_nothing():
    assert KeywordIndex[str]().search("weather") == []
    assert KeywordIndex({"blank": ""}).search("weather") == []


def test_rankings_are_merged_by_reciprocal_rank():
    merged = fuse_ranks([(["a", "b", "c"], 1.0), (["b", "d"], 1.0)])

    assert [item for item, _ in merged] == ["b", "a", "d", "c"]
    assert fuse_ranks([(["a"], 0.5), (["a"], 0.3)]) == [("a", pytest.approx(1.0))]
    assert fuse_ranks([]) == []


def test_the_weight_of_a_ranking_counts():
    merged = fuse_ranks([(["a", "b"], 0.9), (["b", "a"], 0.1)])

    assert [item for item, _ in merged] == ["a", "b"]
