"""A hostile agent.yaml costs next to nothing and is refused in one short line."""

import pytest

from support.bounded import run_bounded
from support.checks import assert_plain

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


@pytest.mark.parametrize("where", BOMBS)
def test_a_bomb_costs_neither_time_nor_memory(tmp_path, where):
    (tmp_path / "agent.yaml").write_text(BOMBS[where])

    ran = run_bounded("validate", cwd=tmp_path)

    assert_plain(ran)
    assert ran.code == 2
    assert len(ran.stdout + ran.stderr) <= 2048
    assert ran.seconds < 2
    assert ran.megabytes < 80


REFUSED = {
    "10,000 levels": HEAD + "x: " + "[" * 10_000 + "]" * 10_000,
    "10,000 levels of blocks": HEAD + "x:\n" + "".join(" " * n + "- \n" for n in range(1, 2000)),
    "a key of a megabyte": HEAD + "k" * 1_000_000 + ": 1\n",
    "a quoted key of a megabyte": HEAD + '"' + "k" * 1_000_000 + '": 1\n',
    "a long key after a question mark": HEAD + '? "' + "k" * 1_000_000 + '"\n: 1\n',
    "a Python tag": HEAD + "x: !!python/object/apply:os.system [id]\n",
    "a tag of a megabyte": HEAD + "x: !" + "t" * 1_000_000 + " y\n",
    "tabs": HEAD + "x:\n\ty: 1\n",
    "a byte order mark": "\ufeff" + HEAD,
    "a NUL": HEAD + "description: a\0b\n",
    "a control character": HEAD + "description: a\x1bb\n",
    "a number of 100,000 digits": CASE + "  ground_truth: " + "9" * 100_000 + "\n",
    "a wrong value of 10 MB": HEAD.replace("openai", "x" * 10_000_000),
    "100,000 unknown keys": HEAD + "".join(f"k{n}: 1\n" for n in range(100_000)),
    "20,000 wrong cases": HEAD + "test_cases:\n" + "- {inptu: hi}\n" * 20_000,
    "a list for a name": HEAD.replace("name: x", "name: [" + "x, " * 100_000 + "]"),
    "a key twice": HEAD + "name: y\n",
    "a key of a model twice": HEAD.replace("name: m", "name: m, name: n"),
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
def test_what_is_no_agent_is_refused_in_a_few_words(tmp_path, what):
    (tmp_path / "agent.yaml").write_text(REFUSED[what], encoding="utf-8")

    ran = run_bounded("validate", cwd=tmp_path)

    assert_plain(ran)
    assert ran.code == 2
    assert len(ran.stdout + ran.stderr) <= 2048
    assert ran.seconds < 10
    assert ran.megabytes < 400


def test_utf_16_is_refused(tmp_path):
    (tmp_path / "agent.yaml").write_bytes(HEAD.encode("utf-16"))

    ran = run_bounded("validate", cwd=tmp_path)

    assert (ran.code, ran.stderr.count("UTF-16")) == (2, 1)


def test_a_file_of_100_mb_is_not_read(tmp_path):
    with (tmp_path / "agent.yaml").open("w") as file:
        file.write(HEAD)
        file.writelines(["# " + "x" * 998 + "\n"] * 100_000)

    ran = run_bounded("validate", cwd=tmp_path)

    assert ran.code == 2
    assert "larger than 20 MB" in ran.stderr
    assert ran.seconds < 2
    assert ran.megabytes < 200


def test_both_places_of_a_key_that_stands_there_twice_are_named(tmp_path):
    (tmp_path / "agent.yaml").write_text(HEAD + "name: y\n")

    ran = run_bounded("validate", cwd=tmp_path)

    assert "agent.yaml:4:1" in ran.stderr
    assert "line 1, column 1" in ran.stderr


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/urandom", "fifo", "folder/"])
def test_a_device_or_pipe_is_no_agent(tmp_path, name):
    import os

    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()

    ran = run_bounded("validate", name, cwd=tmp_path, timeout=10)

    assert_plain(ran)
    assert ran.code == 2
