"""Graders of `type: code` that ask the judge of the run."""

import json
import threading

import pytest
import yaml

import holodeck
from fakes import FakeOpenAI
from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError

GRADERS = """
WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}

def plain(case, judge):
    return judge.ask(f"Is {case.response!r} polite?")

async def coroutine(case, judge):
    return await judge.aask(f"Is {case.response!r} polite?")

def with_schema(case, judge):
    return judge.ask("One word?", WORD)["word"] == "yes"

def hides_faults(case, judge):
    try:
        return judge.ask("Is it polite?")
    except Exception:
        return 1.0

async def blocks(case, judge):
    try:
        return judge.ask("Is it polite?")
    except Exception:
        return 1.0

def from_a_loop_of_its_own(case, judge):
    import asyncio
    return asyncio.run(judge.aask("Is it polite?"))

def without_parameter(case):
    return 1.0
"""


@pytest.fixture(scope="module")
def server():
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture
def run(server, tmp_path):
    """Runs one case with one grader, and returns its row."""

    async def report(grader, **keys):
        (tmp_path / "graders.py").write_text(GRADERS)
        (tmp_path / "waiter.py").write_text("def answer(text):\n    return 'Please.'\n")
        model = {"provider": "openai", "name": "wise", "endpoint": server.url, "api_key": "k"}
        metric = {"type": "code", "grader": f"graders:{grader}", "judge": True, **keys}
        config = {
            "name": "waiter",
            "backend": "waiter:answer",
            "evaluations": {"model": model, "metrics": [metric]},
            "test_cases": [{"input": "hello"}],
        }
        (tmp_path / "agent.yaml").write_text(yaml.safe_dump(config))
        found = await holodeck.arun(tmp_path / "agent.yaml")
        [row] = found.results[0].metric_results
        return row

    return report


def verdict(passed):
    return json.dumps({"reason": "so it is", "passed": passed})


@pytest.mark.parametrize("passed", [True, False])
@pytest.mark.parametrize("grader", ["plain", "coroutine", "from_a_loop_of_its_own"])
async def test_the_verdict_of_the_judge_is_that_of_the_row(grader, passed, server, run):
    server.otherwise(verdict(passed))

    row = await run(grader)

    assert (row.passed, row.score) == (passed, float(passed))
    assert row.reasoning == "so it is"
    assert row.judge_calls == 1
    assert "polite?" in row.judge_prompts[0]


async def test_the_answer_has_the_form_that_the_grader_asks_for(server, run):
    server.otherwise(json.dumps({"word": "yes"}))

    row = await run("with_schema")

    assert row.passed is True
    assert '"word"' in row.judge_prompts[0]


@pytest.mark.parametrize("grader", ["plain", "hides_faults", "coroutine"])
async def test_an_unreadable_answer_is_an_error_even_if_the_grader_hides_it(grader, server, run):
    server.otherwise("I would rather not say.")

    row = await run(grader)

    assert row.score is None
    assert not row.passed
    assert "did not answer as asked, twice" in row.error
    assert row.judge_calls == 2


@pytest.mark.parametrize("grader", ["plain", "hides_faults", "coroutine"])
async def test_a_judge_that_does_not_answer_in_time_is_an_error(grader, server, run):
    test_is_over = threading.Event()

    def wait(_request):
        test_is_over.wait(60)
        return verdict(True)

    server.otherwise(wait)
    try:
        row = await run(grader, timeout_ms=200)
    finally:
        test_is_over.set()

    assert row.score is None
    assert "timed out after 0.2 s" in row.error


async def test_a_coroutine_that_would_block_the_run_is_told_what_to_write(server, run):
    server.otherwise(verdict(True))

    row = await run("blocks")

    assert row.score is None
    assert not row.passed
    assert "write 'await judge.aask(…)'" in row.error


def test_validate_compares_the_key_with_the_parameters_of_the_grader(tmp_path):
    (tmp_path / "graders.py").write_text(GRADERS)
    (tmp_path / "waiter.py").write_text("def answer(text):\n    return 'Please.'\n")
    metrics = [
        {"type": "code", "grader": "graders:without_parameter", "judge": True},
        {"type": "code", "grader": "graders:plain"},
    ]
    config = {"name": "w", "backend": "waiter:answer", "evaluations": {"metrics": metrics},
              "test_cases": [{"input": "hello"}]}  # fmt: skip
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(config))

    agent = ConfigLoader().load_agent_yaml(tmp_path / "agent.yaml")
    messages = "\n".join(one.message for one in check(agent))

    assert "'graders:without_parameter' has no parameter 'judge'" in messages
    assert "'without_parameter' needs a judge model" in messages
    assert "'graders:plain' takes a judge; to give it one, write 'judge: true'" in messages


async def test_a_grader_that_takes_no_judge_is_refused_before_the_run(run):
    with pytest.raises(ConfigError, match="has no parameter 'judge'; add it"):
        await run("without_parameter")
