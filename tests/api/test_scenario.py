"""`from holodeck import scenario`: code written for `import scenario` runs as it is."""

# ruff: noqa: A002 - `input` is what adapters call it

import asyncio
import inspect
import json
import subprocess
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

import holodeck
from fakes import Reply, clean_environment
from holodeck import scenario
from holodeck.errors import BackendTimeoutError, ConfigError
from support.participants import a_user, an_agent, texts_of

PATHS = {
    "holodeck.scenario": [
        "AgentAdapter", "AgentInput", "AgentReturnTypes", "AgentRole", "JudgeAgent",
        "ScenarioConfig",
        "ScenarioExecutor", "ScenarioResult", "ScenarioState", "ScriptStep", "UserSimulatorAgent",
        "agent", "arun", "configure", "fail", "judge", "message", "proceed", "run", "succeed",
        "user",
    ],
    "holodeck.scenario.scenario_executor": ["ScenarioExecutor", "ScenarioState", "run"],
    "holodeck.scenario.types": [
        "AgentInput", "AgentReturnTypes", "AgentRole", "ScenarioResult", "ScriptStep",
    ],
    "holodeck.scenario.agent_adapter": ["AgentAdapter"],
    "holodeck.scenario.config": ["ModelConfig", "ScenarioConfig"],
    "holodeck.scenario.script": ["agent", "proceed", "user"],
}  # fmt: skip


@pytest.mark.parametrize(("module", "names"), PATHS.items(), ids=PATHS)
def test_every_documented_name_is_there(module, names):
    for name in names:
        assert getattr(import_module(module), name) is not None


def test_an_unknown_name_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'jury'"):
        _ = scenario.jury


def test_every_public_name_is_listed():
    assert all(getattr(scenario, name) is not None for name in scenario.__all__)


PARAMETERS = {
    scenario.run: "name description agents max_turns verbose cache_key debug script set_id",
    scenario.arun: "name description agents max_turns verbose cache_key debug script set_id",
    scenario.ScenarioExecutor: "name description agents script max_turns verbose cache_key debug"
    " event_bus set_id",
    scenario.ScenarioExecutor.proceed: "self turns on_turn on_step",
    scenario.ScenarioExecutor.add_message: "self message from_agent_idx",
    scenario.ScenarioExecutor.add_messages: "self messages from_agent_idx",
}


@pytest.mark.parametrize(
    ("callable", "names"),
    PARAMETERS.items(),
    ids=[one.__qualname__ for one in PARAMETERS],
)
def test_parameters_stand_in_the_documented_order(callable, names):
    wanted = names.split()

    assert list(inspect.signature(callable).parameters)[: len(wanted)] == wanted


IMPORTED = """
import sys
from holodeck.scenario import run, JudgeAgent, UserSimulatorAgent
heavy = {"openai", "litellm", "semantic_kernel", "anthropic", "httpx", "httpx2", "jsonschema",
         "yaml", "holodeck.models.observability"}
print(sorted(heavy & set(sys.modules)))
"""


def test_importing_it_imports_no_provider(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED],
        capture_output=True, text=True, check=True, cwd=tmp_path, env=clean_environment(tmp_path),
    )  # fmt: skip

    assert done.stdout == "[]\n"


class WeatherAgent(scenario.AgentAdapter):
    async def call(self, input: scenario.AgentInput) -> scenario.AgentReturnTypes:
        user_msg = input.last_new_user_message_str()
        call = {"name": "get_weather", "arguments": json.dumps({"asked": user_msg})}
        return [
            {
                "role": "assistant",
                "content": "Let me look...",
                "tool_calls": [{"id": "1", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "sunny"},
            {"role": "assistant", "content": "It is sunny"},
        ]


@pytest.fixture
def models(fake_openai):
    """A user and a judge on a server that plays both."""
    verdict = {"c1": {"reasoning": "it did", "status": "passed"}}
    fake_openai.when(lambda asked: "Criteria" in asked.prompt and "final verdict" in asked.prompt,
                     json.dumps(verdict))  # fmt: skip
    fake_openai.when("# Criteria", json.dumps({**verdict, "decision": "verdict"}))
    fake_openai.otherwise(json.dumps({"message": "and tomorrow?", "done": False}))
    before = scenario.ScenarioConfig.default_config
    default = scenario.ModelConfig(model="openai/m", api_base=fake_openai.url, api_key="k")
    scenario.configure(default_model=default)
    yield fake_openai
    scenario.ScenarioConfig.default_config = before


async def test_a_scenario_plays_on_its_own(models):
    result = await scenario.run(
        name="weather query",
        description="User asks about weather",
        agents=[
            WeatherAgent(),
            scenario.UserSimulatorAgent(),
            scenario.JudgeAgent(criteria=["Agent provides helpful weather information"]),
        ],
        set_id="customer-support-tests",
    )

    assert result.success
    assert result.passed_criteria == ["Agent provides helpful weather information"]
    assert f"Test {'PASSED' if result.success else 'FAILED'}" == "Test PASSED"
    assert "PASSED" in repr(result)
    assert len(result.messages) == 4
    assert set(result.token_usage) == {"User", "Agent", "Judge"}


async def test_a_scripted_scenario_with_checks_of_its_own(models):
    seen = []

    def check_tool_call(state: scenario.ScenarioState) -> None:
        assert state.has_tool_call("get_weather")

    async def custom_evaluation(state):
        seen.append(state.last_message()["content"])
        if "rain" in seen[0]:
            return scenario.ScenarioResult(success=False, messages=state.messages, reasoning="wet")
        return None

    def inject_system_message(state) -> None:
        state.add_message({"role": "system", "content": "The user is now in a hurry"})

    result = await scenario.run(
        name="test",
        description="Test scenario",
        agents=[
            WeatherAgent(),
            scenario.UserSimulatorAgent(),
            scenario.JudgeAgent(criteria=["Agent provides helpful response"]),
        ],
        script=[
            scenario.user("What's the weather?"),
            scenario.agent(),
            check_tool_call,
            custom_evaluation,
            inject_system_message,
            scenario.user(),
            scenario.agent(),
            scenario.proceed(turns=1),
            scenario.judge(),
            scenario.succeed(),
        ],
        set_id="integration-tests",
    )

    assert result.success
    assert seen == ["It is sunny"]
    assert "and tomorrow?" in texts_of(result.messages)


async def test_runs_on_one_loop_may_share_a_judge(models):
    judge = scenario.JudgeAgent(criteria=["is kind"])
    runs = [scenario.arun("case", "", [a_user(), an_agent(), judge]) for _ in range(8)]

    results = await asyncio.gather(*runs)

    assert all(one.success for one in results)


class Broken(scenario.AgentAdapter):
    async def call(self, input):
        raise LookupError("lost")


@pytest.mark.parametrize("play", [scenario.run, scenario.arun])
async def test_an_agent_that_raises_fails_a_test_that_looks_at_no_result(play):
    def check(state):
        assert state.last_message()["content"] == "q"

    script = [scenario.user("q"), check, scenario.agent(), check, scenario.succeed()]

    with pytest.raises(LookupError, match="lost") as raised:
        await play("case", "", [a_user(), Broken()], script=script)

    assert "in case 'case', step 3 (agent): Broken raised it" in raised.value.__notes__


@pytest.mark.parametrize("play", [scenario.run, scenario.arun])
async def test_listeners_hear_how_a_run_ended_that_an_agent_broke(play):
    events = []

    with pytest.raises(LookupError):
        await play("case", "", [a_user("q"), Broken()], events=events.append)

    result = events[-1].result
    assert (result.success, result.status, result.reason_code) == (False, "error", "agent_error")
    assert result.error == "LookupError: lost"
    line = inspect.getsourcelines(Broken.call)[1] + 1
    place = f'{Path(__file__).relative_to(Path.cwd())}:{line}: raise LookupError("lost")'
    message = f"Broken raised LookupError: lost ({place})"
    assert result.reasoning == f"case 'case', step 1 (proceed): {message}"
    assert texts_of(result.messages) == ["q"]
    assert result.total_time is not None


@pytest.mark.parametrize("play", [scenario.run, scenario.arun])
async def test_scenarios_that_are_gathered_go_on_beside_one_whose_agent_raises(play):
    fine = play("fine", "", [an_agent()], script=ONE_CALL)
    broken = play("broken", "", [Broken()], script=ONE_CALL)

    raised, result = await asyncio.gather(broken, fine, return_exceptions=True)

    assert isinstance(raised, LookupError)
    assert result.success


@pytest.mark.parametrize("play", [scenario.run, scenario.arun])
@pytest.mark.parametrize("where", ["step", "callback"])
@pytest.mark.parametrize("error", [AssertionError("no search"), LookupError("no search")], ids=repr)
async def test_what_a_step_or_a_callback_raises_fails_a_test_that_looks_at_no_result(
    play, where, error
):
    def check(state):
        raise error

    script = [scenario.user(), check] if where == "step" else [scenario.proceed(on_step=check)]

    with pytest.raises(type(error), match="no search") as raised:
        await play("case", "", [a_user("q"), an_agent()], script=script)

    name = "step 2 (check)" if where == "step" else "step 1 (proceed)"
    assert f"in case 'case', {name}" in raised.value.__notes__


async def test_an_error_of_an_agent_that_a_step_caught_is_not_attributed_to_the_step():
    async def tries(state):
        with suppress(LookupError):
            await scenario.agent()(state)
        assert state.messages == [], "no answer"

    with pytest.raises(AssertionError, match="no answer"):
        await scenario.run("case", "", [a_user("q"), Broken()], script=[scenario.user(), tries])


@pytest.mark.parametrize("play", [scenario.run, scenario.arun])
async def test_what_is_written_wrong_is_raised(play):
    with pytest.raises(ConfigError, match=r"case 'case', step 1 \(user\): user\(''\)"):
        await play("case", "", [a_user()], script=[scenario.user("")])


async def test_agents_that_block_hold_up_no_other_run():
    together = threading.Barrier(10)

    class Blocking(scenario.AgentAdapter):
        async def call(self, input):
            together.wait(60)
            return "a"

    runs = [scenario.run("case", "", [Blocking()], script=ONE_CALL) for _ in range(10)]

    results = await asyncio.gather(*runs)

    assert all(one.success for one in results)


ONE_CALL = [scenario.agent(), scenario.succeed()]


class Hanging(scenario.AgentAdapter):
    def __init__(self, hang):
        self.hang = hang

    async def call(self, input):
        await self.hang.later()


class Stuck(Hanging):
    async def call(self, input):
        self.hang()


@pytest.mark.parametrize("agent", [Hanging, Stuck])
async def test_cancelling_does_not_wait_for_the_agent(agent, hang):
    run = asyncio.create_task(scenario.run("case", "", [agent(hang)], script=ONE_CALL))
    await asyncio.to_thread(hang.begun.wait)

    run.cancel()

    with pytest.raises(asyncio.CancelledError):
        await run


@pytest.mark.parametrize("limit", [{"timeout": 0.5}, {"call_timeout": 0.5}], ids=str)
@pytest.mark.parametrize("agent", [Hanging, Stuck])
async def test_time_limits_fire_whatever_the_agent_does(agent, limit, hang):
    with pytest.raises(BackendTimeoutError, match=r"took more than 0\.5 s") as raised:
        await scenario.run("case", "", [a_user("q"), agent(hang)], **limit)

    text = "\n".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert "case 'case', step 1 (proceed)" in text


async def test_the_callers_loop_is_used_by_arun_only():
    loops = []

    class Noting(scenario.AgentAdapter):
        async def call(self, input):
            loops.append(asyncio.get_running_loop())
            return "a"

    await scenario.arun("case", "", [Noting()], script=ONE_CALL)
    await scenario.run("case", "", [Noting()], script=ONE_CALL)

    assert loops[0] is asyncio.get_running_loop()
    assert loops[1] is not loops[0]


async def test_an_agent_that_exits_ends_its_run_and_nothing_else():
    with pytest.raises(RuntimeError, match=r"case 'case', step 1 \(agent\): .*SystemExit: 3"):
        await scenario.run("case", "", [an_agent(SystemExit(3))], script=ONE_CALL)


@pytest.fixture
def unconfigured():
    before = scenario.ScenarioConfig.default_config
    scenario.ScenarioConfig.default_config = None
    yield
    scenario.ScenarioConfig.default_config = before


def test_what_is_configured_holds_until_a_run_says_otherwise(unconfigured):
    scenario.configure(max_turns=3, cache_key="k")
    scenario.configure(verbose=False)

    config = scenario.ScenarioExecutor("case", "", [an_agent()], max_turns=4).config

    assert (config.max_turns, config.cache_key, config.verbose) == (4, "k", False)
    assert scenario.ScenarioExecutor("case", "", [an_agent()]).config.max_turns == 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_turn": 3}, "scenario.configure: max_turn: unknown setting; the settings are"),
        ({"max_turns": 2.5}, "scenario.configure: max_turns: input should be a valid integer"),
        ({"cache_mode": "on"}, "scenario.configure: cache_mode: input should be 'auto'"),
    ],
    ids=str,
)
def test_an_invalid_setting_is_rejected(settings, message, unconfigured):
    with pytest.raises(ConfigError, match=message):
        scenario.configure(**settings)

    assert scenario.ScenarioConfig.default_config is None


def test_a_model_has_no_settings_but_its_own():
    with pytest.raises(ValueError, match="top_q"):
        scenario.ModelConfig(model="openai/m", top_q=0.1)


def test_what_was_configured_can_be_unset(unconfigured):
    scenario.configure(cache_key="k")
    scenario.configure(cache_key=None)

    assert scenario.ScenarioExecutor("case", "", [an_agent()]).config.cache_key is None


@pytest.mark.parametrize("agent", [scenario.JudgeAgent, scenario.UserSimulatorAgent])
def test_a_missing_model_is_an_error_with_an_example(agent, unconfigured):
    with pytest.raises(ConfigError, match=rf"{agent.__name__}\(model='openai/gpt-4.1'\)"):
        agent()


@pytest.fixture
def keyless(unconfigured, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    scenario.configure("openai/gpt-4.1-mini")
    return [an_agent(), scenario.UserSimulatorAgent(), scenario.JudgeAgent(criteria=["Greets"])]


async def test_a_script_that_asks_no_model_needs_no_key(keyless):
    steps = [scenario.user("hi"), scenario.agent(), scenario.succeed()]

    assert (await scenario.run("case", "", keyless, script=steps)).success


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([scenario.user()], r"step 1 \(user\): UserSimulatorAgent"),
        ([scenario.agent(), scenario.judge()], r"step 2 \(judge\): JudgeAgent"),
    ],
    ids=["user", "judge"],
)
async def test_a_missing_key_is_an_error_on_the_first_call(keyless, steps, message):
    model = "model 'openai/gpt-4.1-mini': missing API key for openai: set OPENAI_API_KEY"

    with pytest.raises(ConfigError, match=f"case 'case', {message}: {model}"):
        await scenario.run("case", "", keyless, script=steps)


def test_an_unknown_provider_is_an_error_with_the_known_ones(unconfigured):
    with pytest.raises(ConfigError, match="unknown provider 'nowhere'; the providers are openai"):
        scenario.UserSimulatorAgent(model="nowhere/pro")


async def test_any_name_works_at_an_endpoint_of_ones_own(fake_openai):
    fake_openai.reply(Reply('{"message": "hi", "done": false}'))
    user = scenario.UserSimulatorAgent(model="qwen/3", api_base=fake_openai.url, api_key="k")

    await scenario.run("case", "", [user], script=[scenario.user(), scenario.succeed()])

    assert fake_openai.requests[0].model == "qwen/3"


def test_the_decorator_works_before_and_after_its_module_is_imported():
    code = (
        "from holodeck import scenario\n"
        "before = scenario.cache(ignore=['x'])\n"
        "from holodeck.scenario.cache import context_scenario, scenario_cache\n"
        "after = scenario.cache(ignore=['x'])\n"
        "assert after(lambda x: x + 1)(1) == before(lambda x: x + 1)(1) == 2\n"
        "assert scenario_cache is scenario.cache\n"
        "assert context_scenario.get() is None\n"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_version_and_the_configured_defaults_are_there():
    before = scenario.ScenarioConfig.default_config
    try:
        scenario.configure(max_turns=7)
        assert scenario.default_config.max_turns == 7
    finally:
        scenario.ScenarioConfig.default_config = before

    assert scenario.__version__ == holodeck.__version__
