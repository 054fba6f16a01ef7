"""`holodeck test a.yaml --against b.yaml`: the same cases on two agents, in pairs."""

import json
import time

import pytest

from fakes import run_cli, start_cli
from support.checks import assert_one_error, assert_plain

CASES = """
test_cases:
  - {name: status, input: where is order 7, expected_tools: [{name: lookup_order}]}
  - {name: refund, input: refund order 7, expected_tools: [{name: refund, args: {id: 7}}]}
  - {name: greeting, input: hello, tags: [small]}
"""
OLD_YAML = f"""
name: support
backend: "old:answer"
evaluations: {{metrics: [{{metric: contains, value: ok}}]}}
{CASES}
"""
NEW_YAML = """
name: support-next
backend: "new:answer"
"""
AGENT = """
def answer(message):
    calls = []
    if "order" in message:
        calls.append({"name": "lookup_order", "arguments": {"id": 7}, "result": "shipped"})
    if "refund" in message:
        calls.append({"name": "refund", "arguments": {"id": 7}, "result": "done"})
    usage = {"prompt_tokens": 8, "completion_tokens": 2}
    return {"response": "ok", "tool_calls": calls, "usage": usage}
"""
FORGETFUL = AGENT.replace('"refund" in message', "False")


@pytest.fixture
def two(tmp_path):
    """A folder with two agents that behave alike."""
    folder = tmp_path / "two"
    folder.mkdir()
    for name, text in (
        ("a.yaml", OLD_YAML), ("b.yaml", NEW_YAML), ("old.py", AGENT), ("new.py", AGENT),
    ):  # fmt: skip
        (folder / name).write_text(text)
    return folder


def compare(folder, *args, against="b.yaml"):
    ran = run_cli("test", "a.yaml", "--against", against, *args, cwd=folder)
    assert_plain(ran)
    return ran


def compared(folder, *args, against="b.yaml"):
    """Compare, and return how it ended with the pairs of the JSON report by name."""
    ran = compare(folder, "-o", "report.json", *args, against=against)
    report = json.loads((folder / "report.json").read_text())
    return ran, {pair["name"]: pair for pair in report["pairs"]}


def test_agents_that_behave_alike_pass_in_pairs_and_nothing_more_is_claimed(two):
    ran, pairs = compared(two, "--fail-on", "regression")

    assert ran.code == 0
    assert {pair["verdict"] for pair in pairs.values()} == {"both"}
    assert {pair["trajectories"]["state"] for pair in pairs.values()} == {"same"}
    assert "[Pair 1/3] BOTH PASS status" in ran.stdout
    assert "Passed on both: 3" in ran.stdout
    assert "does not prove that both agents are equally good" in ran.stdout
    assert pairs["status"]["tokens"] == {"first": 10, "second": 10}


def test_a_lost_tool_call_is_a_regression_that_names_the_step(two):
    (two / "new.py").write_text(FORGETFUL)

    ran, pairs = compared(two, "--fail-on", "regression")

    assert ran.code == 1
    assert pairs["refund"]["verdict"] == "only_first"
    assert pairs["refund"]["trajectories"]["divergence"] == {
        "repetition": None,
        "turn": 1,
        "call": 2,
        "kind": "missing",
        "first": "called refund(id=7)",
        "second": "called no further tool",
    }
    assert "parted at turn 1, call 2: A called refund(id=7), B called no further tool" in ran.stdout
    assert "1 case passed only on A, and 0 only on B" in ran.stdout
    assert "split at least this unevenly in 100% of comparisons" in ran.stdout


def test_without_a_rule_a_regression_does_not_fail_the_command_and_says_so(two):
    (two / "new.py").write_text(FORGETFUL)

    ran = compare(two)

    assert ran.code == 0
    assert "add --fail-on regression" in ran.stderr


def test_a_better_second_agent_is_no_failure(two):
    (two / "old.py").write_text(FORGETFUL)

    ran, pairs = compared(two, "--fail-on", "regression")

    assert ran.code == 0
    assert pairs["refund"]["verdict"] == "only_second"
    assert "0 cases passed only on A, and 1 only on B" in ran.stdout


def test_a_second_agent_that_raises_leaves_the_pair_undecided_and_the_run_red(two):
    (two / "new.py").write_text(
        AGENT.replace("    calls = []\n", "    calls = []\n    if 'hello' in message: 1 / 0\n")
    )

    ran, pairs = compared(two, "--fail-on", "regression")

    assert ran.code == 3
    assert pairs["greeting"]["verdict"] == "undecided"
    assert pairs["greeting"]["trajectories"]["reason"] == "B ended with an error"
    assert "UNDECIDED: 1 of 3 pairs (B: 1 agent error)" in ran.stdout
    assert "new.py:4" in ran.stdout


def test_unknown_tool_calls_are_not_comparable_and_never_the_same(two):
    (two / "new.py").write_text("def answer(message):\n    return 'ok'\n")

    ran, pairs = compared(two)

    assert ran.code == 4
    assert {pair["trajectories"]["state"] for pair in pairs.values()} == {"unknown"}
    assert pairs["status"]["verdict"] == "undecided"
    assert pairs["greeting"]["verdict"] == "both"
    assert "tool calls not comparable: the tool calls of B are unknown" in ran.stdout


def test_the_name_of_a_plugin_makes_no_difference(two):
    (two / "new.py").write_text(AGENT.replace('"lookup_order"', '"OrderPlugin-lookup_order"'))

    _, pairs = compared(two)

    assert {pair["trajectories"]["state"] for pair in pairs.values()} == {"same"}


RENAMED = (
    FORGETFUL.replace("lookup_order", "find_order")
    .replace('{"id": 7}', '{"number": 7}')
    .replace('"usage": usage', '"usage": usage, "agents": ["triage_agent", "orders"]')
)
NAMES = "names: {lookup_order: find_order, id: number, TriageAgent: triage_agent}\n"
CASE = (
    "test_cases:\n  - turns:\n    - {input: where is order 7, handoffs: [TriageAgent, orders],"
    " expected_tools: [{name: lookup_order, args: {id: 7}}]}\n"
)


@pytest.fixture
def renamed(two):
    """Two agents that behave alike, and use other names."""
    (two / "a.yaml").write_text(OLD_YAML.partition("test_cases")[0] + NAMES + CASE)
    (two / "old.py").write_text(
        RENAMED.replace("find_order", "Orders-lookup_order")
        .replace("number", "id")
        .replace("triage_agent", "TriageAgent")
    )
    (two / "new.py").write_text(RENAMED)
    return two


def test_names_of_the_second_agent_count_in_checks_and_trajectories(renamed):
    ran, pairs = compared(renamed)

    [pair] = pairs.values()
    assert (pair["verdict"], pair["trajectories"]["state"]) == ("both", "same")
    assert pair["trajectories"]["agents"] == "same"
    assert "names" not in ran.stderr
    [second] = json.loads((renamed / "report.json").read_text())["second"]["report"]["results"]
    assert second["tool_invocations"][0]["name"] == "find_order"
    record = json.loads((renamed / "report.json").read_text())["second"]["run"]
    assert run_cli("score", record, "a.yaml", cwd=renamed).code == 0


def test_names_of_the_second_agent_count_where_the_recorded_runs_are_compared(renamed):
    compared(renamed)
    report = json.loads((renamed / "report.json").read_text())
    runs = [report[side]["run"] for side in ("first", "second")]

    ran = run_cli("compare", *runs, "--agent", "a.yaml", "--format", "json", cwd=renamed)

    [pair] = json.loads(ran.stdout)["pairs"]
    assert (pair["verdict"], pair["trajectories"]["state"]) == ("both", "same")
    assert pair["trajectories"]["agents"] == "same"


def test_without_names_the_second_agent_regresses(renamed):
    (renamed / "a.yaml").write_text(OLD_YAML.partition("test_cases")[0] + CASE)

    _, pairs = compared(renamed)

    [pair] = pairs.values()
    assert (pair["verdict"], pair["trajectories"]["state"]) == ("only_first", "parted")


def test_a_name_that_occurs_nowhere_is_named(renamed):
    text = (renamed / "a.yaml").read_text()
    (renamed / "a.yaml").write_text(text.replace("names: {", "names: {lokup: find, "))

    ran = compare(renamed)

    assert "a.yaml:6:16: neither 'lokup' nor 'find' is a tool" in " ".join(ran.stderr.split())


def test_two_names_for_one_are_refused(renamed):
    text = (renamed / "a.yaml").read_text()
    (renamed / "a.yaml").write_text(text.replace("id: number", "id: find_order"))

    ran = compare(renamed)

    assert ran.code == 2
    assert "gives 'lookup_order' and 'id' the same name 'find_order'" in ran.stderr


@pytest.mark.parametrize(
    ("change", "kind", "second"),
    [
        (('{"id": 7}', '{"id": 8}'), "arguments", "called lookup_order(id=8)"),
        (('"shipped"', '"lost"'), "result", "lookup_order(id=7) returned 'lost'"),
        (('"lookup_order"', '"find"'), "tool", "called find(id=7)"),
    ],
    ids=["arguments", "result", "tool"],
)
def test_the_first_step_that_differs_is_named(two, change, kind, second):
    (two / "new.py").write_text(AGENT.replace(*change, 1))

    _, pairs = compared(two)

    found = pairs["status"]["trajectories"]["divergence"]
    assert (found["turn"], found["call"], found["kind"]) == (1, 1, kind)
    assert found["second"] == second


def test_another_backend_is_compared_under_the_rest_of_the_file(two):
    ran, pairs = compared(two, against="backend=new:answer")

    assert ran.code == 0
    assert {pair["verdict"] for pair in pairs.values()} == {"both"}
    assert "B: support (backend=new:answer)" in ran.stdout


def test_both_agents_are_called_in_turn(two):
    for name in ("old", "new"):
        (two / f"{name}.py").write_text(
            f"{AGENT}\nimport pathlib\nanswer_alike = answer\n\n"
            f"def answer(message):\n"
            f"    with pathlib.Path('order.txt').open('a') as file:\n"
            f"        print('{name}', message, file=file)\n"
            f"    return answer_alike(message)\n"
        )

    compare(two)

    assert (two / "order.txt").read_text().splitlines() == [
        "old where is order 7", "new where is order 7",
        "old refund order 7", "new refund order 7",
        "old hello", "new hello",
    ]  # fmt: skip


def test_a_case_ends_on_the_first_agent_before_it_begins_on_the_second(two):
    agent = (
        "import asyncio\nasync def answer(message):\n"
        "    with open('order.txt', 'a') as file:\n        file.write(f'{message}: begins\\n')\n"
        "    await asyncio.sleep(0.05)\n"
        "    with open('order.txt', 'a') as file:\n        file.write(f'{message}: ends\\n')\n"
        "    return {'response': 'ok', 'tool_calls': []}\n"
    )
    for name in ("old.py", "new.py"):
        (two / name).write_text(agent)

    compare(two, "-j", "4")

    lines = (two / "order.txt").read_text().splitlines()
    for case in ("where is order 7", "refund order 7", "hello"):
        steps = [line.partition(": ")[2] for line in lines if line.startswith(case)]
        assert steps == ["begins", "ends", "begins", "ends"]


def test_each_agent_uses_the_modules_and_files_of_its_own_folder(two):
    (two / "next").mkdir()
    (two / "next" / "agent.yaml").write_text('name: next\nbackend: "old:answer"\n')
    (two / "next" / "old.py").write_text(FORGETFUL)

    _, pairs = compared(two, against="next")

    assert pairs["refund"]["verdict"] == "only_first"
    assert pairs["status"]["verdict"] == "both"


def test_agents_of_two_folders_each_import_their_own_neighbour_whenever_they_do(two):
    late = "def answer(message):\n    import shop\n    return f'{shop.NAME} hears {message}'\n"
    for folder, name in ((two, "A"), (two / "next", "B")):
        folder.mkdir(exist_ok=True)
        (folder / "old.py").write_text(late)
        (folder / "shop.py").write_text(f"NAME = {name!r}\n")
    (two / "next" / "agent.yaml").write_text('name: next\nbackend: "old:answer"\n')

    compare(two, "-o", "report.json", against="next")

    text = (two / "report.json").read_text()
    assert text.count('"A hears hello"') == text.count('"B hears hello"') > 0


def test_the_second_file_lends_no_cases_metrics_or_settings_and_a_notice_says_so(two):
    (two / "b.yaml").write_text(
        NEW_YAML + "evaluations: {metrics: [{metric: contains, value: never}]}\n"
        "execution: {repeat: 3}\ntest_cases: [{name: other, input: other}]\n"
    )

    ran, pairs = compared(two)

    assert ran.code == 0
    assert set(pairs) == {"status", "refund", "greeting"}
    assert "b.yaml: not used: test_cases, evaluations, execution" in ran.stderr


def test_the_same_cases_in_both_files_cause_no_notice(two):
    (two / "b.yaml").write_text(OLD_YAML.replace("old:answer", "new:answer"))

    ran = compare(two, "--repeat", "2")

    assert (ran.code, ran.stderr) == (0, "")


def test_repetitions_are_one_verdict_and_say_how_often_the_trajectories_part(two):
    (two / "new.py").write_text(
        AGENT.replace(
            "    calls = []\n", "    global times\n    times += 1\n    calls = []\n"
        ).replace('"order" in message', '"order" in message and times != 2')
        + "\ntimes = 0\n"
    )

    ran, pairs = compared(
        two, "--repeat", "3", "--min-pass", "1", "--no-stop-early", "-k", "status"
    )

    assert ran.code == 0
    assert pairs["status"]["verdict"] == "both"
    assert pairs["status"]["second"] == "flaky"
    assert "parted at repetition 2, turn 1, call 1" in ran.stdout
    assert "(in 1 of 3 repetitions)" in ran.stdout


def test_selections_count_for_both_agents(two):
    ran, pairs = compared(two, "--tag", "small")

    assert ran.code == 0
    assert set(pairs) == {"greeting"}
    assert "Running" in ran.stderr


def test_a_selection_without_cases_is_not_green(two):
    ran = compare(two, "-k", "nothing")

    assert ran.code == 5


def test_colours_and_control_characters_reach_a_terminal_as_they_should(two):
    (two / "new.py").write_text(
        FORGETFUL.replace('"id": 7', '"id": "\\x1b[2J"').replace('"ok"', '"\\x1b[2J"')
    )

    ran = run_cli("test", "a.yaml", "--against", "b.yaml", cwd=two, env={"FORCE_COLOR": "1"})

    assert "\x1b[91mONLY A\x1b[0m status" in ran.stdout
    assert "\x1b[2J" not in ran.stdout
    assert "\\x1b[2J" in ran.stdout


def test_failing_fast_stops_at_the_first_regression(two):
    (two / "old.py").write_text(AGENT.replace("lookup_order", "find"))
    (two / "new.py").write_text(FORGETFUL.replace("lookup_order", "find"))

    ran, pairs = compared(two, "-x")

    assert ran.code == 5  # a case was not run; without --fail-on, no verdict counts
    assert [pair["verdict"] for pair in pairs.values()] == ["neither", "only_first", "not_run"]
    assert "Resume with: holodeck test a.yaml --against b.yaml --resume" in ran.stderr


def test_a_budget_is_shared(two):
    ran, pairs = compared(two, "--max-tokens", "30")

    assert ran.code == 6
    assert [pair["verdict"] for pair in pairs.values()] == ["both", "undecided", "not_run"]
    assert "UNDECIDED: 2 of 3 pairs (A: 1 not run; B: 2 not run)" in ran.stdout


def test_both_runs_are_recorded_graded_again_and_linked(two):
    ran = compare(two, "-o", "report.md")
    listed = json.loads(run_cli("runs", "list", "--json", cwd=two).stdout)
    newest, other = (one["id"] for one in listed)
    facts = json.loads(run_cli("runs", "show", "last", "--json", cwd=two).stdout)

    assert [one["agent_name"] for one in listed] == ["support", "support-next"]
    assert (facts["run"], facts["compared with"]) == (newest, other)
    assert newest in (two / "report.md").read_text()
    scored = run_cli("score", other, "a.yaml", "-o", "score.md", cwd=two)
    assert scored.code == ran.code == 0
    assert "is that of the second agent" in scored.stderr
    assert "# Test Report: support-next" in (two / "score.md").read_text()


def test_the_record_of_the_second_agent_is_no_history_of_the_first(two):
    (two / "new.py").write_text(FORGETFUL)
    compare(two, against="backend=new:answer")

    ran = run_cli("test", "a.yaml", "--last-failed", cwd=two)

    assert_one_error(ran, 5)


def test_an_interrupted_comparison_prints_the_complete_pairs_and_resumes_both_runs(two):
    (two / "new.py").write_text(
        AGENT.replace("    calls = []\n", "    calls = []\n    wait(message)\n")
        + "\nimport pathlib, time\n\ndef wait(message):\n"
        "    if 'refund' in message and not pathlib.Path('go').exists():\n"
        "        pathlib.Path('waiting').touch()\n"
        "        time.sleep(60)\n"
    )
    with start_cli("test", "a.yaml", "--against", "b.yaml", "-o", "r.json", cwd=two) as run:
        wait_for(two / "waiting")
        run.interrupt()
        ran = run.finish()

    assert ran.code == 130
    assert "[Pair 1/3] BOTH PASS status" in ran.stdout
    assert "UNDECIDED: 2 of 3 pairs" in ran.stdout
    command = ran.stderr.partition("Resume with: holodeck ")[2].split()
    (two / "go").touch()

    resumed = run_cli(*command, cwd=two)

    assert_plain(resumed)
    assert resumed.code == 0
    assert "Passed on both: 3" in resumed.stdout
    assert resumed.stdout.startswith("[Pair 2/3] BOTH PASS refund")
    assert "1 of 3 results are kept" in resumed.stderr


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--against", "c.yaml"), "c.yaml: file not found; did you mean"),
        (("--against", "new:answer"), "write 'backend=new:answer'"),
        (("--against", "backend=nowhere:answer"), "nowhere"),
        (("--against", "backend=chta"), "did you mean 'chat'"),
        (("--fail-on", "regression"), "or --against FILE for another agent"),
        (("--against", "b.yaml", "--watch"), "both agents must run the same cases; remove it"),
        (("--against", "b.yaml", "--debug"), "would play two conversations at once; remove it"),
        (("--against", "b.yaml", "--resume", "last"), "no run is recorded"),
        (("--against", "b.yaml", "-o", "r.txt", "--format", "old:answer"), "shows one run"),
    ],
    ids=[
        "missing",
        "no file",
        "no module",
        "unknown",
        "no against",
        "watch",
        "debug",
        "resume",
        "format",
    ],
)
def test_what_is_wrong_is_said_before_any_case_runs(two, args, message):
    ran = run_cli("test", "a.yaml", *args, cwd=two)

    assert_plain(ran)
    assert ran.code == 2
    assert message in " ".join(ran.stderr.split())


def test_the_cases_of_a_comparison_are_listed_without_a_run(two):
    ran = run_cli("test", "a.yaml", "--against", "b.yaml", "-k", "refund", "--list", cwd=two)

    assert_plain(ran)
    assert ran.code == 0
    assert "refund" in ran.stdout
    assert ran.stdout.endswith(", each on A (a.yaml), then on B (b.yaml)\n")
    assert not (two / ".holodeck").exists()


def test_the_plan_of_a_comparison_is_that_of_each_agent(two):
    args = ("--against", "b.yaml", "--fail-on", "regression", "--dry-run")
    ran = run_cli("test", "a.yaml", *args, cwd=two)
    as_json = run_cli("test", "a.yaml", *args, "--json", cwd=two)

    assert_plain(ran)
    assert (ran.code, as_json.code) == (0, 0)
    first, second = ran.stdout.split("\n\n")
    assert first.startswith("A (a.yaml)\nPlan for ")
    assert second.startswith("B (b.yaml)\nPlan for ")
    plans = json.loads(as_json.stdout)
    assert [one["agent_config_path"] for one in plans] == ["a.yaml", "b.yaml"]
    assert plans[0]["cases"] == plans[1]["cases"] == 3
    assert not (two / ".holodeck").exists()


def test_a_plan_checks_the_second_agent_and_a_list_does_not(two):
    (two / "b.yaml").write_text(NEW_YAML.replace("new:answer", "new:anwser"))

    args = ("test", "a.yaml", "--against", "b.yaml")
    plan, listed = (run_cli(*args, one, cwd=two) for one in ("--dry-run", "--list"))

    assert (plan.code, listed.code) == (2, 0)
    assert "b.yaml:3:10: backend" in plan.stderr


@pytest.mark.parametrize(
    ("file", "text", "place"),
    [
        ("a.yaml", OLD_YAML.replace("expected_tools", "expected_tool", 1), "a.yaml:"),
        ("b.yaml", NEW_YAML.replace("backend", "bakend"), "b.yaml:3:1: bakend"),
        ("b.yaml", NEW_YAML.replace("new:answer", "new:anwser"), "b.yaml:3:10: backend"),
    ],
    ids=["key of the first", "key of the second", "backend of the second"],
)
def test_a_typo_is_located_in_its_own_file(two, file, text, place):
    (two / file).write_text(text)

    ran = compare(two)

    assert ran.code == 2
    assert place in ran.stderr
    assert "did you mean" in ran.stderr


def test_the_run_of_the_second_agent_is_resumed_only_with_the_first(two):
    compare(two)
    other = json.loads(run_cli("runs", "list", "--json", cwd=two).stdout)[1]["id"]

    ran = run_cli("test", "a.yaml", "--resume", other, cwd=two)

    assert_one_error(ran, 2, "add --against")


def test_several_pairs_at_once_are_still_pairs(two):
    ran, pairs = compared(two, "-j", "4", "--repeat", "2")

    assert ran.code == 0
    assert [pair["verdict"] for pair in pairs.values()] == ["both"] * 3


def test_a_run_of_one_agent_cannot_be_resumed_as_a_comparison(two):
    run_cli("test", "a.yaml", cwd=two)

    ran = compare(two, "--resume")

    assert ran.code == 2
    assert "compared no agents" in ran.stderr
