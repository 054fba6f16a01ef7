"""A person at the terminal writes the messages of the user, or ends the case."""

import asyncio
import io
from contextlib import redirect_stderr, redirect_stdout

import pytest

from holodeck import scenario
from holodeck.errors import ConfigError
from holodeck.lib.conversation.debugger import Debugger
from holodeck.lib.conversation.participants import SilentUser
from holodeck.scenario import events
from support.clock import simulated
from support.participants import a_judge, a_user, an_agent, texts_of

PASSED = scenario.ScenarioResult(success=True, messages=[], passed_criteria=["is kind"])


def typing(*lines):
    """A person who types these lines."""
    left = list(lines)

    async def ask(prompt):
        return left.pop(0)

    return ask


def debugged(*agents, lines=(), name="a chat", ask=None, **settings):
    executor = scenario.ScenarioExecutor(name, "…", agents, verbose=False, **settings)
    executor.debugger = Debugger(ask or typing(*lines))
    return executor


async def play(*agents, lines, **settings):
    """The result, and what the person saw."""
    stream = io.StringIO()
    with redirect_stderr(stream):
        result = await debugged(*agents, lines=lines, **settings).run()
    return result, stream.getvalue()


async def test_enter_lets_the_simulated_user_speak():
    result, output = await play(a_user("hi"), an_agent(), lines=["", " ", "/pass"])

    assert texts_of(result.messages) == ["hi", "agent says"] * 2
    assert "Enter lets the simulated user speak" in output


async def test_a_text_is_what_the_user_says_and_everybody_hears_it():
    user, agent, judge = a_user("hi"), an_agent(), a_judge([])
    result, _ = await play(user, agent, judge, lines=["I am here", "", "//tmp", "/pass"])

    assert texts_of(result.messages)[::2] == ["I am here", "hi", "/tmp"]
    assert result.messages[0]["role"] == "user"
    for heard in (user.inputs[0], agent.inputs[0], judge.inputs[0]):
        assert "I am here" in texts_of(heard.new_messages)
    assert user.calls == 1


async def test_fixed_content_is_added_without_a_prompt():
    script = [scenario.user("fixed"), scenario.agent(), scenario.user(), scenario.succeed()]
    result, _ = await play(a_user("hi"), an_agent(), lines=["typed"], script=script)

    assert texts_of(result.messages) == ["fixed", "agent says", "typed"]


@pytest.mark.parametrize(
    ("line", "success", "reasoning"),
    [
        ("/pass", True, "passed by the person debugging it"),
        ("/pass all is well", True, "all is well"),
        ("/fail", False, "failed by the person debugging it"),
        ("/fail  too rude ", False, "too rude"),
    ],
)
async def test_a_person_can_end_the_case(line, success, reasoning):
    result, _ = await play(a_user(), an_agent(), lines=["hello", line])

    assert (result.success, result.reasoning) == (success, reasoning)
    assert texts_of(result.messages) == ["hello", "agent says"]


async def test_a_person_can_call_the_judge_at_any_time():
    judge = a_judge(lambda given: PASSED if given.judgment_request else [])
    result, _ = await play(a_user(), an_agent(), judge, lines=["hello", "/judge"])

    assert result.success
    assert result.passed_criteria == ["is kind"]
    assert [bool(one.judgment_request) for one in judge.inputs] == [False, True]


@pytest.mark.parametrize("judges", [[], [a_judge([])]], ids=["no judge", "a judge that goes on"])
async def test_without_a_verdict_the_person_is_prompted_again(judges):
    result, output = await play(a_user(), an_agent(), *judges, lines=["/judge", "/fail"])

    assert "there is no verdict" in output
    assert result.reasoning == "failed by the person debugging it"


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("/quti", "unknown command /quti; the commands are /judge"),
        ("/", "unknown command /"),
        ("/judge now", "/judge takes no text; you wrote 'now' after it"),
    ],
)
async def test_an_unknown_command_prompts_again(line, answer):
    result, output = await play(a_user(), an_agent(), lines=[line, "/pass"])

    assert answer in " ".join(output.split())
    assert (result.success, result.messages) == (True, [])


@pytest.mark.parametrize("line", ["/quit", None], ids=["quit", "end of input"])
@pytest.mark.parametrize("run", [scenario.ScenarioExecutor.run])
def test_quitting_interrupts_and_listeners_hear_of_it(line, run):
    heard = []
    executor = debugged(a_user(), an_agent(), lines=[line], events=heard.append)

    with pytest.raises(KeyboardInterrupt, match="has quit"):
        asyncio.run(run(executor))

    [mailer] = executor._dispatcher._threads
    mailer.thread.join(60)
    assert isinstance(heard[-1], events.RunFinished)
    assert heard[-1].status == "CANCELLED"


async def test_without_a_user_the_person_does_all_the_talking():
    result, output = await play(SilentUser(), an_agent(), lines=["", "hello", "/pass"])

    assert texts_of(result.messages) == ["hello", "agent says"]
    assert "there is no simulated user; write what the user says" in output


def test_time_limits_pause_while_a_person_types():
    lines = ["hello", "/pass"]

    async def slowly(prompt):
        await asyncio.sleep(35)
        return lines.pop(0)

    async def main(clock):
        return await debugged(
            a_user(), an_agent(), ask=slowly, timeout=30, call_timeout=30
        ).run()  # fmt: skip

    assert simulated(main).success


async def test_the_person_sees_all_messages_before_the_prompt():
    heard = []

    async def ask(prompt):
        seen = [one.message["content"] for one in heard if isinstance(one, events.MessageAdded)]
        return "hello" if not seen else "/pass " + ", ".join(seen)

    def slow(event):
        heard.append(event)

    result = await debugged(a_user(), an_agent(), ask=ask, events=slow).run()

    assert result.reasoning == "hello, agent says"


def test_of_two_runs_the_second_waits_for_its_turn_and_its_time_does_not_pass():
    order = []

    def one_who_notes(name):
        async def ask(prompt):
            order.append(name)
            await asyncio.sleep(35)
            return "hello" if order.count(name) == 1 else "/pass"

        return ask

    async def main(clock):
        runs = [
            debugged(a_user(), an_agent(), name=name, ask=one_who_notes(name), timeout=30).run()
            for name in ("one", "two")
        ]
        return await asyncio.gather(*runs)

    results = simulated(main)

    assert all(result.success for result in results)
    assert order == ["one", "one", "two", "two"]


async def test_a_run_inside_of_a_debugged_one_is_refused_and_does_not_wait_for_ever():
    async def inner(state):
        await debugged(a_user(), an_agent(), name="inner", lines=["/pass"]).run()

    with pytest.raises(ConfigError, match=r"'inner'.* runs inside case 'a chat'"):
        await debugged(a_user(), an_agent(), script=[inner]).run()


async def test_a_cancelled_run_frees_the_terminal_for_the_next():
    asked = asyncio.Event()

    async def never(prompt):
        asked.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(debugged(a_user(), an_agent(), ask=never).run())
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    result = await debugged(a_user(), an_agent(), lines=["/pass"]).run()
    assert result.success


@pytest.mark.parametrize("how", [scenario.run, scenario.arun, scenario.ScenarioExecutor])
def test_without_a_terminal_debugging_is_refused_before_anything_runs(how):
    agent = an_agent()

    async def play():
        await how("a chat", "…", [a_user(), agent], debug=True)

    with redirect_stdout(io.StringIO()), pytest.raises(ConfigError, match="'a chat': debug needs"):
        asyncio.run(play())

    assert agent.calls == 0
