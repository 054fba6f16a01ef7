"""The published schema and reference say what the models say."""

import re
from pathlib import Path

import pytest
import yaml
from configuration_reference import anchor, reference_pages
from jsonschema import Draft7Validator

from holodeck.config.schema import FILES, file_schema, schema_of, schema_text
from holodeck.config.settings import OTHER_VARIABLES
from holodeck.models.agent import AgentFile, SuiteFile
from holodeck.models.config import ExecutionConfig, GlobalConfig, ProjectDefaults, setting_fields

ROOT = Path(__file__).resolve().parents[3]
MINIMAL = {"name": "x", "model": {"provider": "local"}, "instructions": {"inline": "hi"}}


@pytest.fixture(scope="module")
def schema():
    """Built once: that takes a second."""
    return file_schema("agent")


@pytest.fixture(scope="module")
def reference():
    return reference_pages()


@pytest.fixture
def faults(schema):
    return lambda document: [e.json_path for e in Draft7Validator(schema).iter_errors(document)]


def committed(name):
    return (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")


def headings_of(text):
    return re.findall(r"(?m)^#+ (.+)$", text)


def test_the_committed_schema_is_up_to_date():
    assert committed("agent.schema.json") == schema_text("agent"), "run scripts/docs"


def test_the_committed_reference_is_up_to_date(reference):
    committed_pages = {name: committed(f"configuration/{name}.md") for name in reference}

    assert committed_pages == reference, "run scripts/docs"


@pytest.mark.parametrize("kind", FILES)
def test_each_schema_is_a_schema(kind):
    Draft7Validator.check_schema(file_schema(kind))


@pytest.mark.parametrize(
    ("kind", "document", "places"),
    [
        ("suite", {"suite": {"name": "s"}, "scenarios": [{"name": "n", "input": "i"}]}, []),
        ("suite", {"test_cases": [{"inputs": "hi"}]}, ["$.test_cases"]),
        ("config", {"execution": {"llm_timeout": 5}, "prices": {"currency": "USD"}}, []),
        ("config", {"test_cases": []}, ["$"]),
    ],
)
def test_suites_and_config_files_have_schemas_of_their_own(kind, document, places):
    validator = Draft7Validator(file_schema(kind))

    assert [error.json_path for error in validator.iter_errors(document)] == places


def test_each_metric_says_what_it_measures(schema):
    said = {
        name: definition["properties"]["metric"]["description"]
        for name, definition in schema["definitions"].items()
        if "metric" in definition.get("properties", {})
    }

    assert said["BLEUMetric"] == "Sentence BLEU by sacrebleu with exponential smoothing."
    assert len(set(said.values())) == len(said)


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
        if not value.get("description")
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
        assert f"\n- `{name}`" in reference["execution"]
        assert all(f"`{flag}`" in reference["execution"] for flag in field.flags)
    for name in OTHER_VARIABLES:
        assert f"`{name}`" in reference["index"]


def test_no_two_headings_of_the_reference_are_equal(reference):
    headings = [heading for text in reference.values() for heading in headings_of(text)]

    assert sorted(headings) == sorted(set(headings))


def test_every_link_of_the_reference_leads_to_a_heading(reference):
    anchors = {
        f"{page}.md#{anchor(heading)}"
        for page, text in reference.items()
        for heading in headings_of(text)
    }
    links = {
        f"{page or name}.md#{heading}"
        for name, text in reference.items()
        for page, heading in re.findall(r"\]\((?:([a-z-]+)\.md)?#([^)]*)\)", text)
    }

    assert links
    assert links <= anchors


@pytest.mark.parametrize("file", [AgentFile, GlobalConfig, ProjectDefaults, SuiteFile])
def test_the_reference_has_every_key_of_the_files(reference, file):
    schema = schema_of(file)
    keys = {
        (name, key)
        for name, definition in {file.__name__: schema, **schema["definitions"]}.items()
        for key in definition.get("properties", {})
        if name != "ExecutionConfig"
    }
    text = "\n".join(reference.values())

    missing = {
        (name, key)
        for name, key in keys
        if not re.search(rf"(?m)^- .*`{key}`(?: or `\w+`)*[ :]", text)
    }

    assert missing == set()


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
    anchor_of_key = f"metrics{key.removesuffix('[]')}"
    section = reference["metrics"].partition(f"\n## metrics[].{key}\n")[2].partition("\n#")[0]

    assert re.search(
        rf"(?m)^- `{key.removesuffix('[]')}` \([^)]*\(#{anchor_of_key}\)", reference["metrics"]
    )
    assert all(f"\n- `{one}`" in section for one in keys), section
