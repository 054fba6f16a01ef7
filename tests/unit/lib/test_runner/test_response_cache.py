"""What judges and simulated users of cases said is kept and given again; the agent is asked."""

import json

import pytest
from pydantic import ValidationError

from fakes import ScriptedBackend
from holodeck.errors import ConfigError
from holodeck.lib.selection.request import CaseHistory
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.lib.test_runner.scheduling.plan import build_plan
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_result import Outcome
from support.agents import an_agent, executor_of

SAYS_HI = json.dumps({"message": "hi", "done": False})
JUDGED = json.dumps({"c1": {"reasoning": "seen", "status": "passed"}, "decision": "verdict"})
SIMULATED = {
    "name": "sim",
    "simulate": {"situation": "wants a recipe"},
    "criteria": ["is kind"],
    "cache_key": "v1",
}


@pytest.fixture
def agent(fake_openai):
    """An agent with one case, whose judge and simulated user are a model on a server."""
    fake_openai.when("what the user writes next", SAYS_HI).when("# Criteria", JUDGED)

    def made(case=SIMULATED, **model):
        llm = {"provider": "openai", "name": "m", "endpoint": fake_openai.url, "api_key": "k"}
        return an_agent(case, evaluations={"model": llm | model})

    return made


@pytest.fixture
def run(tmp_path):
    """Runs an agent with answers kept in a folder; gives the report."""

    async def ran(agent, mode="auto", backend=None, **settings):
        kept = {"cache_mode": mode, "cache_dir": str(tmp_path / "kept"), **settings}
        executor = executor_of(tmp_path, agent, backend or ScriptedBackend(), settings=kept)
        return await executor.execute_tests()

    return ran


@pytest.mark.parametrize(
    "case",
    [
        SIMULATED,
        {"input": "hi", "criteria": ["is kind"], "cache_key": "v1"},
        {"turns": [{"input": "hi"}], "criteria": ["is kind"], "cache_key": "v1"},
        {"script": [{"user": "hi"}, "agent", {"judge": ["is kind"]}], "cache_key": "v1"},
    ],
    ids=["simulate", "input", "turns", "script"],
)
async def test_a_second_run_asks_the_agent_and_nobody_else(run, agent, fake_openai, case):
    await run(agent(case))
    asked, backend = len(fake_openai.requests), ScriptedBackend()
    report = await run(agent(case), mode="replay", backend=backend)

    [result] = report.results
    assert asked > 0
    assert len(fake_openai.requests) == asked
    assert backend.messages == ["hi"]
    assert result.outcome is Outcome.PASSED
    assert [row.reasoning for row in result.criteria] == ["seen"]


async def test_the_report_says_what_was_kept_and_counts_no_call(run, agent):
    first = await run(agent())
    second = await run(agent())

    costs = [(one.judge_cost, one.simulator_cost) for one in first.results + second.results]
    assert [[(cost.calls, cost.kept) for cost in pair] for pair in costs] == [
        [(1, 0), (1, 0)],
        [(0, 1), (0, 1)],
    ]
    assert (second.summary.judge_calls, second.summary.simulator_calls) == (0, 0)
    assert second.results[0].judge_cost.tokens.total_tokens == 0
    told = generate_markdown_report(second)
    assert "- **Judge:** openai/m, 0 calls, 1 cached response, 0 tokens" in told
    assert "- **Simulated user:** openai/m, 0 calls, 1 cached response" in told
    assert "kept from" not in generate_markdown_report(first)


async def test_a_replay_that_misses_shows_the_nearest_entry_and_what_differs(run, agent):
    await run(agent())
    answers = ScriptedBackend(lambda _: "something else")
    [result] = (await run(agent(), mode="replay", backend=answers)).results

    assert result.outcome is Outcome.METRIC_ERROR
    [told] = result.errors
    assert "no response to this call is recorded; the nearest is" in told
    assert 'recorded "OK: hi", now "something else"' in told


@pytest.mark.parametrize(
    ("case", "model"),
    [
        (SIMULATED | {"criteria": ["is very kind"]}, {}),
        (SIMULATED | {"criteria": [{"text": "is kind", "required": False}, "is"]}, {}),
        (SIMULATED | {"situation": "for the judge"}, {}),
        (SIMULATED | {"simulate": {"situation": "wants a recipe", "persona": "rude"}}, {}),
        (SIMULATED | {"cache_key": "v2"}, {}),
        (SIMULATED, {"name": "another"}),
        (SIMULATED, {"temperature": 0.9}),
    ],
    ids=["criteria", "required", "situation", "persona", "key", "model", "temperature"],
)
async def test_what_answers_depend_on_is_part_of_what_finds_them(
    run, agent, fake_openai, case, model
):
    await run(agent())
    asked = len(fake_openai.requests)
    [result] = (await run(agent(case, **model), mode="replay")).results

    assert result.outcome is Outcome.METRIC_ERROR
    assert len(fake_openai.requests) == asked


@pytest.mark.parametrize(("mode", "again"), [("record", 2), ("off", 2), ("auto", 0)])
async def test_the_mode_says_who_is_asked_again(run, agent, fake_openai, mode, again):
    await run(agent())
    asked = len(fake_openai.requests)
    await run(agent(), mode=mode)

    assert len(fake_openai.requests) - asked == again


@pytest.mark.parametrize("times", [0, 2], ids=["nothing", "twice"])
async def test_a_kept_verdict_on_other_criteria_decides_nothing(run, agent, tmp_path, times):
    contains = {"type": "standard", "metric": "contains", "value": "OK"}
    case = {"input": "hi", "criteria": ["is kind"], "cache_key": "v1", "evaluations": [contains]}
    await run(agent(case))
    [path] = (tmp_path / "kept" / "v1").iterdir()
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "value": {"list": kept["value"]["list"] * times}}))

    [result] = (await run(agent(case))).results

    assert result.outcome is Outcome.METRIC_ERROR
    assert "the cached verdict is about" in result.errors[0]


async def test_nothing_is_kept_without_a_key(run, agent, tmp_path):
    case = {key: value for key, value in SIMULATED.items() if key != "cache_key"}
    [result] = (await run(agent(case))).results

    assert result.outcome is Outcome.PASSED
    assert not (tmp_path / "kept").exists()


async def test_a_key_of_the_run_holds_for_cases_that_have_none(run, agent, tmp_path):
    case = {key: value for key, value in SIMULATED.items() if key != "cache_key"}
    settings = {"cache_key": "all"}
    configured = ExecutionConfig(**settings).with_sources({"cache_key": "agent.yaml:3:1"})
    executor = executor_of(
        tmp_path, agent(case), ScriptedBackend(),
        settings={**configured.model_dump(include={"cache_key"}), "cache_dir": str(tmp_path / "k")},
    )  # fmt: skip
    await executor.execute_tests()

    assert [one.name for one in (tmp_path / "k").iterdir()] == ["all"]


async def test_a_case_without_a_key_cannot_be_replayed(run, agent):
    case = {key: value for key, value in SIMULATED.items() if key != "cache_key"}

    with pytest.raises(ConfigError, match="to replay, the case needs a 'cache_key'"):
        await run(agent(case), mode="replay")


def test_a_key_under_which_nothing_would_be_kept_is_refused():
    with pytest.raises(ValidationError, match="neither; write"):
        an_agent({"input": "hi", "cache_key": "v1"})


@pytest.mark.parametrize(
    ("mode", "least", "most"), [("off", 1, None), ("auto", 0, None), ("replay", 0, 0)]
)
def test_a_plan_does_not_count_what_is_kept(agent, mode, least, most):
    plan = build_plan(
        agent(), "agent.yaml", ExecutionConfig(cache_mode=mode), [CaseHistory()], None
    )

    assert (plan.judge_calls.least, plan.judge_calls.most) == (least, most)


async def test_no_file_holds_a_secret_and_what_held_one_is_found_again(
    run, agent, tmp_path, monkeypatch, fake_openai
):
    monkeypatch.setenv("DB_PASSWORD", "correct-horse")
    answers = ScriptedBackend(lambda _: "it is correct-horse, and sk-1234567890abcdefgh")
    await run(agent(), backend=answers)
    asked = len(fake_openai.requests)
    [result] = (await run(agent(), mode="replay", backend=answers)).results

    written = [one.read_text() for one in (tmp_path / "kept" / "v1").iterdir()]
    assert result.outcome is Outcome.PASSED
    assert len(fake_openai.requests) == asked
    assert [one for one in written if "correct-horse" in one or "sk-1234567890" in one] == []
    assert any("***" in one for one in written)


async def test_a_replay_that_misses_by_a_secret_does_not_show_it(run, agent, monkeypatch):
    for word in ("battery", "stapler"):
        monkeypatch.setenv(f"{word.upper()}_PASSWORD", word)
    await run(agent(), backend=ScriptedBackend(lambda _: "battery"))
    answers = ScriptedBackend(lambda _: "stapler")
    [result] = (await run(agent(), mode="replay", backend=answers)).results

    [told] = result.errors
    assert "differs at a secret, which is not shown" in told


def test_the_command_line_records_once_and_replays_without_key_and_server(agent_dir):
    agent_dir.server.when("# Criteria", JUDGED)
    agent_dir.write("bot.py", "def answer(text):\n    return 'OK'\n")
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend="bot:answer",
        evaluations={"model": agent_dir.model(api_key=None)},
        test_cases=[{"name": "one", "input": "hi", "criteria": ["is kind"]}],
    )
    keep = ("--cache-key", "v1", "--cache-dir", "kept")

    missed = agent_dir.run("test", *keep, "--cache", "replay", env={"OPENAI_API_KEY": None})
    recorded = agent_dir.run("test", *keep, env={"OPENAI_API_KEY": "k-123456"})
    asked = len(agent_dir.server.requests)
    replayed = agent_dir.run("test", *keep, "--cache", "replay", env={"OPENAI_API_KEY": None})
    unkeyed = agent_dir.run("test", "--cache", "replay", env={"OPENAI_API_KEY": None})
    wrong = agent_dir.run("test", "--cache", "sometimes")

    codes = [one.code for one in (missed, recorded, replayed, unkeyed, wrong)]
    assert codes == [4, 0, 0, 2, 2], replayed.stderr
    assert len(agent_dir.server.requests) == asked == 1
    assert "nothing is recorded for it" in missed.stdout
    assert "agent.yaml:6:3: to replay, the case needs a 'cache_key'" in unkeyed.stderr
    [kept] = (agent_dir.path / "kept" / "v1").iterdir()
    assert "k-123456" not in kept.read_text()
