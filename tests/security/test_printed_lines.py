"""Whatever a text in any field is: no line that a command or pytest prints is obeyed."""

import json
import re

import junitparser
import pytest
import yaml

from fakes import AgentFolder, FakeOpenAI, Reply, case, run_cli
from holodeck.cli.main import COMMANDS
from support.ci import commands, obeyed
from support.own_pytest import run_pytest
from support.payloads import ORDERS

NAME = ORDERS.encode("utf-8", "ignore").decode().replace("\0", "")
FILE = NAME.replace("/", "").encode()[:200].decode("utf-8", "ignore")
CODE = f"""
import logging
import sys

ORDERS = {ORDERS!r}

def look(q: str) -> str:
    "Looks."
    logging.getLogger("tools").warning(ORDERS)
    if q == "raise":
        raise ValueError(ORDERS)
    return ORDERS

def grade(case):
    return {{"score": 0, "reason": ORDERS}}

def broken(case):
    raise RuntimeError(ORDERS)

def answer(message):
    raise RuntimeError(ORDERS)
"""
THREAD = f"""
import os
import threading

def fail():
    raise ValueError({ORDERS!r} + os.environ["THE_TOKEN"])

def answer(message):
    thread = threading.Thread(target=fail, name="background")
    thread.start()
    thread.join()
    return message
"""
AGENT_TEST = f"""
import asyncio
import logging
import pytest
import warnings
from holodeck import scenario

ORDERS = {ORDERS!r}

class Says(scenario.AgentAdapter):
    async def call(self, input):
        logging.getLogger("adapter").warning({ORDERS!r})
        if "raise" in input.last_new_user_message_str():
            raise RuntimeError({ORDERS!r})
        return {ORDERS!r}

@pytest.mark.parametrize("said", ["hello", "raise"])
def test_scenario(said, scenario_reporter):
    warnings.warn(ORDERS)
    steps = [scenario.user(said), scenario.agent(), scenario.fail({ORDERS!r})]
    result = asyncio.run(scenario.run({NAME!r}, "...", [Says()], script=steps, verbose=True))
    scenario_reporter.print_report()
    assert result.success, result.reasoning
"""


def respond(request):
    """A model and a judge whose every text is hostile."""
    if "Criteria" in request.prompt:
        return json.dumps({"c1": {"reasoning": ORDERS, "status": "failed"}})
    if request.prompt.startswith("tool") and not request.tool_results:
        calls = [("look", {"q": "raise"}), ("look", {"q": ORDERS}), (f"no{ORDERS}", {ORDERS: 1})]
        return Reply(tool_calls=[*calls, ("kb", {"query": "shoes"})])
    if request.prompt.startswith("fail"):
        return Reply(status=400, content=ORDERS)
    if request.prompt.startswith("garbage"):
        return Reply(body=ORDERS.encode("utf-8", "surrogatepass"))
    return ORDERS


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A folder whose agent, suites, files, server and tools are hostile, with two runs of it."""
    with FakeOpenAI() as server:
        server.when(lambda request: not request.wants_embeddings, respond)
        folder = AgentFolder(tmp_path_factory.mktemp("hostile") / "agent", server)
        folder.write("code_under_test.py", CODE)
        folder.write(f"docs/{FILE}.md", f"# Shoes\n\nshoes {NAME}\n")
        graders = [{"type": "code", "grader": f"code_under_test:{name}"} for name in GRADERS]
        folder.write_agent(
            name=NAME,
            backend="chat",
            execution={"max_retries": 0, "retry_delay": 0},
            tools=[
                {"type": "function", "name": "look", "file": "code_under_test.py",
                 "function": "look"},
                {"type": "vectorstore", "name": "kb", "description": NAME, "source": "docs"},
            ],
            test_cases=[
                case("tool", "tool", contains="x", expected_tools=["look"]),
                case("fail", "fail", contains="x"),
                case("garbage", "garbage", contains="x"),
                case("graded", "hello") | {"evaluations": graders, "criteria": [NAME]},
                case(NAME, NAME, contains=NAME, ground_truth=NAME, tags=[NAME], todo=NAME),
                case(f"skipped {NAME}", "hello", skip=NAME),
            ],
        )  # fmt: skip
        agent = yaml.safe_load((folder.path / "agent.yaml").read_text())
        folder.write("sk.yaml", yaml.safe_dump(agent | {"backend": "semantic_kernel"}))
        folder.write("pyproject.toml", "[tool.pytest.ini_options]\n")
        folder.write("test_agent.py", AGENT_TEST)
        for flags in (["--record"], []):
            ran = folder.run("test", *flags)
            assert ran.code in {1, 3, 4}, ran.stderr
        folder.run("bless", "previous", "-o", "baseline.json")
        [run, _] = json.loads(folder.run("runs", "list", "--json").stdout)
        record = folder.path / ".holodeck" / "runs" / run["id"] / "run.jsonl"
        folder.write(RUN, record.read_bytes())
        folder.write("id", run["id"])
        chats = {"messages": [{"role": role, "content": NAME} for role in ("user", "assistant")]}
        folder.write("chats.jsonl", json.dumps(chats))
        yield folder


GRADERS = ("grade", "broken")
RUN = "record.jsonl"
"""The record of a run to look at, whichever other tests have run since."""
PRINTS = [
    "test", "test --workers 2", "test sk.yaml -v", "test -v", "test -vv -j 1", "test -q",
    "test --list", "test --dry-run", "test --list --json", "test --dry-run --json",
    "test --resume last", "test --against .", "test -k nothing::error::x", "validate",
    "validate --json", "config show", "config show --format json", "score RUN", "score RUN -v",
    "report RUN", "report RUN --format json", "report RUN --format junit",
    "report RUN --format codequality", "report RUN --format html", "compare baseline RUN",
    "compare baseline RUN -v", "compare baseline RUN --format json",
    "compare baseline RUN --format markdown", "compare baseline RUN --format html", "runs",
    "recordings list", "recordings check", "recordings prune", "runs list", "runs list --json",
    "runs show RUN", "runs show RUN --json", "view RUN --no-open", "bless RUN -o again.json",
    "import chats.jsonl", "import ID", "judge check nothing::error::x", "nothing::error::x",
    "report ::error::x", "-::error::x", "models list",
]  # fmt: skip
PRINTS_NOTHING_OF_OTHERS = {"schema", "init"}
READERS = {
    r"json$": json.loads,
    r"junit$": lambda text: junitparser.JUnitXml.fromstring(text.encode()),
    r"^import": yaml.safe_load,
}


def test_every_command_is_here():
    driven = {command.split()[0] for command in PRINTS}

    assert COMMANDS.keys() <= driven | PRINTS_NOTHING_OF_OTHERS


@pytest.mark.parametrize("command", PRINTS)
def test_no_line_of_a_command_is_obeyed(hostile, command, tally):
    run_id = (hostile.path / "id").read_text()
    args = command.replace("RUN", RUN).replace("ID", run_id).split(" ")

    ran = run_cli(*args, cwd=hostile.path)

    assert ran.code in {0, 1, 2, 3, 4, 5}
    # The page is compressed; its own scripts contain what a terminal would not show.
    stdout = "" if command.endswith("html") else ran.stdout
    tally("lines obeyed", obeyed(stdout + ran.stderr), len(PRINTS))
    for pattern, read in READERS.items():
        if re.search(pattern, command) and "-o" not in command:
            assert read(ran.stdout) is not None


def test_a_traceback_of_a_thread_of_the_agent_is_not_obeyed_and_holds_no_secret(write_bot, bot_dir):
    bot_dir.write("bot.py", THREAD)
    write_bot(test_cases=[case("raises", "hello", contains="hello")])

    ran = bot_dir.run("test", env={"THE_TOKEN": "correct-horse-battery"})

    assert ran.code == 0
    assert "Exception in thread background:\nTraceback" in ran.stderr
    assert "ValueError" in ran.stderr
    assert "correct-horse" not in ran.stderr
    assert obeyed(ran.stdout + ran.stderr) == []


def test_spans_on_the_console_are_json_in_which_nothing_is_obeyed(write_bot, bot_dir):
    exporters = {"console": {"pretty_print": False}}
    traces = {"capture_content": True}
    write_bot(
        test_cases=[case(NAME, NAME, contains="x")],
        observability={"enabled": True, "exporters": exporters, "traces": traces},
    )

    ran = bot_dir.run("test")

    assert "evil.example" in ran.stderr
    assert [json.loads(line) for line in ran.stderr.splitlines() if line.startswith("{")]
    assert obeyed(ran.stderr) == []


@pytest.mark.parametrize("form", ["markdown", "junit", "codequality", "json"])
def test_no_text_of_a_report_that_others_wrote_is_obeyed(hostile, form, tally):
    hostile.run("report", RUN, "-o", "theirs.json")
    report = json.loads((hostile.path / "theirs.json").read_text())
    texts = [key for key, value in report.items() if isinstance(value, str)]

    lines = []
    for key in texts:
        hostile.write("theirs.json", json.dumps(report | {key: f"{report[key]}{NAME}"}))
        ran = hostile.run("report", "theirs.json", "--format", form)
        lines += obeyed(ran.stdout + ran.stderr)

    tally("lines of a foreign report obeyed", lines, len(texts))


def test_json_on_stdout_says_what_the_agent_said(hostile):
    report = json.loads(run_cli("report", RUN, "--format", "json", cwd=hostile.path).stdout)

    assert NAME in (result["test_name"] for result in report["results"])


@pytest.mark.parametrize("command", [("report", RUN), ("score", RUN), ("compare", "baseline", RUN)])
def test_in_a_step_of_github_a_recorded_answer_is_no_command(hostile, command):
    ran = run_cli(*command, cwd=hostile.path, env={"GITHUB_ACTIONS": "true"})

    assert commands(ran.stdout + ran.stderr)[0] == []


@pytest.mark.parametrize(
    "options", [("agent.yaml",), ("agent.yaml", "-v"), ("agent.yaml", "-rA", "--tb=short"),
                ("test_agent.py", "-rA"), ("test_agent.py", "--tb=native", "-o", "log_level=INFO")],
    ids=str,
)  # fmt: skip
def test_no_line_of_pytest_is_obeyed(hostile, options, tally):
    shown = run_pytest(hostile.path, "-p", "no:cacheprovider", *options)

    assert "failed" in shown
    captured = shown.replace("\x1b[31m", "")  # what code under test prints keeps its colors
    tally("lines of pytest obeyed", obeyed(captured), len(PRINTS))


def test_no_line_of_pytest_about_a_hostile_file_is_obeyed(hostile):
    steering = FILE.replace("::", "")[:60] + "##[error]x"
    suites = {
        "good": {"suite": {"name": NAME}, "test_cases": [case(NAME, "hello", contains="never")]},
        "bad": {"test_cases": [{NAME: 5}]},
    }
    for name, suite in suites.items():
        hostile.write(f"suites/{steering}{name}.suite.yaml", yaml.safe_dump(suite))

    for option in ("-q", "-v"):
        files = ("-o", "holodeck_files=*.suite.yaml", "-p", "no:cacheprovider")
        shown = run_pytest(
            hostile.path, *files, "--continue-on-collection-errors", option, "suites"
        )

        assert "1 failed" in shown
        assert "1 error" in shown
        assert obeyed(shown) == []


def test_the_source_line_and_file_of_a_warning_are_not_obeyed(bot_dir):
    bot_dir.write(
        "test_it.py",
        "import warnings\n\n"
        "def test_it():\n"
        "    warnings.warn('hello')  # \x1b]0;PWNED\x07 ::error::x ##vso[task]x\n"
        "    warnings.warn_explicit('other', UserWarning, '\\x1b[2J##[error]x.py', 1)\n",
    )

    shown = run_pytest(bot_dir.path, "-p", "no:cacheprovider", "test_it.py")

    assert "1 passed" in shown
    assert "2 warnings" in shown
    assert obeyed(shown) == []
