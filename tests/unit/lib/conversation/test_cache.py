"""Responses that are recorded under a cache key, and replayed."""

# ruff: noqa: A002 - `input` is what adapters call it

import asyncio
import json
import re
import threading
from dataclasses import dataclass
from enum import Enum

import pytest
from pydantic import BaseModel

from holodeck import scenario
from holodeck.errors import ConfigError
from holodeck.lib.conversation.response_cache import CacheKey, ResponseCache
from holodeck.lib.conversation.simulated_user import Persona
from holodeck.scenario import AgentInput
from support.participants import a_user

CALLS = []


@scenario.cache()
async def ask(model, messages, temperature=0.0, **options):
    CALLS.append("ask")
    return f"{model} at {temperature} heard {messages[-1]['content']}"


@scenario.cache()
async def ask_other(model, messages, temperature=0.0, **options):
    CALLS.append("ask_other")
    return f"another {model}"


@scenario.cache()
def ask_blocking(question):
    CALLS.append("ask_blocking")
    return {"role": "assistant", "content": question.upper()}


class Doing(scenario.AgentAdapter):
    """Does what it was made with."""

    def __init__(self, do):
        self.do = do

    async def call(self, input):
        answer = self.do(input)
        return await answer if asyncio.iscoroutine(answer) else answer


class Modelled(scenario.AgentAdapter):
    """Has a model and a prompt of its own, and a client that differs in every process."""

    def __init__(self, model, prompt="be kind", api_key="sk-abc"):
        self.model, self._prompt, self.api_key = model, prompt, api_key
        self.client = object()
        self.calls = 0

    @scenario.cache(ignore=["self.calls"])
    async def call(self, input):
        self.calls += 1
        CALLS.append(self.model)
        return f"{self.model} says {self.calls}"


@pytest.fixture(autouse=True)
def calls():
    CALLS.clear()
    return CALLS


@pytest.fixture
def play(tmp_path):
    async def played(do, line="hi", mode=None, key="v1", **more):
        agent = do if isinstance(do, scenario.AgentAdapter) else Doing(do)
        return await scenario.arun(
            "kept", "somebody asks", [agent, a_user()],
            script=[scenario.user(line), scenario.agent(), scenario.succeed()],
            cache_key=key, cache_mode=mode, cache_dir=tmp_path / "kept", verbose=False, **more,
        )  # fmt: skip

    return played


def asking(*args, by=ask, **given):
    return lambda heard: by(*(args or ("m", heard.messages)), **given)


def words(result):
    return [one["content"] for one in result.messages]


async def test_the_second_run_makes_no_call(play, calls):
    first = await play(asking())
    second = await play(asking())

    assert (words(first), calls) == (words(second), ["ask"])
    assert words(first) == ["hi", "m at 0.0 heard hi"]


async def test_a_function_that_is_not_async_is_cached_too(play, calls):
    for _ in range(2):
        result = await play(lambda _: ask_blocking("why"))

    assert (words(result)[1], calls) == ("WHY", ["ask_blocking"])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (asking(), asking(by=ask_other)),
        (asking(temperature=0.0), asking(temperature=0.5)),
        (asking(top_p=1), asking(top_p=2)),
        (asking("m", [{"content": "a"}]), asking("n", [{"content": "a"}])),
        (asking("m", [{"content": "1"}]), asking("m", [{"content": 1}])),
        (asking("m", [{"content": {"1": "a"}}]), asking("m", [{"content": {1: "a"}}])),
        (Modelled("m"), Modelled("n")),
        (Modelled("m", "be kind"), Modelled("m", "be rude")),
    ],
    ids=["function", "keyword", "rest", "argument", "type", "type of a key", "model", "prompt"],
)
async def test_calls_that_differ_are_cached_apart(play, calls, one, other):
    await play(one)
    await play(other)

    assert len(calls) == 2


async def test_a_keyword_argument_equals_the_positional_one(play, calls):
    await play(asking())
    await play(asking("m", [{"role": "user", "content": "hi"}], 0.0))
    await play(lambda heard: ask(messages=heard.messages, model="m"))

    assert calls == ["ask"]


async def test_clients_secrets_and_what_is_ignored_do_not_count(play, calls, tmp_path):
    await play(Modelled("m", api_key="sk-one"))
    result = await play(Modelled("m", api_key="sk-two"))

    assert (words(result)[1], calls) == ("m says 1", ["m"])
    assert "sk-one" not in "".join(one.read_text() for one in tmp_path.rglob("*.json"))


async def test_names_that_are_new_in_every_run_do_not_count(calls, tmp_path):
    @scenario.cache()
    async def answer(input, thread):
        calls.append(thread)
        return "done"

    async def call_a_tool(state):
        name = f"call_{len(calls)}_{state.thread_id}"
        call = {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        state.add_message({"role": "assistant", "content": "", "tool_calls": [call]})
        state.add_message({"role": "tool", "tool_call_id": name, "content": "1"})

    for _ in range(2):
        await scenario.arun(
            "kept", "…", [Doing(lambda heard: answer(heard, heard.thread_id)), a_user()],
            script=[scenario.user("hi"), call_a_tool, scenario.agent(), scenario.succeed()],
            cache_key="v1", cache_dir=tmp_path, verbose=False,
        )  # fmt: skip

    assert len(calls) == 1


async def test_another_cache_key_asks_anew(play, calls):
    await play(asking(), key="v1")
    await play(asking(), key="v2")

    assert calls == ["ask", "ask"]


async def test_without_a_cache_key_nothing_is_cached(play, calls, tmp_path):
    await play(asking(), key=None)
    await play(asking(), key=None)

    assert calls == ["ask", "ask"]
    assert not (tmp_path / "kept").exists()


async def test_outside_of_a_scenario_the_function_is_simply_called(calls):
    await ask("m", [{"content": "hi"}])

    assert ask_blocking("why")["content"] == "WHY"
    assert calls == ["ask", "ask_blocking"]


async def test_recording_asks_again_and_keeps_the_new_answer(play, calls):
    count = iter("abc")

    @scenario.cache()
    async def next_word():
        return next(count)

    responses = [
        await play(lambda _: next_word(), mode=mode) for mode in ("auto", "record", "auto")
    ]

    assert [words(one)[1] for one in responses] == ["a", "b", "b"]


async def test_off_neither_reads_nor_writes(play, calls, tmp_path):
    await play(asking(), mode="off")
    await play(asking(), mode="off")

    assert calls == ["ask", "ask"]
    assert not (tmp_path / "kept").exists()


async def test_a_replay_asks_nobody(play, calls):
    await play(asking())
    result = await play(asking(), mode="replay")

    assert (result.status, calls) == ("passed", ["ask"])


async def test_a_miss_shows_the_nearest_entry_and_the_first_difference(play, calls):
    await play(asking("m", [{"role": "user", "content": "hi"}], 0.7, top_p=1))
    await play(asking("m", [{"role": "user", "content": "good morning, my friend"}]))
    with pytest.raises(
        ConfigError, match="no response to this call is recorded; the nearest"
    ) as missed:
        await play(asking("m", [{"role": "user", "content": "good evening"}]), mode="replay")

    assert calls == ["ask", "ask"]
    assert 'arguments.messages.0.content: recorded "good morning, my friend"' in str(missed.value)
    assert 'now "good evening"; run once with cache_mode=' in str(missed.value)


async def test_a_miss_with_nothing_recorded_says_so(play):
    with pytest.raises(ConfigError, match="nothing is recorded for it in"):
        await play(asking(), mode="replay")


async def test_a_replay_without_a_cache_key_is_an_error(play, calls):
    with pytest.raises(ConfigError, match="needs a cache_key"):
        await play(asking(), key=None, mode="replay")

    assert calls == []


async def test_the_variable_says_the_mode(play, calls, monkeypatch):
    await play(asking())
    monkeypatch.setenv("HOLODECK_CACHE_MODE", "record")
    await play(asking())
    monkeypatch.setenv("HOLODECK_CACHE_MODE", "sometimes")

    with pytest.raises(
        ConfigError, match="found 'sometimes'; expected one of auto, record, replay, off"
    ):
        await play(asking())

    assert calls == ["ask", "ask"]


class Colour(Enum):
    RED = 1


class Answer(BaseModel):
    text: str


@dataclass
class Wish:
    text: str


@pytest.mark.parametrize(
    "value",
    [Colour.RED, Answer(text="a"), Wish("a"), {"a", "b"}, b"ab", {1: 2}, (1, [None]), Colour, len],
    ids=lambda value: type(value).__name__,
)
async def test_values_of_many_kinds_are_recognised(play, calls, value):
    @scenario.cache()
    async def echo(value):
        calls.append(value)
        return "ok"

    for _ in range(2):
        assert (await play(lambda _: echo(value))).success

    assert len(calls) == 1


async def test_an_argument_that_cannot_be_recognised_is_named(play):
    @scenario.cache()
    async def echo(client):
        return "ok"

    message = re.escape("leave it out: @scenario.cache(ignore=['client'])")
    with pytest.raises(ConfigError, match=message):
        await play(lambda _: echo(object()))


async def test_a_response_that_cannot_be_recorded_is_an_error(play):
    @scenario.cache()
    async def answer():
        return object()

    with pytest.raises(
        ConfigError, match=r"returns an object, which @scenario\.cache cannot record"
    ):
        await play(lambda _: answer())


async def test_answers_come_back_as_what_they_were(play, calls):
    given = [Answer(text="a"), {"role": "assistant", "content": "b"}, 3, None]
    seen = []

    @scenario.cache()
    async def answer():
        calls.append("answer")
        return given

    async def note(input):
        seen.append(await answer())
        return "ok"

    await play(note)
    await play(note)

    assert seen == [given, given]
    assert calls == ["answer"]


async def test_a_call_that_raises_is_not_cached(play, calls):
    @scenario.cache()
    async def fail():
        calls.append("fail")
        raise OSError("gone")

    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            await play(lambda _: fail())

    assert len(calls) == 2


async def test_a_file_that_cannot_be_read_is_named_and_its_call_made_again(
    play, calls, tmp_path, caplog
):
    await play(asking())
    [path] = tmp_path.rglob("*.json")
    path.write_text(path.read_text()[:40])

    with pytest.raises(ConfigError, match=re.escape(f"{path}: cannot be replayed")):
        await play(asking(), mode="replay")
    await play(asking())
    await play(asking())

    assert calls == ["ask", "ask"], "once before, and once for the file"
    [warning] = [one.getMessage() for one in caplog.records]
    assert warning.startswith(f"{path}: cannot be replayed")
    assert warning.endswith("the call is made again")


async def test_files_are_whole_json_and_nothing_else_is_left(play, calls, tmp_path):
    await asyncio.gather(*(play(asking()) for _ in range(10)))

    assert calls == ["ask"], "the same calls at the same time share one"
    [path] = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert json.loads(path.read_text())["key"]["arguments"]["model"] == "m"


def test_an_argument_to_ignore_must_exist():
    with pytest.raises(ConfigError, match=r"has no argument 'clinet'; it has client"):

        @scenario.cache(ignore=["clinet"])
        def call(client): ...


def test_the_decorator_needs_its_parentheses():
    with pytest.raises(ConfigError, match=r"write @scenario\.cache\(\)"):
        scenario.cache(ask)


@pytest.fixture
def run_models(fake_openai, tmp_path):
    """Plays a scenario whose user and judge are on a server, with scripted replies."""
    row = {"reasoning": "it did", "status": "passed"}
    fake_openai.when("# Criteria", json.dumps({"c1": row, "decision": "verdict"}))
    fake_openai.otherwise(json.dumps({"message": "hello?", "done": False}))
    at = {"api_base": fake_openai.url, "api_key": "k"}

    async def run(criteria=("it greets",), model="m", prompt=None, mode="auto"):
        return await scenario.run(
            "greeting", "somebody says hello",
            [
                Doing(lambda _: "hi"),
                scenario.UserSimulatorAgent(model=f"openai/{model}", **at),
                scenario.JudgeAgent(
                    criteria=criteria, model=f"openai/{model}", system_prompt=prompt, **at
                ),
            ],
            cache_key="k", cache_mode=mode, cache_dir=tmp_path, verbose=False,
        )  # fmt: skip

    return run


async def test_user_and_judge_are_called_once_per_recording(run_models, fake_openai):
    first = await run_models()
    asked = len(fake_openai.requests)
    second = await run_models(mode="replay")

    assert (asked, len(fake_openai.requests)) == (2, 2)
    assert words(first) == words(second)
    assert first.criteria == second.criteria
    assert second.token_usage["Judge"].total_tokens == 0


@pytest.mark.parametrize(
    "change", [{"criteria": ("it greeted",)}, {"model": "n"}, {"prompt": "be strict"}], ids=str
)
async def test_other_criteria_models_and_prompts_ask_anew(run_models, fake_openai, change):
    await run_models()
    asked = len(fake_openai.requests)
    await run_models(**change)

    assert len(fake_openai.requests) > asked


async def test_a_cached_verdict_on_other_criteria_is_rejected(run_models, tmp_path):
    await run_models()
    [path] = (tmp_path / "k").glob("*JudgeAgent*")
    kept = json.loads(path.read_text())
    kept["value"]["value"] |= {"criteria": [], "passed_criteria": []}
    path.write_text(json.dumps(kept))

    with pytest.raises(ConfigError, match=r"the cached verdict is about \[\]"):
        await run_models()


async def test_a_replay_needs_no_key(monkeypatch, fake_openai, tmp_path):
    fake_openai.when("# Criteria", json.dumps({"c1": {"reasoning": "r", "status": "passed"}}))
    fake_openai.otherwise(json.dumps({"message": "hello?", "done": False}))
    monkeypatch.setenv("OPENAI_BASE_URL", fake_openai.url)
    settings = {"cache_key": "k", "cache_dir": tmp_path, "verbose": False}
    script = [scenario.user(), scenario.agent(), scenario.judge()]

    async def run(mode):
        participants = [
            Doing(lambda _: "hi"),
            scenario.UserSimulatorAgent(model="openai/m"),
            scenario.JudgeAgent(criteria=["it greets"], model="openai/m"),
        ]
        return await scenario.run("c", "", participants, script=script, cache_mode=mode, **settings)

    monkeypatch.setenv("OPENAI_API_KEY", "k")
    recorded = await run("record")
    monkeypatch.delenv("OPENAI_API_KEY")
    replayed = await run("replay")

    assert recorded.success
    assert (replayed.success, words(replayed)) == (True, words(recorded))
    assert len(fake_openai.requests) == 2


def test_the_names_of_classes_in_existing_recordings_do_not_change():
    key = CacheKey({})
    given = AgentInput(thread_id="t", messages=[], new_messages=[], scenario_state=None)

    assert key.of(scenario.AgentRole.USER, "") == "holodeck.lib.conversation.roles.AgentRole.USER"
    assert key.of(given, "")["class"] == "holodeck.lib.conversation.types.AgentInput"
    assert key.of(Persona(), "")["class"] == "holodeck.lib.conversation.simulated_user.Persona"


async def test_a_call_whose_like_never_returns_elsewhere_is_made_here(tmp_path, monkeypatch):
    monkeypatch.setattr("holodeck.lib.conversation.response_cache.SHARE_S", 0.1)
    cache = ResponseCache(tmp_path, "greetings", "auto")

    async def answer():
        return "hello"

    def elsewhere():  # in a thread, a claim is nobody's who calls here
        with cache.try_claim(cache.key("greet", {})):
            claimed.set()
            done.wait()

    claimed, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=elsewhere)
    thread.start()
    claimed.wait()
    try:
        assert await cache.get("greet", {}, answer) == "hello"
        assert cache.get_blocking("greet", {}, lambda: "again") == "hello"
    finally:
        done.set()
        thread.join()
