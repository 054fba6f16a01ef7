"""An agent of Semantic Kernel whose conversations a service keeps, through the command line."""

import pytest

from fakes import case, run_cli, start_cli
from support.checks import assert_plain
from support.frameworks import script

BOT = """
import functools
from openai import AsyncOpenAI
from semantic_kernel.agents import AssistantAgentThread, OpenAIAssistantAgent
from semantic_kernel.functions import kernel_function

class Orders:
    @kernel_function(description="Where an order is.")
    def lookup_order(self, order_id: str) -> str:
        return f"order {order_id} is shipped"

async def make():
    client = AsyncOpenAI(base_url="URL", api_key="not-a-real-key", max_retries=0)
    definition = await client.post(
        "/assistants", body={"model": "fake", "name": "support"}, cast_to=dict
    )
    definition = await client.beta.assistants.retrieve(definition["id"])
    return OpenAIAssistantAgent(client=client, definition=definition, plugins=[Orders()])

async def make_with_thread():
    agent = await make()
    message = {"role": "user", "content": "my name is Ada"}
    return agent, AssistantAgentThread(agent.client, messages=[message])
"""


@pytest.fixture
def folder(agent_dir):
    agent_dir.server.otherwise(script)
    agent_dir.write("bot.py", BOT.replace("URL", agent_dir.server.url))
    return agent_dir


@pytest.fixture
def write(folder):
    def write(target, *cases):
        folder.write_agent(
            model=None, instructions=None, backend=f"bot:{target}", test_cases=list(cases)
        )

    return write


def test_it_is_tested_with_its_tools_and_leaves_no_thread(folder, write):
    expected = {"name": "lookup_order", "args": {"order_id": "7"}, "result": {"contains": "ship"}}
    order = case("order", "Where is order 7?", contains="shipped", expected_tools=[expected])
    write("make", order, case("fails", "fail", contains="x"))

    ran = run_cli("test", cwd=folder.path)

    assert_plain(ran)
    assert (ran.code, "as told" in ran.stdout) == (3, True)
    assert "1/2 passed" in ran.stdout
    service = folder.server.assistants
    assert (len(service.created), service.threads) == (2, {})


def test_a_thread_begins_every_case(folder, write):
    write("make_with_thread", *(case(name, name, contains="OK") for name in ("one", "two")))

    ran = run_cli("test", cwd=folder.path)

    assert ran.code == 0
    for request in folder.server.requests:
        users = [one["content"] for one in request.messages if one["role"] == "user"]
        assert users in (["my name is Ada", "one"], ["my name is Ada", "two"])


def test_an_interrupted_run_leaves_no_thread(folder, write):
    write("make", case("hangs", "hang", contains="x"))

    with start_cli("test", cwd=folder.path) as run:
        folder.server.wait_for_requests(1)
        run.interrupt()
        ran = run.finish()

    assert ran.code == 130
    assert folder.server.assistants.threads == {}
    assert any("/cancel" in line for line in folder.server.assistants.log)


def test_its_tools_are_known_before_a_run(folder, write):
    write("make", case("hello", "hello", contains="OK"))

    checked = run_cli("validate", "--load", cwd=folder.path)
    made = run_cli("init", "new.yaml", "--from", "bot:make", cwd=folder.path)

    assert (checked.code, made.code) == (0, 0)
    said = "OpenAIAssistantAgent of Semantic Kernel; tools: Orders-lookup_order"
    assert said in checked.stdout.replace("\n", " ") + checked.stderr
    assert f"Found {said}" in made.stdout
    assert folder.server.assistants.created == []
