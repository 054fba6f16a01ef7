"""`run()` again and again in one process, as in a notebook: one loop, and nothing left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

import holodeck
from support.frameworks import script
from support.frameworks.openai_agents import openai_agent
from support.frameworks.pydantic_ai import pydantic_ai_agent
from support.frameworks.semantic_kernel import chat_completion_agent

CASE = [{"input": "Where is order 7?", "expected_tools": ["lookup_order"]}]


@pytest.mark.parametrize("make", [chat_completion_agent, openai_agent, pydantic_ai_agent])
def test_an_agent_with_an_open_client_is_run_again_and_again(fake_openai, make):
    fake_openai.otherwise(script)
    subject = make(fake_openai)

    async def close(_):
        await subject.close()
        return "closed"

    reports = [holodeck.run(subject.agent, CASE) for _ in range(3)]
    both = holodeck.compare_agents(subject.agent, subject.agent, CASE)
    holodeck.run(close, ["close"])

    assert [report.results[0].errors for report in reports] == [[], [], []]
    assert all(report.passed for report in reports)
    assert both.is_complete


def test_what_an_agent_leaves_running_ends_with_the_run():
    left = []

    async def agent(message):
        left.append(asyncio.create_task(asyncio.sleep(3600)))
        return message

    for _ in range(2):
        assert holodeck.run(agent, ["hello"]).results[0].agent_response == "hello"

    assert [task.cancelled() for task in left] == [True, True]


def test_an_agent_can_run_another_one():
    def inner(message):
        return f"inner {message}"

    def outer(message):
        return holodeck.run(inner, [message]).results[0].agent_response

    assert holodeck.run(outer, ["hello"]).results[0].agent_response == "inner hello"


def test_threads_run_agents_at_the_same_time():
    both = threading.Barrier(2)
    responses = []

    def agent(message):
        both.wait()
        return message

    threads = [
        threading.Thread(
            target=lambda: responses.append(holodeck.run(agent, ["hi"]).results[0].agent_response)
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert responses == ["hi", "hi"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on Windows")
def test_a_forked_process_has_a_loop_of_its_own():
    code = """
import os, holodeck
async def agent(message):
    return message
def run():
    assert holodeck.run(agent, ["hi"]).results[0].agent_response == "hi"
run()
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
run()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_ctrl_c_ends_a_later_run_and_the_next_one_works():
    code = """
import asyncio, holodeck, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
async def agent(message):
    if message == "wait":
        print("ready", flush=True)
        await asyncio.sleep(3600)
    return message
holodeck.run(agent, ["first"])
try:
    holodeck.run(agent, ["wait"])
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(holodeck.run(agent, ["last"]).results[0].agent_response)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()

    assert (process.returncode, said) == (0, "interrupted\nlast\n")
