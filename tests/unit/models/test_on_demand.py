"""Parts of models whose schemas wait for the first value of them."""

from typing import Literal

import pytest
from pydantic import ValidationError

from holodeck.models.base import Count, Model, OnDemand


def whole_and_part():
    """Models of one's own, as a schema is built once."""

    class Part(Model):
        count: Count
        """How many."""

    class Whole(Model):
        parts: list[OnDemand[Literal["none"] | Part]] = []
        """What it is made of."""
        best: OnDemand[Part] | None = None
        """One of them."""

    return Whole, Part


def test_a_schema_is_built_for_the_first_value_and_not_with_the_model_around_it():
    whole, part = whole_and_part()

    assert (whole(), part.__pydantic_complete__) == (whole(), False)
    assert whole.model_validate({"best": {"count": 1}}).best == part(count=1)
    assert part.__pydantic_complete__


def test_a_mistake_in_a_part_has_its_place_in_the_whole():
    whole, _ = whole_and_part()

    with pytest.raises(ValidationError) as caught:
        whole.model_validate({"best": {"count": -1}, "parts": ["none", {"cuont": 1}]})

    assert [one["loc"] for one in caught.value.errors() if one["type"] != "literal_error"] == [
        ("parts", 1, "Part", "count"),
        ("parts", 1, "Part", "cuont"),
        ("best", "count"),
    ]


def test_parts_are_written_down_as_others_and_can_be_read_again():
    whole, part = whole_and_part()
    made = whole.model_validate({"best": part(count=2), "parts": ["none", {"count": 1}]})

    assert made.model_dump_json() == '{"parts":["none",{"count":1}],"best":{"count":2}}'
    assert whole.model_validate_json(made.model_dump_json()) == made


def test_the_json_schema_names_parts_as_others():
    schema = whole_and_part()[0].model_json_schema()

    assert schema["$defs"]["Part"]["properties"]["count"]["description"] == "How many."
    assert schema["properties"]["best"]["anyOf"][0] == {"$ref": "#/$defs/Part"}
