"""The published schema and reference say what the models say."""

import re
from pathlib import Path

import pytest
import yaml
from configuration_reference import reference_text
from jsonschema import Draft7Validator

from holodeck.config.schema import agent_schema, schema_text
from holodeck.config.settings import OTHER_VARIABLES
from holodeck.models.config import ExecutionConfig, setting_fields

ROOT = Path(__file__).resolve().parents[3]
MINIMAL = {"name": "x", "model": {"provider": "local"}, "instructions": {"inline": "hi"}}


@pytest.fixture(scope="module")
def schema():
    """Built once: that takes a second."""
    return agent_schema()


@pytest.fixture(scope="module")
def reference():
    return reference_text()


@pytest.fixture
def faults(schema):
    return lambda document: [e.json_path for e in Draft7Validator(schema).iter_errors(document)]


def committed(name):
    return (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")


def test_the_committed_schema_is_up_to_date():
    assert committed("agent.schema.json") == schema_text(), "run scripts/docs"


def test_the_committed_reference_is_up_to_date(reference):
    assert committed("configuration.md") == reference, "run scripts/docs"


def test_the_schema_is_a_schema(schema):
    Draft7Validator.check_schema(schema)


def test_the_schema_accepts_the_example(faults):
    example = ROOT / "agent.yaml.example"
    if not example.exists():
        pytest.skip("there is no example yet")

    assert faults(yaml.safe_load(example.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({"naem": "x"}, "$"),
        ({"model": {"provider": "opnai"}}, "$.model"),
        ({"execution": {"llm_timeout": 0}}, "$.execution"),
        ({"execution": {"llm_timout": 1}}, "$.execution"),
        ({"test_cases": [{"input": " "}]}, "$.test_cases"),
        ({"evaluations": {"metrics": [{"metric": "contains", "vlue": 1}]}}, "$.evaluations"),
    ],
)
def test_the_schema_refuses_what_the_models_refuse(faults, more, place):
    assert faults(MINIMAL) == []
    assert faults({**MINIMAL, **more}) == [place]


def test_every_key_has_a_meaning(schema):
    silent = [
        f"{name}.{key}"
        for name, definition in {"": schema, **schema["definitions"]}.items()
        for key, value in definition.get("properties", {}).items()
        if not value.get("description") and key != "metric"
    ]

    assert silent == []


def test_the_schema_says_what_the_settings_say(schema):
    properties = schema["definitions"]["ExecutionConfig"]["properties"]

    helps = {name: field.setting.help for name, field in setting_fields().items()}
    assert properties.keys() == {*helps, *ExecutionConfig.other_names}
    assert all(properties[name]["description"].startswith(text) for name, text in helps.items())
    assert "retries included" in properties["llm_timeout"]["description"]


def test_the_reference_names_every_setting_and_variable(reference):
    for name, field in setting_fields().items():
        assert f"`{name}` | {', '.join(f'`{flag}`' for flag in field.flags)} |" in reference
        assert f"`{field.variable}`" in reference
    for name in OTHER_VARIABLES:
        assert f"`{name}`" in reference


def test_links_of_the_reference_lead_to_headings(reference):
    headings = {line.lstrip("# ") for line in reference.splitlines() if line.startswith("#")}
    anchors = {
        "".join(c for c in heading.lower().replace(" ", "-") if c.isalnum() or c in "-_")
        for heading in headings
    }

    assert {part.partition(")")[0] for part in reference.split("](#")[1:]} <= anchors


def test_every_link_of_the_reference_leads_to_the_shape_of_its_key(reference):
    headings = re.findall(r"(?m)^#+ (.+)$", reference)
    anchors = {re.sub(r"[^a-z0-9_ -]", "", one.lower()).replace(" ", "-") for one in headings}

    linked = re.findall(r"\]\(#([^)]*)\)", reference)

    assert set(linked) <= anchors


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ("rubric[]", ["score", "expected_outcome"]),
        ("criteria[]", ["question"]),
        ("examples[]", ["response", "answers"]),
        ("azure_ai_project", ["subscription_id", "resource_group_name", "project_name"]),
    ],
)
def test_what_a_metric_holds_is_documented_with_its_keys(reference, key, keys):
    anchor = f"metrics{key.removesuffix('[]')}"
    section = reference.partition(f"\n### metrics[].{key}\n")[2].partition("\n#")[0]

    assert re.search(rf"\| `{key.removesuffix('[]')}` \|[^|]*\(#{anchor}\)", reference)
    assert all(f"\n| `{one}` |" in section for one in keys), section
