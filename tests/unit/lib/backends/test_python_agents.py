"""Agents in Python: what makes them, how long they live, and what cannot be one."""

import re
import sys

import pytest

from fakes import FakeOpenAI
from holodeck.errors import BackendInitError, BackendSessionError, ConfigError
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.backends.selector import BackendSelector
from holodeck.models.agent import Agent
from support.frameworks import script
from support.frameworks.semantic_kernel import chat_completion_agent


class Counter:
    """Answers with the number of its messages; `made` counts its objects."""

    made = 0

    def __init__(self):
        type(self).made += 1
        self.count = 0
        self.is_closed = False

    async def run(self, message):
        self.count += 1
        return f"{message} {self.count}"

    def close(self):
        self.is_closed = True


@pytest.fixture
def counter():
    """A class of its own for each test, so that `made` begins at 0."""
    return type("Counter", (Counter,), {"made": 0})


def makers(kind):
    def make():
        return kind()

    async def make_async():
        return kind()

    return {"class": kind, "factory": make, "async factory": make_async}


async def answers(backend, messages=("a", "b")):
    return [(await backend.invoke_once(message)).response for message in messages]


@pytest.mark.parametrize("shape", ["class", "factory", "async factory"])
async def test_each_case_has_an_agent_of_its_own(counter, shape):
    target = makers(counter)[shape]
    backend = CallableBackend(target)

    assert await answers(backend) == ["a 1", "b 1"]
    assert counter.made == 2
    assert backend.capabilities.concurrency == 10
    await backend.teardown()


@pytest.mark.parametrize("shape", ["class", "factory", "async factory"])
async def test_all_cases_share_the_agent_with_the_scope_run(counter, shape):
    target = makers(counter)[shape]
    backend = CallableBackend(target, scope="run")

    assert await answers(backend) == ["a 1", "b 2"]
    assert counter.made == 1
    assert backend.capabilities.concurrency == 1
    await backend.teardown()


async def test_a_session_keeps_its_agent_and_closes_it(counter):
    agents = []

    def make():
        agents.append(counter())
        return agents[-1]

    backend = CallableBackend(make)
    first, second = await backend.create_session(), await backend.create_session()

    assert [(await first.send("a")).response, (await first.send("b")).response] == ["a 1", "b 2"]
    assert (await second.send("c")).response == "c 1"
    await first.close()
    await first.close()
    assert [one.is_closed for one in agents] == [True, False]
    await second.close()
    await backend.teardown()


async def test_a_factory_of_a_backend_is_called_once_as_its_sessions_are_isolated():
    from fakes import ScriptedBackend

    made = []

    def make():
        made.append(ScriptedBackend())
        return made[-1]

    backend = CallableBackend(make)

    assert await answers(backend) == ["OK: a", "OK: b"]
    assert len(made) == 1
    await backend.teardown()


async def test_a_factory_can_make_an_agent_of_a_framework_for_each_case():
    made = []
    with FakeOpenAI(script) as server:

        async def make():
            made.append(chat_completion_agent(server))
            return made[-1].agent

        backend = CallableBackend(make)

        results = [await backend.invoke_once(f"Where is order {i}?") for i in range(2)]
        await backend.teardown()
        for one in made:
            await one.close()

    assert [len(one.tool_calls) for one in results] == [1, 1]
    assert len(made) == 2


@pytest.mark.parametrize("scope", ["case", "run"])
async def test_the_yaml_form_says_how_long_an_agent_lives(tmp_path, scope):
    (tmp_path / "bot.py").write_text(
        "class Bot:\n"
        "    count = 0\n"
        "    async def run(self, message):\n"
        "        self.count += 1\n"
        "        return str(self.count)\n"
        "def make():\n"
        "    return Bot()\n"
    )
    agent = Agent(name="a", backend={"type": "python", "target": "bot:make", "scope": scope})

    backend = await BackendSelector.select(agent, base_dir=tmp_path)

    assert await answers(backend) == ["1", {"case": "1", "run": "2"}[scope]]
    await backend.teardown()


async def test_an_object_has_no_scope(counter):
    with pytest.raises(ConfigError, match=r"backend\.scope: only a class or a function without"):
        await CallableBackend(counter(), scope="case").initialize()


def test_a_target_without_an_attribute_is_refused():
    with pytest.raises(ValueError, match="'target' is 'bot'; write 'module:attribute'"):
        Agent(name="a", backend={"type": "python", "target": "bot"})


SUPPORT = """
from semantic_kernel.agents import ChatCompletionAgent, ChatHistoryAgentThread

agent = ChatCompletionAgent(name="support")
thread = ChatHistoryAgentThread()
number = 3

async def make():
    return agent

coroutine = make()

def broken():
    raise OSError("no database")
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "number",
            "an int is not an agent; .*: Semantic Kernel, .*; module 'support' has 'agent'",
        ),
        (
            "thread",
            "; of Semantic Kernel, ChatCompletionAgent, Kernel, .* are taken; module 'support' has",
        ),
        ("coroutine", r"make\(\) was called without 'await'; name the function itself"),
        ("ChatCompletionAgent", "is a class of Semantic Kernel itself; create an agent with it"),
        ("agnet", "there is no 'agnet' in it; did you mean 'agent'"),
    ],
)
async def test_what_is_no_agent_is_refused_with_what_would_fit(tmp_path, name, said):
    (tmp_path / "support.py").write_text(SUPPORT)

    with pytest.raises(ConfigError, match=said) as raised:
        await CallableBackend(f"support:{name}", tmp_path).initialize()

    assert "\n" not in str(raised.value)
    for module in [one for one in sys.modules if one.startswith("_holodeck_file_")]:
        getattr(getattr(sys.modules[module], "coroutine", None), "close", lambda: None)()


def make_class(package, *names):
    """Return a class, derived from those of the other names, as the package would define it."""
    bases = (make_class(package, *names[1:]),) if names[1:] else ()
    return type(names[0], bases, {"__module__": f"{package}.core", "run": print})


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        (
            make_class("crewai", "Crew"),
            'def answer(message): return agent.kickoff({"message": message}).raw',
        ),
        (make_class("crewai", "Agent"), "def answer(message): return agent.kickoff(message).raw"),
        (
            make_class("llama_index", "FunctionAgent", "BaseWorkflowAgent"),
            "async def answer(message): return str(await agent.run(message))",
        ),
        (
            make_class("autogen_agentchat", "AssistantAgent", "ChatAgent"),
            "return (await make_agent().run(task=message)).messages[-1].to_text()",
        ),
        (
            make_class("haystack", "Agent"),
            'return agent.run([ChatMessage.from_user(message)])["last_message"].text',
        ),
    ],
    ids=["crew", "crew agent", "llama-index", "autogen", "haystack"],
)
async def test_objects_of_frameworks_without_an_adapter_name_the_function_to_write(kind, function):
    with pytest.raises(ConfigError) as raised:
        await CallableBackend(kind).initialize()

    message = str(raised.value)
    assert f"holodeck has no adapter for {kind.__name__} of " in message
    assert function in message
    assert message.endswith('target: "module:answer", tap: true}\'; the tap sees its tool calls')


async def test_a_class_of_the_user_that_answers_may_derive_from_one_of_a_framework():
    class Support(make_class("crewai", "Flow")):
        def run(self, message):
            return message

    assert (await CallableBackend(Support).invoke_once("hello")).response == "hello"


async def test_a_factory_that_raises_is_reported_with_file_and_line(tmp_path):
    (tmp_path / "support.py").write_text(SUPPORT)

    with pytest.raises(
        BackendInitError, match=r"created: OSError: no database \(.*support\.py:"
    ) as raised:
        await CallableBackend("support:broken", tmp_path).initialize()

    line = SUPPORT.splitlines().index('    raise OSError("no database")') + 1
    assert re.search(rf"support\.py:{line}", str(raised.value))
    for module in [one for one in sys.modules if one.startswith("_holodeck_file_")]:
        getattr(getattr(sys.modules[module], "coroutine", None), "close", lambda: None)()


async def test_a_factory_that_fails_for_a_later_case_fails_that_case(counter):
    made = []

    def make():
        made.append(counter())
        if len(made) == 2:
            raise OSError("no database")
        return made[-1]

    backend = CallableBackend(make)

    assert (await backend.invoke_once("a")).response == "a 1"
    with pytest.raises(BackendSessionError, match="the agent cannot be created: OSError: no data"):
        await backend.invoke_once("b")
    assert (await backend.invoke_once("c")).response == "c 1"
    await backend.teardown()


async def test_a_factory_that_returns_nothing_is_refused():
    def make():
        pass

    with pytest.raises(ConfigError, match=r"make\(\) returned nothing; let make return"):
        await CallableBackend(make).initialize()


class Remembering:
    """Keeps what it is told, though it is shared."""

    def __init__(self):
        self.thread = {"messages": []}

    async def run(self, message):
        self.thread["messages"].append({"role": "user", "content": message})
        return f"{len(self.thread['messages'])} messages"


async def test_an_object_that_keeps_messages_of_an_earlier_case_is_reported_with_them(caplog):
    backend = CallableBackend(Remembering())
    await backend.initialize()
    session = await backend.create_session()
    await session.send("my name is Ada")
    await session.send("who am I")
    assert caplog.messages == []

    await backend.invoke_once("hello")
    await backend.invoke_once("hello again")

    [message] = caplog.messages
    assert "'my name is Ada' of an earlier case is in Remembering." in message
    assert "thread['messages'][0]['content']; name its class" in message
    await backend.teardown()


@pytest.mark.parametrize("target", [Counter(), Remembering], ids=["no messages", "its own object"])
async def test_nothing_is_reported_where_cases_do_not_see_each_other(target, caplog):
    backend = CallableBackend(target)

    await answers(backend, ("a", "b", "a"))

    assert caplog.messages == []
    await backend.teardown()
