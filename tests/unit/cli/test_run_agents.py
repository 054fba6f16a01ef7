"""`holodeck test` on several agents and on folders."""

import json
from pathlib import Path

import pytest
import yaml

from fakes import run_cli
from holodeck.cli.agents import AgentTarget, find_agents
from holodeck.errors import ConfigError
from holodeck.errors import FileNotFoundError as MissingFileError
from support.cli import without_durations

BOT = """
from words import SAID

def answer(text):
    return SAID
"""


@pytest.fixture
def fleet(tmp_path):
    """Two agents whose Python files have the same names, and a YAML file that is none."""
    for name, said in (("one", "hello"), ("two", "hullo")):
        folder = tmp_path / "agents" / name
        folder.mkdir(parents=True)
        check = {"metric": "contains", "value": "hello"}
        cases = [{"name": f"greets {name}", "tags": [name, "smoke"], "input": "hi"}]
        agent = {"name": name, "backend": "mine:answer", "test_cases": cases}
        agent["evaluations"] = {"metrics": [check]}
        (folder / "agent.yaml").write_text(yaml.safe_dump(agent, sort_keys=False))
        (folder / "mine.py").write_text(BOT)
        (folder / "words.py").write_text(f"SAID = {said!r}\n")
    (tmp_path / "agents" / "notes.yaml").write_text("a: b\n")
    return tmp_path


def test_a_folder_runs_every_agent_in_it_and_the_worst_exit_code_counts(fleet):
    ran = run_cli("test", "agents", cwd=fleet)

    assert ran.code == 1
    left_alone = "Ignored, because no agent.yaml names them: agents/notes.yaml\n"
    assert ran.stderr == left_alone
    lines = without_durations(ran.stdout).splitlines()
    shown = [line for line in lines if line.startswith(("Agent", "[Test", "  ex"))]
    assert shown == [
        "Agent 1/2: agents/one/agent.yaml",
        "[Test 1/1] PASS greets one",
        "Agent 2/2: agents/two/agent.yaml",
        "[Test 1/1] FAIL greets two",
        "Agents:",
        "  exit 0  agents/one/agent.yaml",
        "  exit 1  agents/two/agent.yaml",
    ]


def test_nothing_runs_as_long_as_one_of_the_agents_is_wrong(fleet):
    broken = fleet / "agents" / "two" / "agent.yaml"
    broken.write_text(broken.read_text().replace("evaluations:", "evaluation:"))

    ran = run_cli("test", "agents/one", "agents/two/agent.yaml", cwd=fleet)

    assert (ran.code, ran.stdout) == (2, "")
    assert "agents/two/agent.yaml:" in ran.stderr
    assert not (fleet / "agents" / "one" / ".holodeck").exists()


def test_what_is_chosen_may_be_of_one_agent_alone_but_must_be_of_some(fleet):
    ran = run_cli("test", "agents", "--tag", "one", cwd=fleet)
    nothing = run_cli("test", "agents", "--tag", "onn", cwd=fleet)

    assert ran.code == 0
    assert "agents/two/agent.yaml: --tag: no case has the tag 'one'; known" in ran.stderr
    assert "  no case selected  agents/two/agent.yaml" in ran.stdout
    assert nothing.code == 5


def test_the_lists_of_several_agents_are_one(fleet):
    ran = run_cli("test", "agents", "--list", "--json", cwd=fleet)

    rows = [(one["agent"], one["name"]) for one in json.loads(ran.stdout)]
    assert rows == [
        ("agents/one/agent.yaml", "greets one"), ("agents/two/agent.yaml", "greets two"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--resume"], "--resume works with one agent"),
        (["--dry-run", "--json"], "--dry-run --json works with one agent"),
    ],
    ids=["resume", "plan"],
)
def test_what_is_for_one_agent_is_refused_for_several(fleet, args, said):
    ran = run_cli("test", "agents", *args, cwd=fleet)

    assert (ran.code, said in ran.stderr) == (2, True)


def test_an_agent_that_cannot_be_run_does_not_keep_the_others_from_running(fleet):
    (fleet / "agents" / "one" / "mine.py").write_text(
        "raise SystemError('broken')\n\n\ndef answer(text):\n    return text\n"
    )

    ran = run_cli("test", "agents", cwd=fleet)

    assert "  exit 1  agents/two/agent.yaml" in ran.stdout
    assert ran.code == 2
    assert "broken" in ran.stderr


def test_a_file_that_is_named_twice_is_one_and_hidden_folders_hold_none(fleet):
    (fleet / "agents" / ".git").mkdir()
    (fleet / "agents" / ".git" / "agent.yaml").write_text("")
    folder = str(fleet / "agents")

    found = find_agents([f"{folder}/two/agent.yaml", folder])

    names = [str(Path(one.path).relative_to(folder)) for one in found.targets]
    assert names == ["two/agent.yaml", "one/agent.yaml"]
    assert find_agents([]).targets == [AgentTarget("agent.yaml")]


def test_a_data_file_is_no_agent_and_the_message_says_where_it_belongs(tmp_path):
    with pytest.raises(ConfigError, match="name it in 'test_cases_file'"):
        find_agents([str(tmp_path / "cases.csv")])


def test_a_folder_without_an_agent_is_told(tmp_path):
    with pytest.raises(MissingFileError, match="neither the folder nor one in it has an agent"):
        find_agents([str(tmp_path)])


@pytest.fixture
def suites(fleet):
    """Two suites of the first agent, of which it names the first."""
    folder = fleet / "agents" / "one"
    with (folder / "agent.yaml").open("a") as file:
        file.write("suites:\n- file: suites/named.yaml\n")
    (folder / "suites").mkdir()
    for name in ("named", "loose"):
        cases = "".join(f"- {{name: {name} {n}, input: {n}, tags: [t{n}]}}\n" for n in "ab")
        text = f"suite: {{name: {name} suite}}\ntest_cases:\n{cases}"
        (folder / "suites" / f"{name}.yaml").write_text(text)
    return folder / "suites"


def test_a_folder_of_suites_means_them_and_the_agent_above_answers(suites):
    (suites / "notes.yaml").write_text("a: b\n")
    (suites / "typo.yaml").write_text("scenerios: []\n")  # told of where it is read

    found = find_agents([str(suites)])

    [subject] = found.targets
    assert Path(subject.path).resolve() == suites.parent / "agent.yaml"
    names = ("loose.yaml", "named.yaml", "typo.yaml")
    assert subject.suites == tuple(str(suites / one) for one in names)
    assert found.others == [str(suites / "notes.yaml")]


def test_a_suite_is_checked_with_the_agent_above_it(suites):
    fine = run_cli("validate", "loose.yaml", cwd=suites)
    loose = suites / "loose.yaml"
    loose.write_text(loose.read_text().replace("input", "inptu", 1))
    wrong = run_cli("validate", "loose.yaml", cwd=suites)

    told = (
        "../agent.yaml: your code was not imported or run: mine:answer (--load does)\n"
        "../agent.yaml: 5 test cases, 0 tools, 1 metric: ok\n"
    )
    assert (fine.code, fine.stdout) == (0, told)
    assert wrong.code == 2
    assert "test_cases[0].inptu: unknown key; did you mean 'input'?" in wrong.stderr


@pytest.mark.parametrize(("name", "total"), [("named", 3), ("loose", 5)])
def test_a_file_of_a_suite_runs_it_on_the_agent_above(suites, name, total):
    ran = run_cli("test", f"{name}.yaml", cwd=suites)

    assert ran.code == 0
    assert ran.stderr == f"Running 2 of {total} test cases: --suite '{name} suite'\n"
    assert f"[Test 2/2] PASS {name} b" in ran.stdout


def test_a_part_of_a_loose_suite_is_resumed_as_that_part(suites):
    run_cli("test", "loose.yaml", "--tag", "tb", cwd=suites)

    ran = run_cli("test", "loose.yaml", "--resume", cwd=suites)

    assert ran.code == 0
    assert "1 of 1 results are kept, 0 cases run" in ran.stderr


def test_watching_a_suite_runs_the_cases_that_come_to_it(suites):
    run_cli("test", "loose.yaml", cwd=suites)
    with (suites / "loose.yaml").open("a") as file:
        file.write("- {name: newcomer, input: x}\n")

    round_of = ("--tell-watcher", "told.json", "--resume", "last", "--force", "--retry-errors")
    ran = run_cli("test", "loose.yaml", *round_of, cwd=suites)

    assert "Running 3 of 6 test cases: --suite 'loose suite'" in ran.stderr
    assert "newcomer" in ran.stdout


def test_several_suites_of_an_agent_are_one_run(suites):
    ran = run_cli("test", "loose.yaml", "named.yaml", "--list", cwd=suites)
    other = run_cli("test", "loose.yaml", "--agent", "../../two/agent.yaml", cwd=suites)

    assert "4 of 5 test cases" in ran.stdout
    assert "loose.yaml:4:3" in ran.stdout
    assert other.code == 2
    assert "--allow-outside" in other.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["../agent.yaml", "--agent", "../agent.yaml"], "no PATH is one"),
    ],
    ids=["agent"],
)
def test_options_that_do_not_go_with_files_of_suites_are_refused(suites, args, said):
    ran = run_cli("test", *args, cwd=suites)

    assert (ran.code, said in ran.stderr) == (2, True)


def test_one_suite_of_a_folder_is_chosen_by_its_name_and_must_be_there(suites):
    one = run_cli("test", ".", "--suite", "loose suite", "--list", cwd=suites)
    other = run_cli("test", "named.yaml", "--suite", "loose suit", cwd=suites)

    assert (one.code, "loose a" in one.stdout, "named a" in one.stdout) == (0, True, False)
    assert other.code == 5
    assert "--suite: no file contains the suite 'loose suit'; known: named suite" in other.stderr


def test_a_suite_without_an_agent_near_it_is_told(tmp_path):
    (tmp_path / "lone.yaml").write_text("suite: {name: lone}\ntest_cases:\n- input: hi\n")

    ran = run_cli("test", "lone.yaml", cwd=tmp_path)

    assert ran.code == 2
    assert "name it with --agent FILE" in ran.stderr


def wrong_suite(name):
    """A suite whose only case fails."""
    check = "{metric: contains, value: never said}"
    return (
        f"suite: {{name: {name}}}\n"
        f"test_cases: [{{name: {name}, input: x, evaluations: [{check}]}}]\n"
    )


ENDINGS = {
    "more.yml": wrong_suite("more").encode(),
    "more.YAML": wrong_suite("more").encode(),
    "more.Yml": wrong_suite("more").encode(),
    "bom.yaml": wrong_suite("more").partition("\n")[2].encode("utf-8-sig"),
    "utf16.yaml": wrong_suite("more").encode("utf-16"),
    "quoted.yaml": wrong_suite("more").replace("test_cases:", '"test_cases":').encode(),
    "json.yaml": json.dumps(yaml.safe_load(wrong_suite("more"))).encode(),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_folder_of_suites_leaves_none_out_for_its_ending_or_encoding(suites, name):
    (suites / name).write_bytes(ENDINGS[name])

    ran = run_cli("test", ".", cwd=suites)

    assert ran.code == 1
    assert "FAIL more" in ran.stdout


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("list.yaml", "- {name: a, input: x}\n", "it is a list without 'test_cases:' above it"),
        ("broken.yaml", "- input: x: y\n", "it is a list without 'test_cases:' above it"),
        ("empty.yaml", "", "it is empty"),
    ],
)
def test_a_file_of_cases_that_a_folder_does_not_run_is_told_of_and_exit_5(
    suites, name, text, reason
):
    (suites / name).write_text(text)

    ran = run_cli("test", ".", cwd=suites)

    assert ran.code == 5
    assert f"Not run: {name}: {reason}" in ran.stderr


def test_a_list_that_a_suite_of_the_folder_names_is_run(suites):
    (suites / "more.yaml").write_text("- {name: more, input: x}\n")
    with (suites / "loose.yaml").open("a") as file:
        file.write("test_cases_file: more.yaml\n")

    ran = run_cli("test", ".", cwd=suites)

    assert (ran.code, "Not run" in ran.stderr) == (0, False)
    assert "PASS more" in ran.stdout


def test_a_folder_of_an_agent_says_which_suite_nobody_names_and_is_exit_5(suites):
    loose = run_cli("test", ".", cwd=suites.parent)
    (suites / "loose.yaml").unlink()
    named = run_cli("test", ".", cwd=suites.parent)

    assert loose.code == 5
    assert "Not run: suites/loose.yaml: no agent.yaml names it in 'suites'" in loose.stderr
    assert (named.code, named.stderr) == (0, "")


@pytest.mark.parametrize("name", ["agent.yml", "agent.YAML"])
def test_an_agent_whose_file_ends_otherwise_is_told_of_in_a_folder(fleet, name):
    two = fleet / "agents" / "two"
    (two / "agent.yaml").rename(two / name)

    ran = run_cli("test", "agents", cwd=fleet)

    assert ran.code == 5
    told = f"Not run: agents/two/{name}: holodeck only reads agents from agent.yaml; rename it"
    assert told in ran.stderr
