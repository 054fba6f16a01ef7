import asyncio
import re

import pytest

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.json_schema import JsonSchemaEvaluator

ORDER = {
    "type": "object",
    "required": ["id", "items"],
    "properties": {
        "id": {"type": "integer"},
        "items": {"type": "array", "items": {"type": "string", "maxLength": 5}},
        "mail": {"format": "email"},
    },
    "additionalProperties": False,
}
GOOD = '{"id": 1, "items": ["a"]}'


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ('{"id": "1", "items": []}', "$.id: '1' is not of type 'integer'"),
        ('{"id": 1, "items": ["a", "toolong"]}', "$.items[1]: 'toolong' is too long"),
        ('{"id": 1}', "$: 'items' is a required property"),
        ('{"id": 1, "items": [], "x": 0}', "$: Additional properties are not allowed"),
        ('{"id": 1, "items": [], "mail": "nobody"}', "$.mail: 'nobody' is not a 'email'"),
        ("The order is 1", "not JSON (Expecting value"),
        ("", "not JSON"),
        ('{"id": 1, "id": 2, "items": []}', "not JSON (duplicate key 'id')"),
        ('{"id": NaN, "items": []}', "not JSON (NaN is not a JSON number)"),
        (f"```json\n{GOOD}\n```", "not JSON"),
        (f"Here it is: {GOOD}", "not JSON"),
        ("[" * 200_000, "not JSON"),
        ("9" * 10_000, "not JSON"),
    ],
)
async def test_an_answer_that_does_not_fit_says_where_and_why(response, reason):
    result = await JsonSchemaEvaluator(schema=ORDER).evaluate(response=response)

    assert result["passed"] is False
    assert result["score"] == 0.0
    assert result["reasoning"].startswith(reason)
    assert len(result["reasoning"]) < 800


async def test_an_answer_that_fits_passes():
    result = await JsonSchemaEvaluator(schema=ORDER).evaluate(response=f" {GOOD}\n")

    assert result["passed"] is True
    assert result["score"] == result["json_schema"] == 1.0


@pytest.mark.parametrize(
    ("response", "passed"),
    [
        (f"```json\n{GOOD}\n```", True),
        (f"\n```\n{GOOD}\n```\n", True),
        (GOOD, True),
        (f"Sure:\n```json\n{GOOD}\n```", False),
        (f"```python\n{GOOD}\n```", False),
        ("```", False),
    ],
)
async def test_a_fence_is_taken_off_where_that_is_allowed(response, passed):
    evaluator = JsonSchemaEvaluator(schema=ORDER, allow_fenced=True)

    assert (await evaluator.evaluate(response=response))["passed"] is passed


async def test_the_reason_of_a_choice_names_the_nearest_fault():
    evaluator = JsonSchemaEvaluator(schema={"anyOf": [ORDER, {"type": "null"}]})

    result = await evaluator.evaluate(response='{"id": "1", "items": []}')

    assert "$.id" in result["reasoning"]


@pytest.mark.parametrize("schema", [{"type": "objet"}, {"required": "id"}, {"pattern": "("}])
def test_a_wrong_schema_is_a_configuration_error(schema):
    with pytest.raises(ConfigError, match="schema"):
        JsonSchemaEvaluator(schema=schema)


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"$ref": "#/$defs/nowhere"}, "schema.$ref"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "schema.properties.a.$ref"),
        ({"items": {"$dynamicRef": "#nowhere"}}, "schema.items.$dynamicRef"),
        ({"$ref": "#/x-a", "x-a": {"$ref": "#/x-b"}}, "schema.$ref.$ref"),
    ],
    ids=["pointer", "file", "anchor", "behind another"],
)
def test_a_reference_that_leads_out_of_the_schema_is_a_configuration_error(schema, place):
    with pytest.raises(ConfigError, match=rf"{re.escape(place)}: the schema does not contain"):
        JsonSchemaEvaluator(schema=schema)


async def test_a_reference_to_a_url_is_an_error_and_never_fetched():
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        schema = {"$ref": f"http://127.0.0.1:{port}/a.json"}

        with pytest.raises(ConfigError, match="the schema does not contain"):
            await asyncio.to_thread(JsonSchemaEvaluator, schema=schema)

    assert asked == []


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/size", "$defs": {"size": {"type": "integer"}}},
        {"$ref": "#size", "$defs": {"size": {"$anchor": "size", "type": "integer"}}},
        {"$id": "a/b.json", "$ref": "#/$defs/size", "$defs": {"size": {"type": "integer"}}},
        {"$ref": "b.json", "$defs": {"size": {"$id": "b.json", "type": "integer"}}},
        {"type": "integer", "properties": {"child": {"$ref": "#"}}},
    ],
    ids=["pointer", "anchor", "with an id", "id of a part", "itself"],
)
async def test_a_reference_inside_the_schema_works(schema):
    evaluator = JsonSchemaEvaluator(schema=schema)

    assert (await evaluator.evaluate(response="1"))["passed"]
    assert not (await evaluator.evaluate(response='"1"'))["passed"]


@pytest.mark.parametrize(("response", "passed"), [('"AB-1"', True), ('"ab"', False), ("1", True)])
async def test_a_pattern_in_the_schema_counts_for_text(response, passed):
    evaluator = JsonSchemaEvaluator(schema={"pattern": "^[A-Z]+-"})

    assert (await evaluator.evaluate(response=response))["passed"] is passed


async def test_a_pattern_in_the_schema_that_explodes_is_an_error():
    evaluator = JsonSchemaEvaluator(schema={"pattern": "^(a|aa)+$"})

    with pytest.raises(EvaluationError, match="took longer than 1 s"):
        await evaluator.evaluate(response='"' + "a" * 5000 + '!"')


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {"^a": {}}, "unevaluatedProperties": False},
        {"allOf": [{"patternProperties": {"^a": {}}}], "unevaluatedProperties": False},
        {"properties": {"a": {"patternProperties": {"^a": {}}, "unevaluatedProperties": False}}},
    ],
    ids=["beside", "in a list", "below"],
)
def test_patterns_that_would_have_no_time_limit_are_refused_wherever_they_stand(schema):
    with pytest.raises(ConfigError, match="write 'additionalProperties'"):
        JsonSchemaEvaluator(schema=schema)
