"""Records of files as documents."""

import re

import pytest

from holodeck.lib.knowledge.collect import record_documents
from holodeck.models.tools.knowledge import VectorstoreTool


def documents(text, name, **fields):
    fields = {"id_field": "id", "vector_field": "text"} | fields
    config = VectorstoreTool(type="vectorstore", name="kb", source=name, **fields)
    return {
        one.id: ("".join(part.text for part in one.read()), dict(one.metadata))
        for one in record_documents(text, name, config)
    }


@pytest.mark.parametrize(
    ("name", "text", "fields"),
    [
        ("a.csv", 'id,text,kind\n1,"One, two",x\n\n2,Three,y\n', {}),
        ("a.csv", "id|text|kind\n1|One, two|x\n2|Three|y\n", {"delimiter": "|"}),
        ("a.tsv", "id\ttext\tkind\n1\tOne, two\tx\n2\tThree\ty\n", {}),
        (
            "a.jsonl",
            '{"id": 1, "text": "One, two", "kind": "x"}\n{"id": 2, "text": "Three", "kind": "y"}',
            {},
        ),
        (
            "a.json",
            '[{"id": 1, "text": "One, two", "kind": "x"}, {"id": 2, "text": "Three", "kind": "y"}]',
            {},
        ),
    ],
    ids=["csv", "delimiter", "tsv", "jsonl", "json"],
)
def test_records_of_every_format_are_the_same(name, text, fields):
    assert documents(text, name, **fields) == {
        f"{name}#1": ("One, two", {"kind": "x"}),
        f"{name}#2": ("Three", {"kind": "y"}),
    }


def test_a_path_leads_through_lists_and_objects_around_have_further_fields():
    text = """{"shops": [
        {"city": "Oslo", "items": [{"id": 1, "text": {"en": "Tent"}}]},
        {"city": "Rome", "items": [{"id": 2, "text": {"en": "Boat"}}]}]}"""
    fields = {
        "record_path": "shops.items",
        "vector_field": "i_text.en",
        "id_field": "i_id",
        "record_prefix": "i_",
        "meta_fields": ["city"],
        "meta_prefix": "shop_",
    }

    assert documents(text, "a.json", **fields) == {
        "a.json#1": ("Tent", {"shop_city": "Oslo"}),
        "a.json#2": ("Boat", {"shop_city": "Rome"}),
    }


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "id,txt\n1,a\n", "line 2: there is no field 'text'; did you mean 'txt'?"),
        ("a.csv", "id,text\n1,a\n1,b\n", "line 3: the id '1' is used twice"),
        ("a.csv", "id,text\n ,a\n", "line 2: the id is empty"),
        ("a.csv", "id,text\n1\n", "line 2: has 1 columns, and the header 2"),
        ("a.json", '{"rows": []}', "write where its list of records is, such as 'record_path: ro"),
        ("a.json", "[1]", "record 1: is an int instead of an object"),
        ("a.json", "{", "line 1: is not JSON"),
        ("a.json", "[" * 100_000, "is nested too deep"),
        ("a.jsonl", '{"id": 1, "text": "a"}\n{', "line 2: is not JSON"),
    ],
)
def test_a_record_that_cannot_be_used_is_named(name, text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        documents(text, name)
