"""A hostile agent.yaml costs next to nothing and is refused in one short line."""

import os
import re

import pytest
import yaml

from holodeck.config.yaml.source import Source
from holodeck.errors import ConfigError
from support.checks import assert_plain
from support.promises import ROOT

HEAD = "name: x\nmodel: {provider: openai, name: m, api_key: k}\ninstructions: {inline: hi}\n"
CASE = HEAD + "test_cases:\n- input: hi\n"
BOMB = "\n".join(
    ["&a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    + [f"&a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
)


def bomb(indent):
    """Nine levels of nine aliases each, as entries of a list."""
    return "".join(f"{indent}- {line}\n" for line in BOMB.splitlines())


BOMBS = {
    "an unknown key": HEAD + "lol:\n" + bomb("  "),
    "an input": HEAD + "test_cases:\n- input:\n" + bomb("    "),
    "a description": HEAD + "description:\n" + bomb("  "),
    "the parameters of a tool": HEAD
    + "tools:\n- {type: function, name: t, file: t.py, function: f, parameters: {p: {enum: "
    + f"[{', '.join(BOMB.splitlines())}]}}}}}}\n",
    "the response format": HEAD + "response_format:\n  enum:\n" + bomb("    "),
    "merge keys": HEAD
    + "lol: &a0 {k: v}\n"
    + "".join(
        f"l{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}], k{n}: [*a{n - 1}, *a{n - 1}]}}\n"
        for n in range(1, 20)
    ),
}  # fmt: skip


LIMIT_MB = 80
"""More than the imports take."""


@pytest.mark.parametrize("where", BOMBS)
def test_a_bomb_costs_neither_time_nor_memory(tmp_path, cli, tally, where):
    (tmp_path / "agent.yaml").write_text(BOMBS[where])

    ran = cli.run("validate", cwd=tmp_path)

    assert_plain(ran)
    assert "more than 1000 alias expansions" in ran.stderr
    tally("bombs gone off", exceeded(ran, LIMIT_MB), 1)


def exceeded(ran, megabytes):
    """What a refusal must not be: another exit code, long or large."""
    figures = {
        "exit code": (abs(ran.code - 2), 0),
        "characters": (len(ran.stdout + ran.stderr), 2048),
        "megabytes": (ran.megabytes, megabytes),
    }
    return [f"{name}: {found}" for name, (found, most) in figures.items() if found > most]


REFUSED = {
    "10,000 levels": HEAD + "x: " + "[" * 10_000 + "]" * 10_000,
    "10,000 levels of blocks": HEAD + "x:\n" + "".join(" " * n + "- \n" for n in range(1, 2000)),
    "a key of a megabyte": HEAD + "k" * 1_000_000 + ": 1\n",
    "a quoted key of a megabyte": HEAD + '"' + "k" * 1_000_000 + '": 1\n',
    "a long key after a question mark": HEAD + '? "' + "k" * 1_000_000 + '"\n: 1\n',
    "a Python tag": HEAD + "x: !!python/object/apply:os.system [id]\n",
    "a tag of a megabyte": HEAD + "x: !" + "t" * 1_000_000 + " y\n",
    "tabs": HEAD + "x:\n\ty: 1\n",
    "UTF-16 cut off": b"\xff\xfe" + HEAD.encode(),
    "bytes that are no UTF-8": HEAD.encode() + b"x: \xff\n",
    "a NUL": HEAD + "description: a\0b\n",
    "a control character": HEAD + "description: a\x1bb\n",
    "a number of 100,000 digits": CASE + "  ground_truth: " + "9" * 100_000 + "\n",
    "a hexadecimal number of 4,000 digits": CASE + "  ground_truth: 0x" + "f" * 4_000 + "\n",
    "a list for a name": HEAD.replace("name: x", "name: [" + "x, " * 100_000 + "]"),
    "a key twice": HEAD + "name: y\n",
    "a key of a case twice": CASE + "  input: again\n",
    "a second document": HEAD + "---\n" + HEAD,
    "an anchor in itself": HEAD + "x: &a [*a]\n",
    "an alias of nothing": HEAD + "x: *nobody\n",
    "an endless quotation": HEAD + 'x: "' + "a" * 100_000,
    "nothing": "",
    "a single value": "5",
    "nested braces": "{" * 50_000,
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_agent_is_refused_in_a_few_words(tmp_path, cli, tally, what):
    given = REFUSED[what]
    raw = given if isinstance(given, bytes) else given.encode()
    (tmp_path / "agent.yaml").write_bytes(raw)

    ran = cli.run("validate", cwd=tmp_path)

    assert_plain(ran)
    assert "RecursionError" not in ran.stderr
    tally("hostile files that cost something", exceeded(ran, 200), 1)


def test_a_file_of_100_mb_is_not_read(tmp_path, cli, tally):
    with (tmp_path / "agent.yaml").open("w") as file:
        file.write(HEAD)
        file.truncate(100_000_000)

    ran = cli.run("validate", cwd=tmp_path)

    assert "larger than 20 MB" in ran.stderr
    tally("hostile files that cost something", exceeded(ran, 200), 1)


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/urandom", "fifo", "folder/"])
def test_a_device_or_pipe_is_no_agent(tmp_path, cli, name):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()

    ran = cli.run("validate", name, cwd=tmp_path)

    assert_plain(ran)
    assert ran.code == 2


FULL = yaml.safe_load((ROOT / "agent.yaml.example").read_text()) | {
    "backend": {"type": "http", "url": "http://x", "headers": {"a": "b"}, "request": {"c": 1}},
    "response_format": {"type": "object", "properties": {"a": {"type": "string"}}},
    "execution": {"max_retries": 1},
    "observability": {"traces": {"capture_content": True}, "exporters": {"console": {}, "x": {}}},
    "evaluations": {"metrics": [{"metric": "bleu", "threshold": 0.5}]},
}


def mappings(value, path=()):
    """The path of every mapping with a key in it, and that key."""
    if isinstance(value, dict) and value:
        yield path, next(iter(value))
    children = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in children:
        if isinstance(child, dict | list):
            yield from mappings(child, (*path, key))


def written(value, twice, path=()):
    """As flow YAML, one thing a line; the mapping at `twice` has its first key twice."""
    if isinstance(value, list):
        items = [written(one, twice, (*path, index)) for index, one in enumerate(value)]
        return "[\n" + ",\n".join(items) + "\n]"
    if not isinstance(value, dict):
        return yaml.safe_dump(str(value), default_style='"', width=10**6).strip()
    pairs = [f"{key}: {written(one, twice, (*path, key))}" for key, one in value.items()]
    again = [f"{next(iter(value))}: 1"] if path == twice else []
    return "{\n" + ",\n".join(pairs + again) + "\n}"


@pytest.mark.parametrize("path", dict(mappings(FULL)), ids=lambda path: ".".join(map(str, path)))
def test_both_places_of_a_key_that_stands_there_twice_are_named(path):
    key = dict(mappings(FULL))[path]
    Source.of(written(FULL, None), "agent.yaml")  # is well-formed

    text = written(FULL, path)
    with pytest.raises(ConfigError) as caught:
        Source.of(text, "agent.yaml")

    place = re.search(r"agent\.yaml:(\d+):.* first on line (\d+), column", str(caught.value))
    second, first = (text.splitlines()[int(number) - 1] for number in place.groups())
    assert first.startswith(f"{key}: ")
    assert second == f"{key}: 1"
    assert text.index(first) < text.rindex(second)
