"""Messages between holodeck and its child processes, and how the end of a child is explained."""

import asyncio
import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.lib.processes.channel import BadMessage, FrameReader, LineReader, frame
from holodeck.lib.processes.child_process import ChildEnded, FramedChild, Launch, python_command
from support.processes import is_running, until_gone

PARENT = "from holodeck.lib.processes.channel import *; parent = Parent(FrameReader()); "
WAY_OUT = "import os, signal, sys, time; parent.receive(); "
ENDS = {
    "exit": ("os._exit(3)", "it ended with exit code 3"),
    "signal": ("os.kill(os.getpid(), signal.SIGKILL)", "it was killed by SIGKILL"),
    "last words": (
        "print('no disk', file=sys.stderr); os._exit(1)",
        "it ended with exit code 1; the end of its stderr: no disk",
    ),
    "no number": ("parent.write(b'12 [\\n')", "no message: b'12 ['"),
    "too large": ("parent.write(b'1001 [1]\\n')", "no message: b'1001 [1]'"),
    "printed": ("print('hello'); parent.send([1, 'ok']); time.sleep(60)", None),
}


class Child(FramedChild):
    name = "it"


async def start(statement):
    child = Child(max_body=1000)
    command = python_command(PARENT + statement, sys.path)
    await child.start(Launch(command, env=dict(os.environ)))
    return child


@given(st.lists(st.tuples(st.text(), st.binary(max_size=50)), max_size=5), st.integers(1, 30))
def test_messages_arrive_in_whatever_pieces(messages, size):
    data = b"".join(frame([text], body) for text, body in messages)
    reader = FrameReader()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]

    received = [message for piece in pieces for message in reader.feed(piece)]

    assert received == [([text], body) for text, body in messages]


@pytest.mark.parametrize("line", [b"-1 [1]", b"1 []", b"1 {}", b"x [1]", b"3 " + b"[" * 100_000])
def test_a_line_that_announces_no_message_is_refused(line):
    with pytest.raises(BadMessage, match="no message"):
        list(FrameReader().feed(line + b"\n"))


def test_a_line_is_no_longer_than_its_limit():
    reader = LineReader(max_line=4)

    assert list(reader.feed(b"1234\n12")) == [b"1234"]
    with pytest.raises(BadMessage, match="a line has more than"):
        list(reader.feed(b"345"))


@pytest.mark.parametrize(("statement", "reason"), ENDS.values(), ids=ENDS)
async def test_a_request_says_how_the_process_ended(statement, reason):
    child = await start(WAY_OUT + statement)

    with child.call(["work"]) as answer:
        async with asyncio.timeout(30):
            if reason is None:
                assert await answer == (["ok"], b"")
            else:
                with pytest.raises(ChildEnded) as raised:
                    await answer
                assert str(raised.value) == reason
    await child.close(0)

    await until_gone(child.pid)
    with pytest.raises(ChildEnded), child.call(["work"]):
        pass


async def test_a_process_whose_answer_nobody_waits_for_is_killed_after_the_other_answers():
    child = await start(
        "import time; parent.receive(); parent.listen(lambda _: parent.send([2, 'ok']), exit);"
        " time.sleep(60)"
    )

    with child.call(["first"]):
        with child.call(["second"]) as answer:
            async with asyncio.timeout(30):
                assert await answer == (["ok"], b"")
        assert is_running(child.pid)

    await until_gone(child.pid)
    assert "took too long" in child.failure
    await child.close()
