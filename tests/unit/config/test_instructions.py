"""What the agent is told, and the schema of its answers."""

import hashlib
import json

import pytest

from holodeck import errors
from holodeck.config.agent_files import load_instructions, load_response_schema, prompt_versions
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError
from holodeck.models.agent import Agent

HI = hashlib.sha256(b"Hi.\n").hexdigest()
HEAD = "name: x\nmodel: {provider: local}\n"


def told(folder, content, name="system.md"):
    folder.write(f"bot/{name}", content)
    folder.write("bot/agent.yaml", f"{HEAD}instructions:\n  file: {name}\n")
    return load_instructions(ConfigLoader().load_agent_yaml("bot/agent.yaml"))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Be brief.\n", "Be brief.\n"),
        ("---\nversion: 1\ntags: [a]\n---\nBe brief.\n", "Be brief.\n"),
        ("---\r\nversion: 1\r\n---\r\nBe brief.\r\n", "Be brief.\r\n"),
        ("---\nversion: 1\n---\n\n\nBe brief.\n", "Be brief.\n"),
        ("---\n---\nBe brief.\n", "Be brief.\n"),
        (
            "---\nA rule above, then prose.\n---\nMore.\n",
            "---\nA rule above, then prose.\n---\nMore.\n",
        ),
        ("\n---\nversion: 1\n---\nBe brief.\n", "\n---\nversion: 1\n---\nBe brief.\n"),
        ("Be brief.\n---\nversion: 1\n---\n", "Be brief.\n---\nversion: 1\n---\n"),
        ("---\nversion: 1\nBe brief.\n", "---\nversion: 1\nBe brief.\n"),
        ("{{name}} ${HOME} {% x %}\n", "{{name}} ${HOME} {% x %}\n"),
    ],
)
def test_a_file_is_sent_word_for_word_without_its_front_matter(folder, content, text):
    assert told(folder, content) == text


def test_front_matter_that_cannot_be_read_is_an_error(folder):
    with pytest.raises(ConfigError, match=r"^system\.md:3:1: invalid front matter"):
        told(folder, "---\nversion: [1\n---\nBe brief.\n")


@pytest.mark.parametrize("content", ["", "  \n\n", "---\nversion: 1\n---\n \n"])
def test_a_file_that_says_nothing_is_an_error(folder, content):
    with pytest.raises(ConfigError) as caught:
        told(folder, content)

    assert str(caught.value) == (
        "bot/agent.yaml:4:9: instructions.file: 'system.md' is empty;"
        " write the instructions for the agent"
    )


def test_inline_text_is_sent_as_it_is():
    agent = Agent.model_validate(
        {"name": "x", "model": {"provider": "local"}, "instructions": {"inline": " {{x}} "}}
    )

    assert load_instructions(agent) == " {{x}} "


def test_an_agent_with_a_backend_of_its_own_may_have_no_instructions():
    assert load_instructions(Agent(name="x", backend="a:b")) == ""


def test_a_missing_file_names_the_nearest(folder):
    folder.write("system.md", "x")
    folder.write("agent.yaml", f"{HEAD}instructions: {{file: sytem.md}}\n")

    with pytest.raises(errors.FileNotFoundError) as caught:
        load_instructions(ConfigLoader().load_agent_yaml("agent.yaml"))

    assert str(caught.value).startswith("agent.yaml:3:22: instructions.file: 'sytem.md'")
    assert "did you mean 'system.md'?" in str(caught.value)


@pytest.mark.parametrize("name", ["../secret.md", "link.md", "/etc/hostname", "~/secret.md"])
def test_a_file_outside_of_the_agents_folder_is_refused(folder, name):
    folder.write("secret.md", "secret")
    folder.write("bot/agent.yaml", f"{HEAD}instructions: {{file: {name}}}\n")
    (folder.path / "bot" / "link.md").symlink_to(folder.path / "secret.md")

    with pytest.raises(ConfigError, match=r"^bot/agent\.yaml:3:22: instructions\.file: "):
        load_instructions(ConfigLoader().load_agent_yaml("bot/agent.yaml"))


@pytest.mark.parametrize("content", [b"\xff\xfeB\x00C", b"caf\xe9", b"a\x00b"])
def test_a_file_that_is_no_text_is_an_error(folder, content):
    with pytest.raises(ConfigError, match=r"system\.md:1:"):
        told(folder, content)


def schema_of(response_format, base_dir=None):
    agent = Agent(name="x", backend="a:b", response_format=response_format)
    return load_response_schema(agent.with_base_dir(base_dir) if base_dir else agent)


GOOD = {
    "type": "object",
    "description": "An answer.",
    "properties": {
        "answer": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "sure": {"type": "number", "minimum": 0, "maximum": 1},
        "items": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["answer"],
    "additionalProperties": False,
}


def test_a_schema_may_be_written_in_place(folder):
    assert schema_of(GOOD) == GOOD
    assert schema_of(None) is None


def test_a_schema_may_be_a_file_beside_the_agent(folder):
    folder.write("answer.json", json.dumps(GOOD))

    assert schema_of("answer.json", folder.path) == GOOD


def test_the_providers_own_form_is_passed_on():
    given = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"oneOf": []}}}

    assert schema_of(given) == given


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"oneOf": []}, "response_format.oneOf: [] should be non-empty"),
        ({"propertys": {}}, "the keyword 'propertys' is not supported; did you mean 'properties'?"),
        ({"type": "text"}, "response_format.type: found 'text'; expected 'string', 'number'"),
        ({"type": ["string", "text"]}, "response_format.type: found 'text'; expected 'string',"),
        ({"properties": []}, "response_format.properties: [] is not of type 'object'"),
        ({"properties": {"a": 1}}, "response_format.properties.a: 1 is not of type 'object'"),
        ({"required": "a"}, "response_format.required: 'a' is not of type 'array'"),
        ({"additionalProperties": 1}, "response_format.additionalProperties: 1 is not of type"),
        ({"additionalProperties": {"x": 1}}, "additionalProperties: the keyword 'x' is not"),
        ({"items": [{}]}, "response_format.items: [{}] is not of type 'object'"),
        ({"anyOf": [{"x": 1}]}, "response_format.anyOf[0]: the keyword 'x' is not supported"),
        ({"$ref": "#/$defs/a"}, "response_format.$ref: the schema does not contain '#/$defs/a'"),
        ({"enum": []}, "response_format.enum: is empty, so nothing is valid; write the values"),
        ({"minimum": True}, "response_format.minimum: True is not of type 'number'"),
        ({"description": 1}, "response_format.description: 1 is not of type 'string'"),
    ],
)
def test_a_schema_that_is_invalid_is_refused(schema, message):
    with pytest.raises(ConfigError) as caught:
        schema_of(schema)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "'answer.json' is not JSON"),
        ("[]", "'answer.json' holds a list; expected an object"),
        ("[" * 100_000, "'answer.json' is not JSON"),
        ('{"items": ' * 60 + "{}" + "}" * 60, "nested more than 50 levels deep"),
    ],
)
def test_a_schema_file_that_is_none_is_refused(folder, content, message):
    folder.write("answer.json", content)

    with pytest.raises(ConfigError, match=message):
        schema_of("answer.json", folder.path)


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (
            "---\nversion: 1.10\nauthor: Ada\ntags: [a, 2]\nteam: {name: x}\n---\nHi.\n",
            "instructions 1.10 by Ada (a, 2)",
        ),
        ("---\nversion: 2.0 # a comment\n---\nHi.\n", "instructions 2.0"),
        ("---\nauthor: Ada\n---\nHi.\n", f"instructions auto-{HI[:8]} by Ada"),
        ("Hi.\n", f"instructions auto-{HI[:8]}"),
    ],
)
def test_a_prompt_has_the_version_of_its_front_matter_or_its_text(folder, content, shown):
    folder.write("system.md", content)
    folder.write("agent.yaml", f"{HEAD}instructions: {{file: system.md}}\n")

    [version] = prompt_versions(ConfigLoader().load_agent_yaml("agent.yaml"))

    assert str(version) == shown
    assert (version.source, version.file_path, version.body_hash) == ("file", "system.md", HI)
    assert version.extra == ({"team": {"name": "x"}} if "team" in content else {})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("version: [1]", "system.md:2:10: invalid front matter: 'version' must be text"),
        ("tags: {a: 1}", "system.md:2:7: invalid front matter: 'tags' must be a list of words"),
        ("author: true", "system.md:2:9: invalid front matter: 'author' must be text"),
    ],
)
def test_a_wrong_value_in_front_matter_is_an_error_with_its_line(folder, line, problem):
    with pytest.raises(ConfigError) as caught:
        told(folder, f"---\n{line}\n---\nHi.\n")

    assert problem in str(caught.value)
