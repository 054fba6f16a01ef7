"""Tool filtering and tools with side effects, against a real server on loopback."""

import re

import pytest

import holodeck
from holodeck.config.checks.agent import check
from holodeck.errors import ConfigError
from holodeck.lib.backends.selector import BackendSelector
from holodeck.lib.test_runner.grading.grade import ObservationBuilder
from holodeck.lib.tools.base import Tool
from holodeck.lib.tools.toolbox import ToolFilterManager
from holodeck.models.agent import Agent
from holodeck.models.tools.config import ToolFilterConfig

CODE = '''
from pathlib import Path


def get_weather(city: str) -> str:
    """The weather and the forecast of a city."""
    return f"3 degrees in {city}"


def find_orders(customer: str) -> str:
    """Finds the orders of a customer."""
    return "order 1"


def refund_order(order: str) -> str:
    """Pays an order back."""
    Path(__file__).with_name("refunded").touch()
    return "done"


def book_room(day: str) -> str:
    """Books a meeting room."""
    return "booked"
'''
NAMES = ["get_weather", "find_orders", "refund_order", "book_room"]
FILTERING = {
    "enabled": True,
    "top_k": 1,
    "search_method": "bm25",
    "always_include_top_n_used": 1,
}


@pytest.fixture
def agent(tmp_path, fake_openai):
    """Returns an agent with four tools; `tools` are further keys of each."""
    (tmp_path / "tools.py").write_text(CODE)

    def build(tools=None, **fields):
        raw = {
            "name": "a",
            "backend": "chat",
            "model": {"provider": "openai", "name": "m", "endpoint": fake_openai.url},
            "instructions": {"inline": "Help."},
            "tools": [
                {"type": "function", "name": name, "file": "tools.py", "function": name}
                | (tools or {}).get(name, {})
                for name in NAMES
            ],
            "tool_filtering": FILTERING,
        }
        return Agent.model_validate({**raw, **fields}).with_base_dir(tmp_path)

    return build


@pytest.mark.parametrize("backend", ["chat", "semantic_kernel"])
async def test_a_model_is_offered_the_tools_that_fit_the_message(agent, fake_openai, backend):
    fake_openai.reply(tool_calls=[("get_weather", {"city": "Rome"})])
    fake_openai.reply(tool_calls=[("book_room", {"day": "today"})])
    fake_openai.reply("3 degrees.").reply("Two orders.").reply("Yes.")
    reached = await BackendSelector.select(agent(backend=backend, tools={}))
    session = await reached.create_session()

    weather = await session.send("What is the weather in Rome?")
    orders = await session.send("And the orders of Ada?")
    nothing = await (await reached.create_session()).send("Thanks!")
    await reached.teardown()

    assert [request.tools for request in fake_openai.requests] == [
        *[["get_weather"]] * 3,
        ["get_weather"],  # called most in the conversation, so that top_k is reached
        [],
    ]
    assert (weather.tools, orders.tools, nothing.tools) == (["get_weather"], ["get_weather"], [])
    withheld = weather.tool_results[1]
    assert withheld["refused"]
    assert withheld["is_error"]


async def test_tools_can_be_offered_always(agent, fake_openai):
    fake_openai.otherwise("Yes.")
    filtering = {**FILTERING, "top_k": 3, "always_include": ["book_room"]}
    always = agent(tools={"refund_order": {"defer_loading": False}}, tool_filtering=filtering)
    reached = await BackendSelector.select(always)

    result = await reached.invoke_once("weather")
    await reached.teardown()

    assert result.tools == ["get_weather", "refund_order", "book_room"]


def test_an_expected_tool_that_was_never_offered_fails_and_says_so(agent, fake_openai):
    fake_openai.otherwise("I do not know.")
    case = {"input": "weather in Rome?", "expected_tools": ["book_room", "get_weather"]}

    [result] = holodeck.run(agent(test_cases=[case])).results

    book, weather = [check.reason for check in result.tool_checks]
    assert "tool_filtering never offered 'book_room' to the model" in book
    assert weather == "no call of 'get_weather'; called: nothing"
    assert result.tools == ["get_weather"]


@pytest.mark.parametrize("backend", ["chat", "semantic_kernel"])
@pytest.mark.parametrize("is_provider", [True, False], ids=["provider", "tool"])
async def test_tools_are_compared_by_the_embeddings_of_the_agent(
    agent, fake_openai, tmp_path, backend, is_provider
):
    fake_openai.otherwise("Yes.")
    filtering = {**FILTERING, "search_method": "semantic", "similarity_threshold": 0.1}
    named = agent(backend=backend, tool_filtering=filtering)
    if is_provider:
        given = {"provider": "ollama", "name": "embeds", "endpoint": fake_openai.root}
        named = agent(backend=backend, tool_filtering=filtering, embedding_provider=given)
    else:
        (tmp_path / "terms.md").write_text("Terms.")
        search = {"type": "vectorstore", "name": "terms", "source": "terms.md"}
        search |= {"embedding_model": "embeds", "database": {"provider": "in-memory"}}
        raw = named.model_dump(exclude_none=True, exclude={"tools"})
        tools = [one.model_dump(exclude_none=True) for one in named.tools]
        named = Agent.model_validate({**raw, "tools": [*tools, search]}).with_base_dir(tmp_path)
    reached = await BackendSelector.select(named)

    result = await reached.invoke_once("the weather of a city and its forecast")
    await reached.teardown()

    assert result.tools == ["get_weather"]
    asked = {one.model for one in fake_openai.requests if one.wants_embeddings}
    assert asked == {"embeds"}


def test_an_embedding_provider_without_embeddings_is_an_error(agent):
    given = {"provider": "anthropic", "name": "claude"}
    filtering = {**FILTERING, "search_method": "hybrid"}

    found = check(agent(embedding_provider=given, tool_filtering=filtering))

    assert "holodeck cannot request embeddings from 'anthropic'" in str(found)


def test_it_is_found_where_holodeck_has_it():
    from holodeck.lib import tool_filter

    assert tool_filter.ToolFilterManager is ToolFilterManager
    assert tool_filter.ToolFilterConfig is ToolFilterConfig


@pytest.mark.parametrize(
    ("method", "query", "found"),
    [
        ("bm25", "refund an order", ["find_orders", "refund_order"]),
        ("semantic", "money", ["find_orders", "refund_order"]),
        ("hybrid", "money and weather", ["get_weather", "find_orders"]),
        ("semantic", "  ", []),
    ],
)
async def test_tools_are_compared_by_keywords_by_meaning_or_both(method, query, found):
    def vector(text):
        return [float(word in text) for word in ("weather", "order", "room")]

    async def embed(texts):
        return [vector(text.replace("money", "order")) for text in texts]

    async def call(arguments):
        return arguments

    docs = re.findall(r'def (\w+).*\n    """(.+)"""', CODE)
    tools = [Tool(name, text, {"type": "object"}, call) for name, text in docs]
    config = ToolFilterConfig(enabled=True, top_k=2, search_method=method)

    offered = await ToolFilterManager(config, tools, embed).filter_tools(query)

    assert offered == found


def test_names_of_tools_that_are_always_offered_are_checked(agent, tmp_path):
    wrong = agent(tool_filtering={**FILTERING, "always_include": ["get_wether"]})

    [found] = [one for one in check(wrong) if one.severity == "error"]

    assert str(found).endswith("unknown tool 'get_wether'; did you mean 'get_weather'?")
    with pytest.raises(ConfigError, match="write 'bm25'"):
        ToolFilterManager(ToolFilterConfig(enabled=True), [])


@pytest.mark.parametrize("backend", ["chat", "semantic_kernel"])
@pytest.mark.parametrize("is_allowed", [False, True], ids=["by default", "allowed"])
def test_a_tool_with_side_effects_runs_only_if_that_is_allowed(
    agent, fake_openai, tmp_path, backend, is_allowed
):
    fake_openai.reply(tool_calls=[("refund_order", {"order": "1"})]).reply("Done.")
    case = {"input": "refund order 1", "expected_tools": ["refund_order"]}
    execution = {"allow_side_effects": True} if is_allowed else None
    guarded = agent(
        tools={"refund_order": {"side_effects": True}},
        backend=backend,
        test_cases=[case],
        execution=execution,
    )

    [result] = holodeck.run(guarded).results

    assert (tmp_path / "refunded").exists() == is_allowed
    [call] = result.tool_invocations
    assert call.args == {"order": "1"}
    assert result.outcome == ("passed" if is_allowed else "metric_error")
    if not is_allowed:
        assert "has side effects; they are allowed by --allow-side-effects" in call.error
        assert call.prevented
        met, guard = result.tool_checks
        assert met.passed
        assert (guard.expectation, guard.passed) == ("run refund_order", False)


def test_a_forbidden_call_fails_although_it_did_not_run(agent, fake_openai):
    fake_openai.reply(tool_calls=[("refund_order", {"order": "1"})]).reply("Done.")
    case = {"input": "refund order 1", "forbidden_tools": ["refund_order"]}
    guarded = agent(tools={"refund_order": {"side_effects": True}}, test_cases=[case])

    [result] = holodeck.run(guarded).results

    assert result.outcome == "failed"


@pytest.mark.parametrize(
    ("fields", "is_injected", "withheld"),
    [
        ({}, False, NAMES[1:]),
        ({}, True, []),
        ({"tool_filtering": None}, False, []),
        ({"tool_filtering": {**FILTERING, "enabled": False}}, False, []),
    ],
    ids=["own", "injected", "none", "off"],
)
def test_tools_are_withheld_only_by_a_filter_of_an_agent_whose_tools_are_known(
    agent, fields, is_injected, withheld
):
    observations = ObservationBuilder(agent(**fields), is_injected=is_injected)

    assert list(observations.withheld_tools(["get_weather"])) == withheld


def test_an_expected_tool_that_was_not_offered_in_a_turn_fails_and_says_so(agent, fake_openai):
    fake_openai.otherwise("I do not know.")
    turn = {"input": "weather in Rome?", "expected_tools": ["book_room", "get_weather"]}

    [result] = holodeck.run(agent(test_cases=[{"turns": [turn]}])).results

    book, weather = [check.reason for check in result.turns[0].tool_checks]
    assert "tool_filtering never offered 'book_room' to the model" in book
    assert weather == "no call of 'get_weather'; called: nothing"
