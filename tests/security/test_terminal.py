"""Whatever a model, a tool or a person writes: the terminal gets text and our own colours only."""

import re

import pytest

from fakes import Reply, case, run_in_pty

HOSTILE = [
    "\x1b[2J\x1b[H", "\x1b[31m", "\x1b]0;owned\x07", "\x1b]8;;http://evil.example\x1b\\x",
    "\x1b]52;c;ZXZpbA==\x07", "\x1bP+q544e\x1b\\", "\x1b[6n", "\x1b[?1049h", "\x1bc",
    "\x9b2J", "\x9d0;owned\x9c", "\x00", "\x07\x08\x0b\x0c\x0e\x7f", "\r overwritten",
    "\u202egnp.exe\u202c", "\u2066x\u2069", "\u200f\u061c", "\u2028\u2029", "\ufeff\u200b\u00ad",
    "\udc80\ud800", "\U000e0041\U000e007f", "\ufff9x\ufffb",
]  # fmt: skip
EVERYTHING = "|".join(HOSTILE)

OURS = re.compile(rb"\x1b\[(?:0|9[123])m|\x1b\[\?25[lh]|(?:\x1b\[\d+A)?\r\x1b\[J")
FORBIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200f\u061c\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e0fff]"
)


def assert_tame(raw):
    """Nothing but text, line ends and the few sequences that our own display is made of."""
    text = OURS.sub(b"", raw.replace(b"\r\n", b"\n")).decode("utf-8")
    assert [text[m.start() : m.start() + 20] for m in FORBIDDEN.finditer(text)] == []


@pytest.mark.parametrize("options", [(), ("-v",), ("-vv",), ("-q",)], ids=" ".join)
@pytest.mark.parametrize("terminal", ["xterm-256color", "dumb"])
def test_nothing_hostile_reaches_a_terminal(agent_dir, options, terminal):
    agent_dir.write("tools.py", TOOL)
    named = EVERYTHING.encode("utf-8", "ignore").decode()
    agent_dir.server.when(
        lambda request: request.prompt == "tool" and not request.tool_results,
        Reply(tool_calls=[("look", {"q": EVERYTHING}), (f"no{EVERYTHING}", {})]),
    )
    agent_dir.server.when("fail", status=400, content=EVERYTHING)
    agent_dir.server.otherwise(EVERYTHING)
    agent_dir.write_agent(
        tools=[{"type": "function", "name": "look", "file": "tools.py", "function": "look"}],
        test_cases=[
            case("answer", "hello", contains="goodbye"),
            case("tool", "tool", contains="goodbye", expected_tools=["look"]),
            case("fail", "fail", contains="x"),
            case(named.replace("\0", ""), named, contains=named),
        ],
    )

    ran = run_in_pty("test", *options, cwd=agent_dir.path, env={"TERM": terminal})

    assert ran.code in {1, 3}
    assert b"Traceback" not in ran.raw or options == ("-vv",)
    assert_tame(ran.raw)


TOOL = """
import sys

def look(q: str) -> str:
    "Looks."
    raise ValueError(q)
"""


@pytest.mark.parametrize("command", ["validate", "test"])
def test_a_hostile_configuration_reaches_no_terminal(agent_dir, command):
    for text in ('name: "\\e[2J\\x9b2J\\u202e"\nmodel: 5', '"\\e]0;x\\a": 1', "x: *\u202e"):
        agent_dir.write("agent.yaml", text)

        ran = run_in_pty(command, cwd=agent_dir.path)

        assert ran.code == 2
        assert_tame(ran.raw)


def test_a_hostile_name_of_a_file_reaches_no_terminal(agent_dir):
    for name in ("\x1b[2Jgone.yaml", "a\u202eb.yaml"):
        ran = run_in_pty("test", name, cwd=agent_dir.path)

        assert ran.code == 2
        assert_tame(ran.raw)
