"""What other harnesses were seen to pass by mistake: here it is refused, failed or told.

Each way into the product is tried: agent.yaml, files of suites, of AgenticAssure, of data, Python.
"""

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import ValidationError

from fakes import Ran, run_cli
from holodeck.errors import HoloDeckError, NothingSelected
from holodeck.suite import Runner, Scenario, Suite, SuiteConfig, load_scenarios_from_dir

AGENT = 'name: bot\nbackend: "bot:answer"\n'
CHECKED = AGENT + "evaluations: {metrics: [{metric: contains, value: hello}]}\n"
BOT = """
import asyncio

async def answer(text):
    open("called", "a").write("x")
    if "broken" in text:
        raise ValueError("the bot is broken")
    if "slow" in text:
        await asyncio.Event().wait()
    names = [word[5:] for word in text.split() if word.startswith("call:")]
    return {"text": text, "tool_calls": [{"name": name, "args": {}} for name in names]}
"""


@dataclass(frozen=True)
class Folder:
    """A folder with a bot that says what it hears, and calls what it is told to."""

    path: Path

    def write(self, files: dict[str, str]) -> None:
        for name, text in ({"bot.py": BOT, "agent.yaml": CHECKED} | files).items():
            (self.path / name).write_text(text)

    def test(self, *args: str, env: dict[str, str] | None = None) -> Ran:
        return run_cli("test", *args, cwd=self.path, env=env)

    @property
    def was_called(self) -> bool:
        return (self.path / "called").exists()

    def report(self) -> dict:
        return json.loads((self.path / "r.json").read_text())


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "bot"
    path.mkdir()
    return Folder(path)


def case(more: str) -> str:
    """An agent.yaml with one case that says more."""
    return CHECKED + f"test_cases: [{{name: a, input: hello, {more}}}]\n"


def suite(header: str, more: str = "") -> str:
    return f"suite: {{name: s, {header}}}\ntest_cases: [{{name: a, input: hello{more}}}]\n"


def assure(more: str) -> str:
    """A file of AgenticAssure with one scenario that says more."""
    return f"suite: {{name: s}}\nscenarios: [{{name: a, input: hello, {more}}}]\n"


SUITE_FILE = "x.suite.yaml"
MISSPELT = {
    "a key of the agent": ("agent.yaml", CHECKED + "test_case: []\n", "'test_cases'"),
    "a key of a case": ("agent.yaml", case("asserts: [hello]"), "asserts: unknown key"),
    "an expectation": ("agent.yaml", case("expectd_tools: [x]"), "'expected_tools'"),
    "a key of a turn": (
        "agent.yaml",
        CHECKED + "test_cases: [{turns: [{input: hello, ground_thruth: x}]}]\n",
        "'ground_truth'",
    ),
    "an option of a tool": (
        "agent.yaml",
        case("expected_tools: [{name: x, agrs: {a: 1}}]"),
        "'args'",
    ),
    "an option of a metric": (
        "agent.yaml",
        case("evaluations: [{metric: contains, vlaue: x}]"),
        "'value'",
    ),
    "a setting": ("agent.yaml", case("") + "execution: {llm_timout: 1}\n", "'llm_timeout'"),
    "a key of an inline suite": (
        "agent.yaml",
        CHECKED + "suites: [{name: s, tag: [x], test_cases: [{input: hello}]}]\n",
        "'tags'",
    ),
    "an option of a data file": (
        "agent.yaml",
        CHECKED + "test_cases_file: {file: c.csv, colums: {input: q}}\n",
        "'columns'",
    ),
    "an option of a scorer": (
        "agent.yaml",
        case("scorers: [{regex: {patern: x}}]"),
        "'regex' has no option 'patern'",
    ),
    "a placeholder": (
        "agent.yaml",
        case("ground_truth: '{{citty}}', parameters: {city: [Rome]}"),
        "citty",
    ),
    "a key of a suite's file": (SUITE_FILE, "test_case: [{input: hello}]\n", "'test_cases'"),
    "a key of a suite's head": (SUITE_FILE, suite("tgas: [x]"), "'tags'"),
    "a setting of a suite": (SUITE_FILE, suite("config: {timeuot: 1}"), "'timeout'"),
    "a key in a suite's case": (
        SUITE_FILE,
        suite("", ", forbiden_tools: [x]"),
        "'forbidden_tools'",
    ),
    "a key of a scenario": (SUITE_FILE, assure("expected_ouput: x"), "'expected_output'"),
    "an option in metadata": (
        SUITE_FILE,
        assure("scorers: [regex], metadata: {regexpattern: x}"),
        "'regex_pattern'",
    ),
    "a column": ("c.csv", "input,expected_tool\nhello,x\n", "'expected_tools'"),
    "a key of a line": ("c.jsonl", '{"input": "hello", "ground_thruth": "x"}\n', "'ground_truth'"),
    "a key of an object": ("c.json", '[{"input": "hello", "tgas": ["x"]}]', "'tags'"),
}


def lead_to(folder: Folder, name: str, text: str) -> tuple[str, ...]:
    """Write a file so that the command reads it; what to name on the command line."""
    data = {} if name in {"agent.yaml", SUITE_FILE} else {"agent.yaml": data_agent(name)}
    folder.write(data | {name: text})
    return (name,) if name == SUITE_FILE else ()


def data_agent(name: str) -> str:
    return CHECKED + f"test_cases_file: {name}\n"


@pytest.mark.parametrize("what", MISSPELT)
def test_a_misspelt_word_is_refused_at_its_place_before_any_call(folder, what):
    name, text, said = MISSPELT[what]

    ran = folder.test(*lead_to(folder, name, text))

    assert ran.code == 2
    assert f"{name}:" in ran.stderr
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not folder.was_called


@pytest.mark.parametrize(
    "make",
    [
        lambda: Scenario(name="a", input="b", expected_ouput="c"),
        lambda: Suite(name="a", scenario=[]),
        lambda: SuiteConfig(retrys=1),
    ],
    ids=["scenario", "suite", "config"],
)
def test_a_misspelt_word_is_refused_in_python_too(make):
    with pytest.raises(ValidationError, match="Extra inputs"):
        make()


UNKNOWN = {
    "a metric": ("agent.yaml", case("evaluations: [{metric: contians, value: x}]"), "'contains'"),
    "a type": ("agent.yaml", case("evaluations: [{type: gevall, name: x}]"), "geval"),
    "a scorer": ("agent.yaml", case("scorers: [pasfail]"), "'passfail'"),
    "a scorer of a suite": (
        SUITE_FILE,
        suite("config: {default_scorers: [exct]}"),
        "'exact'",
    ),
    "a scorer of a scenario": (SUITE_FILE, assure("scorers: [regx]"), "'regex'"),
    "a module": ("agent.yaml", case("scorers: ['graders:no']"), "graders"),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_an_unknown_check_is_refused_before_any_call(folder, what):
    name, text, said = UNKNOWN[what]

    ran = folder.test(*lead_to(folder, name, text))

    assert (ran.code, folder.was_called) == (2, False)
    assert said in ran.stderr


ONE = CHECKED + "test_cases: [{name: a, id: i, tags: [t], suite: s, input: hello}]\n"
NOTHING = {
    "a word": (("-k", "nothing"), {"agent.yaml": ONE}, 5),
    "a tag": (("--tag", "x"), {"agent.yaml": ONE}, 5),
    "a suite": (("--suite", "x"), {"agent.yaml": ONE}, 5),
    "an id": (("--id", "x"), {"agent.yaml": ONE}, 5),
    "all tags excluded": (("--exclude-tag", "t"), {"agent.yaml": ONE}, 5),
    "a shard without cases": (("--shard", "2/2"), {"agent.yaml": ONE}, 5),
    "no test cases": ((), {"agent.yaml": CHECKED + "test_cases: []\n"}, 5),
    "nothing about test cases": ((), {}, 5),
    "no suites": ((), {"agent.yaml": CHECKED + "suites: []\n"}, 2),
    "a suite without cases": ((SUITE_FILE,), {SUITE_FILE: "suite: {name: s}\n"}, 2),
    "an empty suite": ((SUITE_FILE,), {SUITE_FILE: "suite: {name: s}\ntest_cases: []\n"}, 2),
    "an empty file of AgenticAssure": ((SUITE_FILE,), {SUITE_FILE: "scenarios: []\n"}, 2),
    "an empty file": ((SUITE_FILE,), {SUITE_FILE: ""}, 2),
    "a pattern": ((), {"agent.yaml": CHECKED + "suites: [{file: 's/*.yaml'}]\n"}, 2),
    "a header without rows": ((), {"agent.yaml": data_agent("c.csv"), "c.csv": "input\n"}, 2),
    "an empty CSV": ((), {"agent.yaml": data_agent("c.csv"), "c.csv": ""}, 2),
    "no lines": ((), {"agent.yaml": data_agent("c.jsonl"), "c.jsonl": ""}, 2),
    "an empty list": ((), {"agent.yaml": data_agent("c.json"), "c.json": "[]"}, 2),
    "a folder without an agent": (("s",), {}, 2),
}


@pytest.mark.parametrize("what", NOTHING)
def test_nothing_to_run_is_no_success(folder, what):
    args, files, code = NOTHING[what]
    folder.write(files)
    (folder.path / "s").mkdir()

    ran = folder.test(*args)

    assert (ran.code, folder.was_called) == (code, False)
    assert ran.stderr.strip()


def test_nothing_to_run_is_no_success_in_python_either(tmp_path):
    runner = Runner(lambda text: text)
    scenario = Scenario(name="a", input="b", tags=["t"])

    for suite_, tags in ((Suite(name="s", scenarios=[scenario]), ["x"]), (Suite(name="s"), None)):
        with pytest.raises(NothingSelected):
            runner.run_suite(suite_, tags=tags)
    with pytest.raises(NothingSelected):
        load_scenarios_from_dir(tmp_path)


@pytest.mark.parametrize(
    "files",
    [{SUITE_FILE: suite("")}, {"agent.yaml": "name: a\ntest_cases: [{input: hello}]\n"}],
    ids=["a suite without an agent", "an agent without a backend"],
)
def test_nobody_to_ask_is_no_success(folder, files):
    folder.write(files)
    if SUITE_FILE in files:
        (folder.path / "agent.yaml").unlink()

    ran = folder.test(*files)

    assert ran.code == 2
    assert "agent.yaml" in ran.stderr


def test_nobody_to_ask_is_no_success_in_python_either():
    with pytest.raises((HoloDeckError, TypeError)):
        Runner(None).run_scenario(Scenario(name="a", input="b"))


def test_a_missing_text_is_not_made_up_for_by_other_scores(folder):
    others = ", ".join("{metric: regex, pattern: .}" for _ in range(9))
    metrics = f"evaluations: [{{metric: contains, value: a refund}}, {others}]"
    folder.write({"agent.yaml": case(metrics)})

    ran = folder.test("-o", "r.json", "-o", "r.md")

    assert ran.code == 1
    reason = "did not find 'a refund'; got 'hello'"
    assert reason in ran.stdout
    assert reason in json.dumps(folder.report())
    assert "did not find 'a refund'" in (folder.path / "r.md").read_text().replace("\\", "")


CALLS = "{name: a, input: 'hello call:delete_db'"
WITHOUT_CALLS = {
    "agent.yaml": CHECKED + f"test_cases: [{CALLS}, expected_tools: []}}]\n",
    SUITE_FILE: f"test_cases: [{CALLS}, expected_tools: []}}]\n",
    "assure.suite.yaml": f"scenarios: [{CALLS}, expected_tools: []}}]\n",
    "c.csv": "input,expected_tools\nhello call:delete_db,[]\n",
    "c.jsonl": '{"input": "hello call:delete_db", "expected_tools": []}\n',
}


@pytest.mark.parametrize("name", WITHOUT_CALLS)
def test_an_empty_list_of_tools_lets_none_be_called(folder, name):
    is_data = name.startswith("c.")
    folder.write({"agent.yaml": data_agent(name)} if is_data else {})
    (folder.path / name).write_text(WITHOUT_CALLS[name])

    ran = folder.test(*(() if is_data else (name,)))

    assert ran.code == 1
    assert "no tool may be called, but delete_db was" in ran.stdout


@pytest.mark.parametrize(
    ("expected", "called", "code"),
    [
        ("expected_tools: [search]", "search delete_db", 0),
        ("expected_tools: [search], only_expected_tools: true", "search delete_db", 1),
        ("expected_tools: [search], only_expected_tools: true", "search search", 0),
        ("expected_tools: [search], forbidden_tools: [delete_db]", "search delete_db", 1),
        ("expected_tools: [a, b], tool_order: true", "b a", 1),
        ("expected_tools: [a, b], tool_order: true", "a b", 0),
        ("expected_tools: [search]", "research_and_delete", 0),
        ("expected_tools: [{name: search}]", "research_and_delete", 1),
    ],
    ids=[
        "more is allowed", "only these", "only these, twice", "a forbidden one", "reversed",
        "in order", "a part of a name", "a whole name",
    ],
)  # fmt: skip
def test_unexpected_calls_fail_where_that_is_said(folder, expected, called, code):
    said = "hello " + " ".join(f"call:{name}" for name in called.split())
    folder.write({"agent.yaml": CHECKED + f"test_cases: [{{input: '{said}', {expected}}}]\n"})

    assert folder.test().code == code


def test_names_of_tools_in_files_of_agenticassure_are_whole_names(folder):
    scenario = "{name: a, input: 'call:research_and_delete', expected_tools: [search]}"
    folder.write({"agent.yaml": AGENT, SUITE_FILE: f"scenarios: [{scenario}]\n"})

    assert folder.test(SUITE_FILE).code == 1


SLOW = "{name: a, input: 'hello, slow one'"
TIMED = {
    "of a case": ((), "agent.yaml", CHECKED + f"test_cases: [{SLOW}, timeout: 0.2}}]\n"),
    "of a suite": (
        (SUITE_FILE,),
        SUITE_FILE,
        f"suite: {{name: s, config: {{timeout: 0.2}}}}\ntest_cases: [{SLOW}}}]\n",
    ),
    "of a scenario": (
        (SUITE_FILE,),
        SUITE_FILE,
        f"scenarios: [{SLOW}, timeout_seconds: 0.2}}]\n",
    ),
    "of the command line": (
        ("--timeout", "0.2"),
        "agent.yaml",
        CHECKED + f"test_cases: [{SLOW}}}]\n",
    ),
}


@pytest.mark.parametrize("whose", TIMED)
def test_a_time_limit_holds_and_its_time_counts_once(folder, whose):
    args, name, text = TIMED[whose]
    folder.write({name: text})

    ran = folder.test(*args, "-o", "r.json", env={"HOLODECK_MAX_RETRIES": "0"})

    assert ran.code == 3
    report = folder.report()
    assert "0.2 s" in json.dumps(report["results"][0]["errors"])
    [spent] = [one["execution_time_ms"] for one in report["results"]]
    assert report["summary"]["total_duration_ms"] == spent


def test_cases_that_raise_stay_in_every_count(folder):
    said = ["hello", "hello, broken", "hello again"]
    cases = "".join(f"  - {{name: {one!r}, input: {one!r}}}\n" for one in said)
    folder.write({"agent.yaml": CHECKED + "test_cases:\n" + cases})

    ran = folder.test("-o", "r.json", "-o", "r.md")

    assert ran.code == 3
    assert "2/3 passed (66.7%)" in ran.stdout
    assert "the bot is broken" in ran.stdout
    summary = folder.report()["summary"]
    assert (summary["total_tests"], summary["passed"], summary["failed"]) == (3, 2, 1)
    assert round(summary["pass_rate"], 1) == 66.7
    assert summary["metrics_evaluated"] == {"contains": 2}


def test_a_run_whose_cases_all_raise_is_no_success(folder):
    folder.write({"agent.yaml": case("").replace("input: hello", "input: broken")})

    ran = folder.test()

    assert ran.code == 3
    assert "0/1 passed" in ran.stdout
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    "env",
    [{}, {"NO_COLOR": "1"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}],
    ids=["a pipe", "NO_COLOR", "NO_COLOR before FORCE_COLOR"],
)
def test_pipes_and_no_color_get_no_escapes(folder, env):
    folder.write({"agent.yaml": case("").replace("input: hello", "input: bye")})

    ran = folder.test("-v", "-o", "r.md", env=env)

    assert ran.code == 1
    assert "\x1b" not in ran.stdout + ran.stderr + (folder.path / "r.md").read_text()


def test_a_time_limit_holds_in_python_too():
    async def slow(_):
        await asyncio.Event().wait()

    suite_ = Suite(name="s", scenarios=[Scenario(name="a", input="b", timeout_seconds=0.1)])

    started = time.perf_counter()
    result = Runner(slow).run_suite(suite_)
    most_ms = (time.perf_counter() - started) * 1000

    assert (result.pass_rate, len(result.scenario_results)) == (0.0, 1)
    assert 100 <= result.sum_duration_ms <= result.total_duration_ms <= most_ms


@pytest.mark.parametrize("blank", ["", " ", "\u200b\ufeff", "\u2060", "\xad"], ids=ascii)
def test_an_answer_of_which_nothing_can_be_seen_does_not_pass(folder, blank):
    check = "{metric: not_contains, value: sorry}"
    agent = AGENT + f"test_cases: [{{input: hello, evaluations: [{check}]}}]\n"
    folder.write({"agent.yaml": agent, "bot.py": f"def answer(text):\n    return {blank!a}\n"})

    ran = folder.test()

    assert ran.code == 1
    assert "the agent returned an empty response" in ran.stdout
