"""Whatever a model, a tool or a person writes: the terminal gets text and our own colours only."""

import re

import pytest

from fakes import Reply, case, run_in_pty
from support.payloads import CONTROLS, PAYLOADS

EVERYTHING = "|".join([*CONTROLS, *PAYLOADS])
NAME = EVERYTHING.encode("utf-8", "ignore").decode().replace("\0", "")

# Colours, the cursor, what erases the moving rows, and what ends and redraws them.
OURS = re.compile(
    rb"\x1b\[(?:0|9[1236])m|\x1b\[\?25[lh]|(?:\x1b\[\d+A)?\r\x1b\[J"
    rb"|\x1b\[K(?:(?:\x1b\[\d+A)?\r(?!\x1b\[J))?"
)
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200f\u061c\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e0fff]"
)


def untamed(raw):
    """What is neither text, nor a line end, nor one of the sequences of our own display."""
    text = OURS.sub(b"", raw.replace(b"\r\n", b"\n")).decode("utf-8", "surrogateescape")
    return [ascii(text[m.start() : m.start() + 20]) for m in FORBIDDEN.finditer(text)]


# Semantic Kernel takes seconds to import, and logs most with -vv.
@pytest.mark.parametrize(
    ("options", "terminal", "backend"),
    [
        ((), "xterm-256color", "chat"),
        (("-v",), "xterm-256color", "chat"),
        (("-vv",), "xterm-256color", "semantic_kernel"),
        (("-vv",), "dumb", "chat"),
        (("-q",), "dumb", "chat"),
    ],
    ids=str,
)
def test_nothing_hostile_reaches_a_terminal(agent_dir, tally, options, terminal, backend):
    agent_dir.write("tools.py", TOOL)
    agent_dir.server.when(
        lambda request: request.prompt == "tool" and not request.tool_results,
        Reply(tool_calls=[("look", {"q": EVERYTHING}), (f"no{EVERYTHING}", {})]),
    )
    agent_dir.server.when("fail", status=400, content=EVERYTHING)
    agent_dir.server.when("garbage", body=EVERYTHING.encode("utf-8", "surrogatepass"))
    agent_dir.server.otherwise(EVERYTHING)
    agent_dir.write_agent(
        backend=backend,
        execution={"max_retries": 1, "retry_delay": 0},
        tools=[{"type": "function", "name": "look", "file": "tools.py", "function": "look"}],
        test_cases=[
            case("answer", "hello", contains="goodbye"),
            case("tool", "tool", contains="goodbye", expected_tools=["look"]),
            case("fail", "fail", contains="x"),
            case("garbage", "garbage", contains="x"),
            case(NAME, NAME, contains=NAME),
        ],
    )

    ran = run_in_pty("test", *options, cwd=agent_dir.path, env={"TERM": terminal})

    assert ran.code in {1, 3}
    assert (b"Traceback" in ran.raw) == (options == ("-vv",))
    assert options == ("-q",) or rb"\x1b[2J" in ran.raw  # spelled out
    tally("control sequences on a terminal", untamed(ran.raw), len(CONTROLS))


TOOL = """
import sys

def look(q: str) -> str:
    "Looks."
    raise ValueError(q)
"""


@pytest.mark.parametrize("command", ["validate", "test"])
def test_a_hostile_configuration_reaches_no_terminal(agent_dir, cli, command):
    for text in ('name: "\\e[2J\\x9b2J\\u202e"\nmodel: 5', '"\\e]0;x\\a": 1', "x: *\u202e"):
        agent_dir.write("agent.yaml", text)

        ran = cli.run(command, cwd=agent_dir.path)

        assert ran.code == 2
        assert untamed((ran.stdout + ran.stderr).encode()) == []


def test_a_hostile_argument_reaches_no_terminal(agent_dir, cli):
    agent_dir.write_agent()
    hostile = NAME + "\udc80"
    for args in (["test", hostile], ["runs", "show", hostile], ["test", "-o", hostile], [hostile]):
        ran = cli.run(*args, cwd=agent_dir.path)

        assert (ran.code, "\\x1b[2J" in ran.stderr) == (2, True)
        assert untamed(ran.stderr.encode()) == []


def test_a_record_of_hostile_texts_reaches_no_terminal(agent_dir, cli):
    agent_dir.write("bot.py", "def answer(message):\n    return message\n")
    agent_dir.write_agent(
        name=NAME,
        model=None,
        instructions=None,
        backend="bot:answer",
        test_cases=[case(NAME, NAME, contains="no")],
    )
    agent_dir.run("test")

    for args in (["runs"], ["runs", "list"], ["runs", "show", "last"], ["report"], ["score"]):
        ran = cli.run(*args, cwd=agent_dir.path)

        assert untamed((ran.stdout + ran.stderr).encode()) == []
