"""The public examples of Scenario 1.6, each as a test of our own that makes the same calls.

They are not part of its source distribution. `expected.json` says which test stands for which file.
"""

# ruff: noqa: A002 - `input` is what adapters call it

import asyncio
import json
from pathlib import Path

import openai
import pytest
from aiohttp import ClientSession, web
from openai.types.chat import ChatCompletionMessage

from holodeck import scenario
from holodeck.scenario.agent_adapter import AgentAdapter
from holodeck.scenario.types import AgentInput, AgentReturnTypes, ScenarioResult

PASS = {"reasoning": "seen", "status": "passed"}
TOOL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "find_lamps", "arguments": '{"room": "kitchen"}'},
}


def verdict(asked, status="passed"):
    count = asked.prompt.partition("# Criteria")[2].count("\nc")
    rows = {f"c{number}": {**PASS, "status": status} for number in range(1, count + 1)}
    return json.dumps({**rows, "decision": "verdict"})


def next_message(asked):
    return json.dumps({"message": f"lamp {len(asked.prompt)}?", "done": False})


@pytest.fixture
def models(fake_openai, monkeypatch):
    """Answers agents, simulated users and judges; nothing is configured but the default model."""
    fake_openai.when("looked up in the whole of it", '{"search": []}')
    fake_openai.when("# Criteria", verdict)
    fake_openai.when("# Your situation", next_message)
    fake_openai.otherwise("Here is a lamp.")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", fake_openai.url)
    before = scenario.ScenarioConfig.default_config
    scenario.configure(default_model="openai/gpt-4.1-mini", verbose=False)
    yield fake_openai
    scenario.ScenarioConfig.default_config = before


async def ask(messages, **options):
    client = openai.AsyncOpenAI()
    try:
        answer = await client.chat.completions.create(model="m", messages=messages, **options)
    finally:
        await client.close()
    return answer.choices[0].message


class Shop(scenario.AgentAdapter):
    """Answers with what the model says."""

    async def call(self, input: scenario.AgentInput) -> scenario.AgentReturnTypes:
        system = {"role": "system", "content": "You sell lamps."}
        return [await ask([system, *input.messages])]


class ShopWithTool(scenario.AgentAdapter):
    """Returns the messages of a tool call, too."""

    def __init__(self, find=lambda room: f"a lamp for the {room}"):
        self.find = find

    async def call(self, input: AgentInput) -> AgentReturnTypes:
        arguments = json.loads(TOOL["function"]["arguments"])
        try:
            found = self.find(**arguments)
        except TimeoutError as error:
            found = f"Error: {error}"
        result = {"role": "tool", "tool_call_id": "call_1", "content": found}
        called = {"role": "assistant", "content": None, "tool_calls": [TOOL]}
        return [called, result, {"role": "assistant", "content": f"I looked: {found}"}]


async def test_a_conversation_without_a_script(models):
    result = await scenario.run(
        name="a lamp",
        description="A person looks for a lamp and knows little of lamps.",
        agents=[Shop(), scenario.UserSimulatorAgent(), scenario.JudgeAgent(criteria=["It sells"])],
        max_turns=5,
        set_id="lamps",
    )

    assert result.success
    assert result.passed_criteria == ["It sells"]


async def test_a_script_with_checkpoints_and_a_judge_without_criteria(models):
    result = await scenario.run(
        name="a lamp",
        description="A person looks for a lamp.",
        agents=[Shop(), scenario.UserSimulatorAgent(), scenario.JudgeAgent()],
        script=[
            scenario.user("a lamp, please"),
            scenario.agent(),
            scenario.judge(criteria=["The agent asks or offers"]),
            scenario.user(),
            scenario.agent(),
            scenario.judge(criteria=["The agent offers", "It is a lamp"]),
        ],
    )

    assert result.success
    assert len(result.passed_criteria) == 3


async def test_an_agent_that_begins_and_a_part_that_proceeds(models):
    turns = []
    result = await scenario.run(
        name="a wrong guess",
        description="The agent guesses wrong, and the user says so.",
        agents=[Shop(), scenario.UserSimulatorAgent(), scenario.JudgeAgent(criteria=["It asks"])],
        max_turns=10,
        script=[
            scenario.agent("What can I do?"),
            scenario.user("I need light"),
            scenario.agent(),
            scenario.user(),
            scenario.proceed(turns=2, on_turn=lambda state: turns.append(state.current_turn)),
            scenario.judge(),
        ],
    )

    assert result.success


async def test_tools_that_are_mocked_and_called_with_what_the_model_said(models, monkeypatch):
    called = []
    monkeypatch.setattr(ShopWithTool, "__init__", lambda self: setattr(self, "find", find))

    def find(room):
        called.append(room)
        return "two lamps"

    def check(state: scenario.ScenarioState) -> None:
        assert called == ["kitchen"]
        call = state.last_tool_call("find_lamps")
        assert json.loads(call["function"]["arguments"]) == {"room": "kitchen"}
        assert state.last_message()["content"] == "I looked: two lamps"

    result = await scenario.run(
        name="mocked",
        description="A tool is replaced.",
        agents=[ShopWithTool(), scenario.UserSimulatorAgent(model="openai/gpt-4o-mini")],
        script=[scenario.user("a lamp"), scenario.agent(), check, scenario.succeed()],
    )

    assert result.success


async def test_a_tool_that_fails(models):
    def find(room):
        raise TimeoutError("Request timeout")

    def check(state: scenario.ScenarioState) -> None:
        last = state.last_message()
        assert last["role"] == "assistant"
        assert "timeout" in last.get("content", "").lower()

    result = await scenario.run(
        name="failing",
        description="The tool is down.",
        agents=[ShopWithTool(find), scenario.UserSimulatorAgent()],
        script=[scenario.user("a lamp"), scenario.agent(), check, scenario.succeed()],
    )

    assert result.success


async def test_many_turns_with_tool_calls_in_front_of_a_simulated_user(models):
    def check(state: scenario.ScenarioState) -> None:
        assert state.has_tool_call("find_lamps")

    turns = [step for _ in range(5) for step in (scenario.user(), scenario.agent())]
    result = await scenario.run(
        name="many turns",
        description="A person compares lamps.",
        agents=[
            ShopWithTool(),
            scenario.UserSimulatorAgent(model="openai/gpt-4.1-nano"),
            scenario.JudgeAgent(model="openai/gpt-4.1", criteria=["It looks lamps up"]),
        ],
        script=[
            scenario.user("lamps?"),
            scenario.agent(),
            check,
            *turns,
            scenario.judge(),
        ],
    )

    assert result.success


async def test_a_cached_function_that_calls_itself_with_messages_of_a_library(models, tmp_path):
    calls = []

    @scenario.cache()
    def shop(messages: list, said: list | None = None, left: int = 2) -> AgentReturnTypes:
        calls.append(left)
        message = ChatCompletionMessage(role="assistant", content=f"{left} left")
        return shop(messages, [*(said or []), message], left - 1) if left else [*said, message]

    class Agent(scenario.AgentAdapter):
        async def call(self, input):
            return shop(input.messages)

    async def run():
        return await scenario.run(
            name="cached",
            description="…",
            agents=[Agent(), scenario.UserSimulatorAgent()],
            script=[scenario.user("a lamp"), scenario.agent(), scenario.succeed()],
            cache_key="v1",
            cache_dir=tmp_path,
        )

    first, second = await run(), await run()

    assert calls == [2, 1, 0]
    assert [one["content"] for one in first.messages[1:]] == ["2 left", "1 left", "0 left"]
    assert second.messages == first.messages


class ToolJudge(scenario.AgentAdapter):
    """Decides by the tool calls in the messages."""

    role = scenario.AgentRole.JUDGE

    def __init__(self, wanted: list[str]) -> None:
        self.wanted = wanted
        self.criteria = [f"calls {one}" for one in wanted]

    async def call(self, input: AgentInput) -> AgentReturnTypes:
        if not input.judgment_request:
            return []
        called = {
            call["function"]["name"]
            for one in input.messages
            if one.get("role") == "assistant" and one.get("tool_calls")
            for call in one["tool_calls"]
        }
        missing = [one for one in self.wanted if one not in called]
        return ScenarioResult(
            success=not missing,
            messages=[],
            reasoning=f"missing: {missing}",
            passed_criteria=[f"calls {one}" for one in self.wanted if one in called],
            failed_criteria=[f"calls {one}" for one in missing],
        )


@pytest.mark.parametrize("wanted", [["find_lamps"], ["find_lamps", "sell"]], ids=["all", "some"])
async def test_a_judge_without_a_model(models, wanted):
    result = await scenario.run(
        name="own judge",
        description="…",
        agents=[ShopWithTool(), scenario.UserSimulatorAgent(), ToolJudge(wanted)],
        script=[scenario.user("a lamp"), scenario.agent(), scenario.judge()],
    )

    assert result.success == (len(wanted) == 1)
    assert result.passed_criteria == ["calls find_lamps"]
    assert result.failed_criteria == [f"calls {one}" for one in wanted[1:]]


async def test_a_judge_with_a_client_of_its_own(models):
    models.when("Decide", '{"met": true}')

    class ModelJudge(scenario.AgentAdapter):
        role = scenario.AgentRole.JUDGE

        def __init__(self, criteria: list[str]) -> None:
            self.criteria = criteria

        async def call(self, input: AgentInput) -> AgentReturnTypes:
            if not input.judgment_request:
                return []
            own = input.judgment_request.criteria
            criteria = self.criteria if own is None else own
            said = "\n".join(f"{one['role']}: {one.get('content')}" for one in input.messages)
            answer = await ask([{"role": "user", "content": f"Decide {criteria} by: {said}"}])
            met = json.loads(answer.content)["met"]
            return ScenarioResult(
                success=met, messages=[], reasoning="…", passed_criteria=criteria if met else []
            )

    result = await scenario.run(
        name="own judge",
        description="…",
        agents=[Shop(), scenario.UserSimulatorAgent(), ModelJudge(["greets", "offers"])],
        script=[scenario.user("hi"), scenario.agent(), scenario.judge()],
    )

    assert result.success
    assert result.passed_criteria == ["greets", "offers"]


async def test_scenarios_side_by_side(models):
    class Recipes(AgentAdapter):
        @scenario.cache()
        async def call(self, input: AgentInput) -> AgentReturnTypes:
            return [await ask(input.messages)]

    def play(run, name):
        return run(
            name=name,
            description="Somebody is hungry.",
            agents=[
                Recipes(),
                scenario.UserSimulatorAgent(),
                scenario.JudgeAgent(criteria=["No meat"]),
            ],
            script=[scenario.user("dinner?"), scenario.agent(), scenario.judge()],
        )

    results = await asyncio.gather(
        play(scenario.run, "one"), play(scenario.run, "two"), play(scenario.arun, "three")
    )

    assert all(one.success for one in results)


@pytest.fixture
async def remote():
    """An agent behind HTTP that keeps its conversations, and can stream."""
    threads: dict[str, list[str]] = {}

    async def chat(request: web.Request) -> web.Response:
        asked = await request.json()
        said = threads.setdefault(asked["thread"], [])
        said.append(asked["message"])
        return web.json_response({"response": f"message {len(said)}: {said[-1]}"})

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in ("a ", "red ", "lamp"):
            await response.write(f"data: {json.dumps({'content': part})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.add_routes([web.post("/chat", chat), web.post("/stream", stream)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_remote_agent_that_keeps_the_conversation(models, remote):
    class Remote(scenario.AgentAdapter):
        async def call(self, input: AgentInput) -> AgentReturnTypes:
            asked = {"message": input.messages[-1]["content"], "thread": input.thread_id}
            headers = dict(input.propagation_headers)
            async with (
                ClientSession() as session,
                session.post(f"{remote}/chat", json=asked, headers=headers) as response,
            ):
                return (await response.json())["response"]

    result = await scenario.arun(
        name="remote",
        description="…",
        agents=[Remote(), scenario.UserSimulatorAgent(), scenario.JudgeAgent(criteria=["ok"])],
        script=[
            scenario.user("London?"), scenario.agent(),
            scenario.user("Paris?"), scenario.agent(), scenario.judge(),
        ],
        fetch_remote_traces=True,
        trace_wait_timeout=20.0,
    )  # fmt: skip

    assert result.success
    assert result.messages[-1]["content"] == "message 2: Paris?"


async def test_a_remote_agent_that_streams(models, remote):
    class Remote(scenario.AgentAdapter):
        async def call(self, input: AgentInput) -> AgentReturnTypes:
            said = ""
            async with ClientSession() as session, session.post(f"{remote}/stream") as response:
                async for line in response.content:
                    data = line.decode().removeprefix("data: ").strip()
                    if data and data != "[DONE]":
                        said += json.loads(data)["content"]
            return said

    result = await scenario.arun(
        name="streams",
        description="…",
        agents=[Remote(), scenario.UserSimulatorAgent(), scenario.JudgeAgent(criteria=["ok"])],
        script=[scenario.user("a lamp"), scenario.agent(), scenario.judge()],
    )

    assert result.success
    assert result.messages[-1]["content"] == "a red lamp"


async def test_the_judge_gets_the_spans_of_the_agent(models, monkeypatch):
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    monkeypatch.setattr(trace, "_TRACER_PROVIDER", TracerProvider(shutdown_on_exit=False))
    monkeypatch.setattr("holodeck.scenario.spans._is_set_up", False)
    tracer = trace.get_tracer("lamps")

    class Traced(scenario.AgentAdapter):
        async def call(self, input: AgentInput) -> AgentReturnTypes:
            attributes = {"langwatch.thread.id": input.thread_id, "db.system": "postgresql"}
            with tracer.start_as_current_span("db.query", attributes=attributes) as span:
                span.set_attribute("db.rows", 3)
            return "There are three."

    scenario.setup_scenario_tracing()
    result = await scenario.arun(
        name="spans",
        description="…",
        agents=[
            Traced(),
            scenario.UserSimulatorAgent(),
            scenario.JudgeAgent(criteria=["A span db.query exists"]),
        ],
        script=[scenario.user("how many?"), scenario.agent(), scenario.judge()],
        max_turns=5,
    )

    assert result.success
    judged = next(one for one in models.requests if "# Criteria" in one.prompt)
    assert "db.query" in judged.prompt


async def test_a_client_of_ones_own_for_a_gateway(models):
    gateway = openai.OpenAI(
        base_url=models.url,
        api_key="k",
        default_query={"api-version": "2024-05-01-preview"},
        default_headers={"x-gateway-key": "g"},
    )

    result = await scenario.run(
        name="gateway",
        description="A person asks for a lamp.",
        agents=[
            ShopWithTool(),
            scenario.UserSimulatorAgent(model="gpt-4o-mini", client=gateway),
            scenario.JudgeAgent(model="gpt-4o-mini", criteria=["ok"], client=gateway),
        ],
        script=[scenario.user(), scenario.agent(), scenario.judge()],
        set_id="lamps",
    )

    assert result.success
    assert {one.headers["x-gateway-key"] for one in models.requests} == {"g"}


async def test_evaluators_and_fields_beside_the_judge(models):
    result = await scenario.run(
        name="evaluators",
        description="…",
        agents=[
            ShopWithTool(),
            scenario.UserSimulatorAgent(),
            scenario.JudgeAgent(criteria=["It offers"]),
        ],
        fields={"expected_answer": "I looked: a lamp for the kitchen"},
        evaluators=[
            scenario.evaluator(
                "langevals/llm_boolean",
                required=False,
                mappings={"output": scenario.trace.tool_call("find_lamps").input},
                settings={"prompt": "Is it about a room?"},
            ),
        ],
        script=[scenario.user("a lamp"), scenario.agent(), scenario.judge()],
    )

    assert result.success
    assert [one.evaluator_id for one in result.evaluations] == ["langevals/llm_boolean"]


async def test_a_conversation_too_long_for_the_judge(models):
    class Verbose(scenario.AgentAdapter):
        async def call(self, input: AgentInput) -> AgentReturnTypes:
            return {"role": "assistant", "content": "x" * 200_000}

    result = await scenario.run(
        name="long",
        description="…",
        agents=[Verbose(), scenario.UserSimulatorAgent(), scenario.JudgeAgent(criteria=["ok"])],
        script=[scenario.user("a lamp"), scenario.agent(), scenario.judge()],
    )

    assert result.success, "the judge gets a shortened transcript, and can search in the whole"


def test_every_example_has_its_test():
    tests = {name for name in globals() if name.startswith("test_")}

    data = json.loads(Path(__file__).with_name("expected.json").read_text(encoding="utf-8"))

    assert {one["test"] for one in data["examples"].values() if "test" in one} <= tests


def test_every_difference_of_the_originals_tests_has_a_reason():
    data = json.loads(Path(__file__).with_name("expected.json").read_text(encoding="utf-8"))
    files = [
        one for key in data for one in data[key].values() if key not in {"reasons", "examples"}
    ]
    given = {why for one in files for why in one.get("differs", {}).values()}
    given |= {one["broke"] for one in files if "broke" in one}

    assert given == set(data["reasons"])
