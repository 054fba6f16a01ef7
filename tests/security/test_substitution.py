"""The value of a variable is a value: it cannot become a key, a list, a tag or a variable."""

import copy

import pytest
import yaml

from holodeck.config.environment import Environment
from holodeck.config.yaml.source import Source
from support.promises import ROOT

VALUES = [
    "a: b", "[1, 2]", "{a: b}", "- x", "# no comment", "*alias", "&anchor x", "!!python/object:x",
    "\n  x: y\n", "---\nx: y", "'", '"', "\\", "${OTHER}", "${OTHER:-x}", "$${OTHER}", "null", "12",
    "true", "<<: *a", "|\n  x", "%YAML 1.1", "\t", "{{ 7*7 }}", "%(x)s {0} $(id) `id`",
]  # fmt: skip


def texts(value, path=()):
    """The path of every text."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from texts(one, (*path, key))


def with_text(document, path, text):
    changed = copy.deepcopy(document)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = text
    return changed


AGENT = yaml.safe_load((ROOT / "agent.yaml.example").read_text()) | {
    "backend": {"type": "http", "url": "http://x", "headers": {"a": "b"}, "request": {"c": ["d"]}},
}


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_variable_stays_one_text_wherever_it_stands(value, tally):
    env = Environment([("environment", {"HOSTILE": value, "OTHER": "what another one holds"})])
    paths = list(texts(AGENT))

    changed = [
        path
        for path in paths
        if read(with_text(AGENT, path, "${HOSTILE}"), env) != with_text(AGENT, path, value)
    ]
    tally("structures changed", changed, len(paths))


def read(document, env):
    return Source.of(yaml.safe_dump(document, sort_keys=False), "x").data(env.substitute)


def test_variables_in_keys_and_comments_are_none(tmp_path, cli):
    (tmp_path / "agent.yaml").write_text("# ${GONE}\nname: x # ${GONE}\n${GONE}: 1\n")

    ran = cli.run("validate", cwd=tmp_path)

    assert (ran.code, ran.stderr.count("GONE")) == (2, 1)
    assert "agent.yaml:3:1: ${GONE}: unknown key" in ran.stderr


def test_a_variable_that_is_not_set_is_named_with_its_place(tmp_path, cli):
    (tmp_path / "agent.yaml").write_text("name: x\ndescription: 'a ${GONE} b'\n")

    ran = cli.run("validate", cwd=tmp_path)

    assert (ran.code, "agent.yaml:2:14: description: ${GONE}" in ran.stderr) == (2, True)
