"""The examples of the documentation of `import scenario`, in our words, with scripted models."""

# ruff: noqa: A002 - `input` is what adapters call it

import json

import pytest

from holodeck import scenario
from holodeck.scenario import (
    AgentAdapter,
    AgentInput,
    AgentReturnTypes,
    ScenarioExecutor,
    ScenarioResult,
    ScenarioState,
)
from holodeck.scenario import scenario_executor as executors
from holodeck.scenario import types as scenario_types
from support.participants import texts_of

KIND = "Agent provides helpful response"


class Verdicts:
    """What the judge and the user say, on one server."""

    def __init__(self, server):
        self._server = server
        server.when(lambda asked: "# Criteria" not in asked.prompt, self._json(message="and you?"))

    def judge(self, status):
        row = {"c1": {"reasoning": "as seen", "status": status}, "decision": "verdict"}
        self._server.otherwise(json.dumps(row))

    @property
    def heard_by_the_user(self):
        return [one.prompt for one in self._server.requests if "# Criteria" not in one.prompt]

    def _json(self, **said):
        return json.dumps({**said, "done": False})


@pytest.fixture
def models(fake_openai):
    before = scenario.ScenarioConfig.default_config
    default = scenario.ModelConfig(model="openai/m", api_base=fake_openai.url, api_key="k")
    scenario.configure(default_model=default)
    verdicts = Verdicts(fake_openai)
    verdicts.judge("passed")
    yield verdicts
    scenario.ScenarioConfig.default_config = before


class MyAgent(AgentAdapter):
    """Says what it is told to say."""

    def __init__(self, answer: AgentReturnTypes = "Hello, how can I help you?") -> None:
        self.answer = answer
        self.inputs: list[AgentInput] = []

    async def call(self, input: AgentInput) -> AgentReturnTypes:
        self.inputs.append(input)
        return self.answer


def everybody(agent):
    return [agent, scenario.UserSimulatorAgent(), scenario.JudgeAgent(criteria=[KIND])]


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        ("passed", ["Test PASSED", "Reasoning: c1 passed", "2 messages"]),
        ("failed", ["Test FAILED", "Reasoning: c1 failed", "2 messages", f"  - {KIND}"]),
    ],
)
async def test_a_request_for_help_with_its_result_taken_apart(models, status, lines):
    models.judge(status)

    result = await scenario.run(
        name="help request",
        description="User asks for help with a technical problem",
        agents=everybody(MyAgent()),
        set_id="customer-support-tests",
    )

    assert result.reasoning is not None
    told = [
        f"Test {'PASSED' if result.success else 'FAILED'}",
        f"Reasoning: c1 {status}" if "as seen" in result.reasoning else result.reasoning,
        f"{len(result.messages)} messages",
        *[f"  - {one}" for one in result.failed_criteria],
    ]
    assert told == lines


async def test_an_interaction_with_an_evaluation_of_ones_own(models):
    seen = []

    def custom_eval(state: ScenarioState) -> None:
        seen.append(state.last_message()["content"])

    result = await scenario.run(
        name="custom interaction",
        description="Test specific conversation flow",
        agents=everybody(MyAgent()),
        script=[scenario.user("Hello"), scenario.agent(), custom_eval, scenario.succeed()],
        set_id="integration-tests",
    )

    assert result.success
    assert seen == ["Hello, how can I help you?"]


async def test_a_system_message_that_a_step_adds_is_seen_by_the_user(models):
    def inject_system_message(state: ScenarioState) -> None:
        state.add_message({"role": "system", "content": "The user is now in a hurry"})

    result = await scenario.run(
        name="system message test",
        description="Somebody talks",
        agents=everybody(MyAgent()),
        script=[
            scenario.user("Hello"),
            scenario.agent(),
            inject_system_message,
            scenario.user(),
            scenario.succeed(),
        ],
    )

    assert texts_of(result.messages)[-2:] == ["The user is now in a hurry", "and you?"]
    assert "in a hurry" in models.heard_by_the_user[0]


async def test_several_messages_of_one_agent_added_by_hand(models):
    first, second = MyAgent(), MyAgent()
    executor = ScenarioExecutor("by hand", "Somebody talks", [first, second])

    executor.add_messages(
        [
            {"role": "assistant", "content": "I am looking..."},
            {"role": "assistant", "content": "Found: ..."},
        ],
        from_agent_idx=0,
    )
    executor.add_message({"role": "user", "content": "well?"})
    await executor.step()
    await executor.step()

    assert texts_of(first.inputs[0].new_messages) == ["well?"]
    assert texts_of(second.inputs[0].new_messages)[:3] == ["I am looking...", "Found: ...", "well?"]


class MyLlm:
    """Stands in for a model of one's own."""

    async def complete(self, messages, prompt):
        return f"{len(messages)}: {prompt}"


my_llm = MyLlm()


class Completes(AgentAdapter):
    async def call(self, input: AgentInput) -> str:
        return await my_llm.complete(
            messages=input.messages, prompt=input.last_new_user_message_str()
        )


class ReadsTheMessage(AgentAdapter):
    async def call(self, input: AgentInput) -> str:
        user_message = input.last_new_user_message()
        return f"{user_message['role']}: {user_message['content']}"


class Repeats(AgentAdapter):
    async def call(self, input: AgentInput) -> str:
        user_text = input.last_new_user_message_str()
        return f"You said: {user_text}"


@pytest.mark.parametrize(
    ("agent", "answer"),
    [(Completes, "1: hi"), (ReadsTheMessage, "user: hi"), (Repeats, "You said: hi")],
)
async def test_ways_to_read_what_the_user_said(models, agent, answer):
    script = [scenario.user("hi"), scenario.agent(), scenario.succeed()]

    result = await scenario.run("reads", "Somebody talks", everybody(agent()), script=script)

    assert texts_of(result.messages) == ["hi", answer]


STEPS = [
    {"role": "assistant", "content": "I am looking..."},
    {"role": "assistant", "content": "Found: ..."},
]


@pytest.mark.parametrize(
    ("answer", "texts"),
    [
        ("Hello!", ["Hello!"]),
        ({"role": "assistant", "content": "Hello!"}, ["Hello!"]),
        (STEPS, ["I am looking...", "Found: ..."]),
    ],
    ids=["text", "message", "several"],
)
async def test_what_an_agent_may_answer(models, answer, texts):
    script = [scenario.user("hi"), scenario.agent(), scenario.succeed()]

    result = await scenario.run("a", "Somebody talks", everybody(MyAgent(answer)), script=script)

    assert texts_of(result.messages) == ["hi", *texts]


@pytest.mark.parametrize("is_good", [True, False])
async def test_steps_that_check_tool_calls_and_ask_an_evaluator(models, is_good):
    async def some_external_evaluator(messages):
        return is_good and bool(messages)

    def check_tool_call(state: ScenarioState) -> None:
        assert state.has_tool_call("get_weather")

    async def custom_evaluation(state: ScenarioState) -> ScenarioResult | None:
        if not await some_external_evaluator(state.messages):
            return ScenarioResult(success=False, messages=state.messages, reasoning="not good")
        return None

    function = {"name": "get_weather", "arguments": "{}"}
    called = {"id": "1", "type": "function", "function": function}
    agent = MyAgent({"role": "assistant", "content": None, "tool_calls": [called]})

    result = await scenario.run(
        name="test",
        description="Test scenario",
        agents=everybody(agent),
        script=[
            scenario.user("What's the weather?"),
            scenario.agent(),
            check_tool_call,
            custom_evaluation,
            scenario.succeed(),
        ],
    )

    assert result.success is is_good
    assert (result.reasoning == "not good") is not is_good


def test_the_documented_attributes_of_an_executor_are_there():
    agents, step = [MyAgent()], scenario.succeed()
    heard = []
    made = executors.ScenarioExecutor(
        "n", "d", agents, [step], max_turns=3, event_bus=heard.append, set_id="s"
    )

    assert (made.name, made.description, made.agents, made.script) == ("n", "d", agents, [step])
    assert (made.config.max_turns, made.scenario_set_id) == (3, "s")
    assert made.event_bus is not None
    assert made.batch_run_id
    assert made.events is not None


def test_the_documented_fields_of_the_types_are_there():
    fields = scenario_types.ScenarioResult.model_fields

    assert {
        "success", "messages", "reasoning", "passed_criteria", "failed_criteria",
        "total_time", "agent_time",
    } <= set(fields)  # fmt: skip
    assert {
        "thread_id", "messages", "new_messages", "judgment_request", "scenario_state",
    } <= set(scenario_types.AgentInput.model_fields)  # fmt: skip
    assert [one.value for one in scenario_types.AgentRole] == ["User", "Agent", "Judge"]
