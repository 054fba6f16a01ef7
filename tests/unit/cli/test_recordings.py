"""`holodeck recordings`: what it lists, what it finds wrong, and what it deletes."""

import json

import pytest

from support.folder import case

CASES = [case("greets", "Say hello", contains="hello"), case("parts", "Say bye", contains="bye")]


@pytest.fixture
def recorded(agent_dir):
    agent_dir.write_agent(backend="chat", test_cases=CASES, recordings={"max_age_days": 60})
    assert agent_dir.run("test", "--record").code == 0
    return agent_dir


def folder_of(agent):
    return agent.path / "recordings" / "agent"


def test_the_recordings_are_listed(recorded):
    listed = recorded.run("recordings", "list").stdout.splitlines()

    assert [line.split()[:3] for line in listed[1:]] == [
        ["greets.json", "greets", "1"],
        ["parts.json", "parts", "1"],
    ]


def test_without_recordings_it_says_how_to_make_them(agent_dir):
    agent_dir.write_agent(backend="chat")

    assert "`holodeck test --record` writes them" in agent_dir.run("recordings", "list").stdout


def test_recordings_without_a_problem_are_ok(recorded):
    ran = recorded.run("recordings", "check")

    assert (ran.code, ran.stdout) == (0, "2 recordings: ok\n")


def age(recorded):
    index = folder_of(recorded) / "index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "greets.json": "2020-01-02"}))


def edit(recorded):
    file = folder_of(recorded) / "greets.json"
    file.write_text(file.read_text().replace("hello", "bye"))


def rename(recorded):
    cases = [CASES[0] | {"name": "welcomes"}, CASES[1]]
    recorded.write_agent(backend="chat", test_cases=cases)


def delete(recorded):
    (folder_of(recorded) / "greets.json").unlink()


def instruct(recorded):
    recorded.write_agent(
        backend="chat", test_cases=CASES, instructions={"inline": "Say something else."}
    )


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (age, "greets.json: they are older than 60 days"),
        (edit, "greets.json: was changed since it was recorded"),
        (rename, "greets.json: it is of no case"),
        (rename, "welcomes: is not recorded"),
        (delete, "greets: is not recorded"),
        (instruct, "greets.json: the agent's instructions have changed since"),
    ],
)
def test_what_is_wrong_with_a_recording_is_found(recorded, change, problem):
    change(recorded)

    ran = recorded.run("recordings", "check")

    assert ran.code == 1
    assert problem in ran.stdout


@pytest.mark.parametrize("change", [edit, rename])
def test_what_cannot_be_replayed_is_pruned(recorded, change):
    change(recorded)

    ran = recorded.run("recordings", "prune")

    assert ran.stdout == "deleted greets.json\n1 recording deleted, 1 kept\n"
    assert [file.name for file in sorted(folder_of(recorded).iterdir())] == [
        "index.json",
        "parts.json",
    ]
    assert json.loads((folder_of(recorded) / "index.json").read_text()).keys() == {"parts.json"}


def test_each_repetition_has_a_recording(recorded):
    recorded.write_agent(backend="chat", test_cases=CASES, execution={"repeat": 2})
    recorded.run("test", "--record")

    assert recorded.run("recordings", "check").stdout == "4 recordings: ok\n"
