"""`holodeck.suite`: code written for `agenticassure` runs with the name of the package changed.

First the documented examples, then the documented statements, then what the documents leave open
(docs/decisions/0011-suites.md).
"""

# ruff: noqa: A002, A006, ARG005 - `input` is what adapters call it

import asyncio
import builtins
import functools
import inspect
import json
import subprocess
import sys
import threading
import time
from importlib import import_module

import pytest

from fakes import clean_environment
from holodeck import suite as api
from holodeck.errors import BackendSessionError, ConfigError, NothingSelected, install_command
from holodeck.lib.backends.base import ExecutionResult
from holodeck.suite import (
    AgentAdapter,
    AgentResult,
    Runner,
    RunResult,
    Scenario,
    ScoreResult,
    Suite,
    SuiteConfig,
    TokenUsage,
    ToolCall,
    get_scorer,
    list_scorers,
    load_scenarios,
    load_scenarios_from_dir,
    register_scorer,
)
from holodeck.suite.loader import SUITE_SCHEMA, validate_scenario_file, validate_with_schema
from holodeck.suite.scorers import SimilarityScorer, base

PATHS = {
    "holodeck.suite": [
        "AgentResult", "RunResult", "Runner", "Scenario", "ScenarioRunResult", "ScoreResult",
        "Suite", "SuiteConfig", "TokenUsage", "ToolCall", "__version__", "get_scorer",
        "list_scorers", "load_scenarios", "load_scenarios_from_dir", "register_scorer",
    ],
    "holodeck.suite.adapters": ["AgentAdapter"],
    "holodeck.suite.adapters.base": ["AgentAdapter"],
    "holodeck.suite.adapters.langchain": ["LangChainAdapter"],
    "holodeck.suite.adapters.openai": ["OpenAIAdapter"],
    "holodeck.suite.loader": [
        "SUITE_SCHEMA", "load_scenarios", "load_scenarios_from_dir", "validate_scenario_file",
        "validate_with_schema",
    ],
    "holodeck.suite.reports": ["CLIReporter", "HTMLReporter", "JSONReporter"],
    "holodeck.suite.reports.cli_report": ["CLIReporter"],
    "holodeck.suite.reports.html_report": ["HTMLReporter"],
    "holodeck.suite.reports.json_report": ["JSONReporter"],
    "holodeck.suite.results": ["AgentResult", "RunResult", "ScoreResult", "TokenUsage", "ToolCall"],
    "holodeck.suite.runner": ["Runner"],
    "holodeck.suite.scenario": ["Scenario", "Suite", "SuiteConfig"],
    "holodeck.suite.scorers": [
        "ExactMatchScorer", "PassFailScorer", "RegexScorer", "Scorer", "SimilarityScorer",
        "get_scorer", "list_scorers", "register_scorer",
    ],
    "holodeck.suite.scorers.base": ["Scorer", "get_scorer", "list_scorers", "register_scorer"],
    "holodeck.suite.scorers.exact": ["ExactMatchScorer"],
    "holodeck.suite.scorers.passfail": ["PassFailScorer"],
    "holodeck.suite.scorers.regex": ["RegexScorer"],
    "holodeck.suite.scorers.similarity": ["SimilarityScorer"],
}  # fmt: skip

SUPPORT = """\
suite:
  name: customer-support
  description: What customers ask
  config:
    retries: 1
scenarios:
  - name: hours
    input: When are you open?
    expected_output: nine to five
    tags: [smoke, api]
  - name: order
    input: Where is ORD-1?
    expected_tools: [get_order]
    expected_tool_args: {get_order: {order_id: ORD-1}}
    scorers: [passfail, regex]
    metadata: {regex_pattern: 'ORD-\\d+'}
    timeout_seconds: 5
"""


class Desk:
    """An agent that knows the answers, and keeps what it was asked."""

    def __init__(self):
        self.asked = []

    def run(self, input, context=None):
        self.asked.append((input, context))
        if "ORD-1" in input:
            call = ToolCall(name="get_order", arguments={"order_id": "ORD-1"}, result="sent")
            return AgentResult(output="ORD-1 is on its way", tool_calls=[call])
        return AgentResult(output=f"{input}: 4, from Nine to five")


class Broken:
    """An agent that raises so many times before it answers."""

    def __init__(self, times=1000, error=None):
        self.left = times
        self.calls = 0
        self.error = error or ValueError("no luck")

    def run(self, input, context=None):
        self.calls += 1
        self.left -= 1
        if self.left >= 0:
            raise self.error
        return AgentResult(output="fine")


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """Scorers that a test registers are gone afterwards."""
    monkeypatch.setattr(base, "_registered", {})


@pytest.fixture
def desk():
    return Desk()


@pytest.fixture
def scenarios(tmp_path):
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (folder / "customer-support.yaml").write_text(SUPPORT)
    return folder


def a_suite(*names, **fields):
    return Suite(name="s", scenarios=[Scenario(name=one, input=one) for one in names], **fields)


def test_every_documented_name_is_there():
    missing = [
        f"{module}:{name}"
        for module, names in PATHS.items()
        for name in names
        if getattr(import_module(module), name, None) is None
    ]

    assert missing == []


def test_every_public_name_is_listed_and_others_are_no_attributes():
    assert all(getattr(api, name) is not None for name in api.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Runer'"):
        _ = api.Runer


PARAMETERS = {
    Runner: "adapter default_timeout retries fail_fast",
    Runner.run_suite: "self suite tags context",
    Runner.run_scenario: "self scenario context",
}


@pytest.mark.parametrize(
    ("callable", "names"), PARAMETERS.items(), ids=[one.__qualname__ for one in PARAMETERS]
)
def test_parameters_stand_in_the_documented_order(callable, names):
    wanted = names.split()

    assert list(inspect.signature(callable).parameters)[: len(wanted)] == wanted


def test_settings_have_the_documented_defaults():
    runner, scenario, config = Runner(Desk()), Scenario(name="a", input="b"), SuiteConfig()

    assert (runner.default_timeout, runner.retries, runner.fail_fast) == (30.0, 0, False)
    assert (scenario.scorers, scenario.timeout_seconds) == (["passfail"], 30.0)
    assert (config.retries, config.fail_fast, config.default_timeout) == (0, False, 30.0)
    assert config.default_scorers == ["passfail"]


IMPORTED = """
import sys
from holodeck.suite import Runner, load_scenarios
heavy = {"openai", "semantic_kernel", "anthropic", "httpx", "httpx2", "jsonschema", "numpy"}
print(sorted(heavy & set(sys.modules)))
"""


def test_importing_it_imports_no_provider(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORTED],
        env=clean_environment(tmp_path), capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip

    assert ran.stdout == "[]\n", ran.stderr


# The examples of the document.


def test_example_running_a_full_suite(scenarios, desk):
    suite = load_scenarios(scenarios / "customer-support.yaml")
    runner = Runner(adapter=desk, retries=1, fail_fast=False)

    result = runner.run_suite(suite)

    assert f"Pass rate: {result.pass_rate:.0%}" == "Pass rate: 100%"
    assert f"Aggregate score: {result.aggregate_score:.3f}" == "Aggregate score: 1.000"


def test_example_running_a_single_scenario(desk):
    scenario = Scenario(
        name="quick_test",
        input="What is 2 + 2?",
        expected_output="4",
        scorers=["passfail", "exact"],
    )

    result = Runner(adapter=desk).run_scenario(scenario)

    assert not result.passed
    assert [(one.scorer_name, one.passed) for one in result.scores] == [
        ("passfail", True), ("exact", False),
    ]  # fmt: skip
    assert all(one.explanation for one in result.scores)


def test_example_suite_config_wins_over_the_runner(desk):
    agent = Broken()
    suite = Suite(name="my-suite", config=SuiteConfig(retries=3), scenarios=a_suite("a").scenarios)

    Runner(adapter=agent, retries=1).run_suite(suite)

    assert agent.calls == 4


def test_example_running_with_tag_filters(scenarios, desk):
    suite = load_scenarios(scenarios / "customer-support.yaml")

    smoke = Runner(adapter=desk).run_suite(suite, tags=["smoke"])
    either = Runner(adapter=desk).run_suite(suite, tags=["smoke", "critical"])

    assert [one.scenario.name for one in smoke.scenario_results] == ["hours"]
    assert [one.scenario.name for one in either.scenario_results] == ["hours"]


def test_example_retries():
    result = Runner(adapter=Broken(times=1), retries=2).run_scenario(Scenario(name="a", input="b"))

    assert result.passed
    assert f"Succeeded on attempt {result.retry_count + 1}" == "Succeeded on attempt 2"


def test_example_passing_context(desk):
    context = {
        "user_id": "test-user-123",
        "session_token": "abc...",
        "feature_flags": {"new_tool": True},
    }

    Runner(adapter=desk).run_suite(a_suite("a"), context=context)

    assert desk.asked == [("a", context)]


def test_example_loading_multiple_suites_from_a_directory(scenarios, desk):
    (scenarios / "billing.yaml").write_text("scenarios: [{name: a, input: hello}]")
    runner = Runner(adapter=desk)

    rates = {
        suite.name: f"{runner.run_suite(suite).pass_rate:.0%}"
        for suite in load_scenarios_from_dir(scenarios)
    }

    assert rates == {"billing": "100%", "customer-support": "100%"}


def test_example_custom_reporting(tmp_path, scenarios, desk):
    result = Runner(adapter=desk).run_suite(load_scenarios(scenarios / "customer-support.yaml"))

    (tmp_path / "results.json").write_text(result.model_dump_json(indent=2))
    metrics = {
        "suite": result.suite_name,
        "pass_rate": result.pass_rate,
        "aggregate_score": result.aggregate_score,
        "duration_ms": result.total_duration_ms,
        "scenarios_run": len(result.scenario_results),
        "scenarios_passed": sum(1 for sr in result.scenario_results if sr.passed),
    }

    written = json.loads((tmp_path / "results.json").read_text())
    assert RunResult.model_validate(written) == result
    assert metrics["suite"] == "customer-support"
    assert metrics["scenarios_run"] == metrics["scenarios_passed"] == 2


# The statements of the document.


def test_a_scenario_passes_only_if_every_scorer_passes(desk):
    scenario = Scenario(name="a", input="b", expected_output="zzz", scorers=["passfail", "exact"])

    result = Runner(desk).run_scenario(scenario)

    assert (result.passed, len(result.scores), result.error) == (False, 2, None)


def test_retries_zero_is_one_attempt_and_two_are_three():
    agents = [Broken(), Broken()]

    for agent, retries in zip(agents, (0, 2), strict=True):
        Runner(agent, retries=retries).run_scenario(Scenario(name="a", input="b"))

    assert [agent.calls for agent in agents] == [1, 3]


def test_a_failed_score_is_returned_at_once_as_failed(desk):
    scenario = Scenario(name="a", input="b", expected_output="not in it")

    result = Runner(desk, retries=3).run_scenario(scenario)

    assert (result.passed, result.retry_count, result.error) == (False, 0, None)
    assert len(desk.asked) == 1


def test_an_agent_that_always_raises_ends_in_an_empty_failing_result():
    result = Runner(Broken(), retries=2).run_scenario(Scenario(name="a", input="b"))

    assert (result.passed, result.agent_result.output) == (False, "")
    assert (result.error, result.scores, result.retry_count) == ("ValueError: no luck", [], 2)
    assert result.outcome == "agent_error"


def test_fail_fast_stops_after_the_first_failure_and_names_what_was_not_reached():
    agent = Broken()

    result = Runner(agent, fail_fast=True).run_suite(a_suite("a", "b", "c"))

    assert [one.scenario.name for one in result.scenario_results] == ["a"]
    assert (result.not_reached, agent.calls) == (["b", "c"], 1)


def test_a_blank_answer_that_every_scorer_passes_passes_and_ends_no_run():
    scenarios = [
        Scenario(name=name, input="b", expected_output="", scorers=["exact"]) for name in "ab"
    ]

    result = Runner(lambda input: "", fail_fast=True).run_suite(
        Suite(name="s", scenarios=scenarios)
    )

    assert [one.outcome for one in result.scenario_results] == ["passed", "passed"]


def test_scenarios_without_tags_never_match_a_filter(desk):
    suite = Suite(
        name="s",
        scenarios=[Scenario(name="a", input="a"), Scenario(name="b", input="b", tags=["smoke"])],
    )

    result = Runner(desk).run_suite(suite, tags=["smoke"])

    assert [one.scenario.name for one in result.scenario_results] == ["b"]


def test_every_attempt_gets_the_same_input_and_context():
    seen = []

    def agent(input, context):
        seen.append((input, dict(context)))
        context["spoilt"] = True
        raise OSError("again")

    Runner(agent, retries=1).run_suite(a_suite("a"), context={"user": "u"})

    assert seen == [("a", {"user": "u"})] * 2


class Grumpy:
    name = "grumpy"

    def score(self, scenario, result):
        raise RuntimeError("cannot say")


@pytest.fixture
def grumpy():
    register_scorer(Grumpy())
    return Scenario(name="a", input="b", scorers=["passfail", "grumpy"])


def test_strict_scorers_raises_what_a_scorer_raises(grumpy, desk):
    with pytest.raises(RuntimeError, match="cannot say"):
        Runner(desk, strict_scorers=True).run_scenario(grumpy)


# What the document leaves open.


def test_a_scorer_that_raises_is_a_row_and_the_answer_is_kept(grumpy, desk):
    result = Runner(desk, retries=3).run_scenario(grumpy)

    assert (result.passed, result.outcome) == (False, "metric_error")
    assert result.agent_result.output.startswith("b")
    assert [(one.passed, one.error) for one in result.scores] == [
        (True, None), (False, "RuntimeError: cannot say"),
    ]  # fmt: skip
    assert result.error == "scorer 'grumpy': RuntimeError: cannot say"
    assert len(desk.asked) == 1


def test_a_failed_score_decides_even_if_another_scorer_raises(grumpy, desk):
    grumpy.expected_output = "not in it"

    result = Runner(desk).run_scenario(grumpy)

    assert (result.passed, result.outcome, result.error) == (False, "failed", None)
    assert result.scores[1].error == "RuntimeError: cannot say"


def test_an_unknown_scorer_ends_it_before_the_agent_is_called(desk):
    suite = a_suite("a", "b")
    suite.scenarios[1].scorers = ["pasfail"]

    with pytest.raises(ConfigError, match=r"did you mean 'passfail'\?"):
        Runner(desk).run_suite(suite)
    assert desk.asked == []


def test_an_unknown_scorer_is_a_key_error_too():
    with pytest.raises(KeyError, match="unknown scorer 'nope'"):
        get_scorer("nope")


def test_the_built_in_scorers_are_listed():
    assert list_scorers()[:4] == ["passfail", "exact", "regex", "similarity"]


def test_similarity_without_its_library_is_not_listed_and_says_what_to_install(tmp_path):
    program = (
        "import sys\n"
        "sys.modules['xllamacpp'] = None\n"
        "from holodeck.errors import MissingExtra\n"
        "from holodeck.suite import Runner, Scenario, list_scorers\n"
        "assert list_scorers() == ['passfail', 'exact', 'regex']\n"
        "wanting = Scenario(name='a', input='?', expected_output='x', scorers=['similarity'])\n"
        "try:\n"
        "    Runner(lambda question: sys.exit('the agent was asked')).run_scenario(wanting)\n"
        "except MissingExtra as error:\n"
        "    print(error)\n"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env=clean_environment(tmp_path), capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert install_command("local") in ran.stdout


def test_similarity_without_weights_keeps_the_answer_and_says_what_to_pull(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLODECK_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HOLODECK_OFFLINE", "1")
    scenario = Scenario(name="a", input="?", expected_output=HOURS, scorers=["similarity"])

    result = Runner(lambda question: HOURS).run_scenario(scenario)

    assert not result.passed
    assert result.agent_result.output == HOURS
    assert "holodeck models pull all-minilm-l6-v2" in result.error


HOURS = "We are open from nine to five."


@pytest.mark.model
@pytest.mark.parametrize(
    ("said", "metadata", "passed"),
    [
        ("Our opening hours are nine to five.", {}, True),
        ("The weather is lovely.", {}, False),
        ("Our opening hours are nine to five.", {"similarity_threshold": 0.99}, False),
        (HOURS, {"similarity_threshold": 1}, True),
        ("  ", {"similarity_threshold": 0.01}, False),
    ],
    ids=["same meaning", "other meaning", "a high threshold", "the same text", "blank"],
)
def test_similarity_compares_meanings_in_the_process(said, metadata, passed):
    scenario = Scenario(
        name="a", input="?", expected_output=HOURS, scorers=["similarity"], metadata=metadata
    )

    (row,) = Runner(lambda question: said).run_scenario(scenario).scores

    assert (row.passed, row.error) == (passed, None)
    assert 0 <= row.score <= 1
    threshold = metadata.get("similarity_threshold", 0.7)
    assert row.details == {"cosine_similarity": row.score, "threshold": threshold}


@pytest.mark.parametrize("threshold", [0, -1, 1.5, "0.7", True, None, float("nan")], ids=repr)
def test_a_threshold_of_similarity_that_decides_nothing_is_an_error(threshold):
    scenario = Scenario(
        name="a", input="?", expected_output=HOURS, scorers=["similarity"],
        metadata={"similarity_threshold": threshold},
    )  # fmt: skip

    result = Runner(lambda question: HOURS).run_scenario(scenario)

    assert not result.passed
    assert f"metadata.similarity_threshold: found {threshold!r}" in result.error


@pytest.mark.parametrize("expected", [None, " "], ids=["none", "blank"])
def test_similarity_without_an_expected_text_is_an_error(expected):
    scenario = Scenario(name="a", input="?", expected_output=expected, scorers=["similarity"])

    result = Runner(lambda question: HOURS).run_scenario(scenario)

    assert not result.passed
    assert "'similarity' compares with it" in result.error


def test_a_scorer_can_be_named_by_module_and_attribute(scenarios, desk):
    (scenarios / "tone.py").write_text(
        "from holodeck.suite import ScoreResult\n"
        "class Polite:\n"
        "    name = 'polite'\n"
        "    async def score(self, scenario, result):\n"
        "        return ScoreResult(scenario_id=scenario.id, scorer_name=self.name, score=0.5,\n"
        "                           passed='please' in result.output)\n"
    )
    (scenarios / "tone.yaml").write_text(
        "scenarios: [{name: a, input: say please, scorers: ['tone:Polite']}]"
    )

    result = Runner(desk).run_suite(load_scenarios(scenarios / "tone.yaml"))

    assert (result.pass_rate, result.aggregate_score) == (1.0, 0.5)


class Passing:
    def __init__(self, name):
        self.name = name

    def score(self, scenario, result):
        return ScoreResult(
            scenario_id=scenario.id, scorer_name=self.name, score=1, passed=True, explanation="mine"
        )


@pytest.mark.parametrize("name", ["exact", "grumpy"], ids=["built-in", "registered"])
def test_a_scorer_replaces_the_one_of_its_name_with_a_warning(name, caplog, desk):
    register_scorer(Grumpy())
    register_scorer(Passing(name))

    [row] = Runner(desk).run_scenario(Scenario(name="a", input="b", scorers=[name])).scores

    assert row.explanation == "mine"
    assert f"scorer '{name}' is now" in caplog.text


def test_a_scorer_that_is_registered_again_or_replaces_knowingly_gives_no_warning(caplog):
    register_scorer(Grumpy())
    register_scorer(Grumpy())
    register_scorer(Passing("grumpy"), replace=True)

    assert caplog.text == ""
    assert list_scorers()[-1:] == ["grumpy"]


def test_a_class_is_no_scorer():
    with pytest.raises(ConfigError, match="expected an object"):
        register_scorer(Grumpy)


def test_similarity_has_a_threshold_of_its_own_and_one_model():
    assert SimilarityScorer("all-MiniLM-L6-v2", threshold=0.9).threshold == 0.9
    with pytest.raises(
        ConfigError, match=r"model_name: found 'big'; the only model is 'all-MiniLM"
    ):
        SimilarityScorer(model_name="big")
    with pytest.raises(ConfigError, match="threshold: found 0"):
        SimilarityScorer(threshold=0)


@pytest.mark.parametrize("name", ["", " ", None, "a:b"], ids=["empty", "blank", "none", "colon"])
def test_a_scorer_has_a_name_that_scenarios_can_say(name):
    scorer = Grumpy()
    scorer.name = name

    with pytest.raises(ConfigError, match="expected text without colons"):
        register_scorer(scorer)


def test_a_scorer_that_returns_something_else_is_an_error_row(desk):
    class Loose:
        name = "loose"

        def score(self, scenario, result):
            return True

    register_scorer(Loose())

    result = Runner(desk).run_scenario(Scenario(name="a", input="b", scorers=["loose"]))

    assert not result.passed
    assert "returned True; expected a ScoreResult" in result.error


def test_no_scorers_is_no_pass(desk):
    result = Runner(desk).run_scenario(Scenario(name="a", input="b", scorers=[]))

    assert (result.passed, result.outcome) == (False, "unchecked")
    assert "no scorers" in result.error


@pytest.mark.parametrize(
    ("config", "calls"),
    [({}, 3), ({"retries": 0}, 1), ({"retries": 1}, 2)],
    ids=["absent", "zero", "one"],
)
def test_what_a_suite_says_wins_even_if_it_is_0(config, calls):
    agent = Broken()

    Runner(agent, retries=2).run_suite(a_suite("a", config=SuiteConfig(**config)))

    assert agent.calls == calls


def test_what_a_suite_says_wins_even_if_it_is_false():
    agent = Broken()

    Runner(agent, fail_fast=True).run_suite(a_suite("a", "b", config=SuiteConfig(fail_fast=False)))

    assert agent.calls == 2


def test_default_scorers_are_those_of_scenarios_without_any(desk):
    suite = a_suite("a", "b", config=SuiteConfig(default_scorers=["exact"]))
    suite.scenarios[1].scorers = ["passfail"]

    result = Runner(desk).run_suite(suite)

    assert [one.scores[0].scorer_name for one in result.scenario_results] == ["exact", "passfail"]


def test_a_list_that_was_appended_to_counts_as_said(desk):
    suite = a_suite("a")
    suite.config.default_scorers.append("exact")

    result = Runner(desk).run_suite(suite)

    assert len(result.scenario_results[0].scores) == 2


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("where", ["runner", "suite", "scenario"])
def test_a_time_limit_ends_a_call_wherever_it_is_said(hang, is_async, where):
    agent = hang.later if is_async else hang
    runner = Runner(agent, default_timeout=0.05 if where == "runner" else 600)
    suite = a_suite("a")
    if where == "suite":
        suite.config = SuiteConfig(default_timeout=0.05)
    if where == "scenario":
        suite.config = SuiteConfig(default_timeout=600)
        suite.scenarios[0].timeout_seconds = 0.05

    [result] = runner.run_suite(suite).scenario_results

    assert result.error == "TimeoutError: no answer within 0.05 s"


async def blocking(input):
    time.sleep(0.02)  # noqa: ASYNC251 - agents do
    return "late"


def test_an_answer_after_the_time_limit_is_none_even_if_nothing_could_end_the_call():
    result = Runner(blocking, default_timeout=0.001).run_scenario(Scenario(name="a", input="a"))

    assert not result.passed
    assert result.error == "TimeoutError: no answer within 0.001 s"


async def as_text(input):
    return f"async {input}"


async def with_any_keyword(input, **others):
    return {"output": f"{input} {others['context']}", "tool_calls": ["search"]}


@pytest.mark.parametrize(
    ("agent", "output"),
    [
        (lambda input: f"sync {input}", "sync a"),
        (as_text, "async a"),
        (with_any_keyword, "a None"),
    ],
    ids=["sync", "async", "mapping"],
)
def test_functions_are_adapters_too(agent, output):
    [result] = Runner(agent).run_suite(a_suite("a")).scenario_results

    assert (result.passed, result.agent_result.output) == (True, output)


class Backend:
    """An AgentBackend."""

    def __init__(self):
        self.log = []

    async def initialize(self):
        self.log.append("initialize")

    async def invoke_once(self, message, context=None):
        return ExecutionResult(
            response=message,
            tool_calls=[{"name": "look", "arguments": {"at": 1}, "call_id": "c"}],
            tool_results=[{"name": "look", "result": "seen", "call_id": "c"}],
            is_error=message == "bad",
        )

    async def create_session(self):
        raise BackendSessionError("no conversations")

    async def teardown(self):
        self.log.append("teardown")


def test_a_backend_is_an_adapter_too():
    backend = Backend()

    good, bad = Runner(backend).run_suite(a_suite("a", "bad")).scenario_results

    assert good.agent_result.tool_calls == [
        ToolCall(name="look", arguments={"at": 1}, result="seen")
    ]
    assert (bad.passed, bad.error[:21]) == (False, "BackendSessionError: ")
    assert backend.log[-1] == "teardown"


def test_results_are_not_lost_to_a_backend_that_cannot_be_closed(caplog):
    class Stuck(Backend):
        async def teardown(self):
            raise OSError("stuck")

    result = Runner(Stuck()).run_suite(a_suite("a"))

    assert result.pass_rate == 1.0
    assert "closing the agent failed: OSError: stuck" in caplog.text


INTERRUPTED = """
import os, signal, threading
from holodeck.suite import Runner, Scenario

# whoever started the tests in the background has it ignored
signal.signal(signal.SIGINT, signal.default_int_handler)

def hung(input):
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    threading.Event().wait(600)

runner = Runner(hung)
try:
    runner.run_scenario(Scenario(name="a", input="b"))
except KeyboardInterrupt:
    runner.adapter = lambda input: "fine"
    print(runner.run_scenario(Scenario(name="a", input="b", expected_output="fine")).passed)
"""


NOTEBOOK = f"""
import asyncio
async def cell():
    {INTERRUPTED.strip().replace(chr(10), chr(10) + "    ")}
asyncio.new_event_loop().run_until_complete(cell())
"""


@pytest.mark.parametrize("program", [INTERRUPTED, NOTEBOOK], ids=["script", "notebook"])
def test_a_run_can_be_interrupted_and_the_runner_used_again(program, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment(tmp_path), capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip

    assert (ran.stdout, ran.stderr) == ("True\n", "")


def test_an_async_client_keeps_its_loop_from_suite_to_suite():
    loops = []

    class Client:
        async def run(self, input, context=None):
            loops.append(asyncio.get_running_loop())
            return AgentResult(output="x")

    runner = Runner(Client())
    for _ in range(2):
        runner.run_suite(a_suite("a"))

    assert loops[0] is loops[1]


async def test_it_runs_where_a_loop_runs_already_and_on_that_loop_if_asked(desk):
    runner = Runner(desk)

    inside = runner.run_suite(a_suite("a"))
    awaited = await runner.arun_suite(a_suite("a"))
    one = await runner.arun_scenario(Scenario(name="a", input="b"))

    assert inside.pass_rate == awaited.pass_rate == 1.0
    assert one.passed


def test_a_class_is_not_an_agent():
    with pytest.raises(ConfigError, match=r"Desk is a class; give an agent made of it: Desk\(\)"):
        Runner(Desk)


def test_an_agent_that_exits_is_an_error_of_its_scenario():
    result = Runner(Broken(error=SystemExit(3))).run_suite(a_suite("a", "b"))

    assert len(result.scenario_results) == 2
    assert "SystemExit" in result.scenario_results[0].error


def test_an_answer_of_the_wrong_kind_says_what_to_return():
    result = Runner(lambda input: None).run_scenario(Scenario(name="a", input="b"))

    assert "return the answer as text" in result.error


def test_context_is_not_shared_between_scenarios():
    seen = []

    def agent(input, context):
        seen.append(list(context["log"]))
        context["log"].append(input)
        return "ok"

    mine = {"log": []}
    Runner(agent).run_suite(a_suite("a", "b"), context=mine)

    assert (seen, mine) == ([[], []], {"log": []})


def test_what_cannot_be_copied_of_a_context_is_shared_with_a_warning(caplog):
    seen = []

    def agent(input, context):
        seen.append(context)
        context["log"].append(input)
        return "ok"

    lock, log = threading.Lock(), []
    Runner(agent).run_suite(a_suite("a", "b"), context={"lock": lock, "log": log})

    assert all(one["lock"] is lock for one in seen)
    assert [one["log"] for one in seen] == [["a"], ["b"]]
    assert log == []
    assert caplog.text.count("context['lock'] cannot be copied (TypeError: cannot pickle") == 1


def test_context_that_would_not_reach_the_agent_is_refused():
    with pytest.raises(ConfigError, match="takes none"):
        Runner(lambda input: "x").run_suite(a_suite("a"), context={"user": "u"})


def told(prefix, input, context=None):
    return f"{prefix} {input} {context}"


def test_a_function_that_is_partly_filled_in_is_an_adapter_too():
    agent = functools.partial(told, "Hm,")

    run = Runner(agent).run_suite(a_suite("a"), context={"user": "u"})

    assert run.scenario_results[0].agent_result.output == "Hm, a {'user': 'u'}"


def test_a_function_whose_answers_are_kept_is_an_adapter_too():
    run = Runner(functools.cache(lambda input: input)).run_suite(a_suite("a", "a"))

    assert run.pass_rate == 1


def test_selecting_nothing_is_an_error_that_names_the_tags(scenarios, desk):
    suite = load_scenarios(scenarios / "customer-support.yaml")

    with pytest.raises(NothingSelected, match="its tags: api, smoke"):
        Runner(desk).run_suite(suite, tags=["nope"])


def test_an_empty_list_of_tags_selects_everything(desk):
    assert len(Runner(desk).run_suite(a_suite("a", "b"), tags=[]).scenario_results) == 2


def test_a_suite_without_scenarios_and_tags_as_text_are_errors(desk):
    with pytest.raises(NothingSelected, match="has no scenarios"):
        Runner(desk).run_suite(Suite(name="s"))
    with pytest.raises(ConfigError, match=r"expected a list: \['smoke'\]"):
        Runner(desk).run_suite(a_suite("a"), tags="smoke")


def test_the_tags_of_a_suite_are_those_of_all_its_scenarios(desk):
    result = Runner(desk).run_suite(a_suite("a", "b", tags=["billing"]), tags=["billing"])

    assert len(result.scenario_results) == 2


@pytest.mark.parametrize(
    "settings",
    [{"retries": -1}, {"retries": True}, {"default_timeout": 0}, {"fail_fast": "no"}],
    ids=str,
)
def test_impossible_settings_are_refused(settings, desk):
    with pytest.raises(ConfigError, match="expected"):
        Runner(desk, **settings)


def test_two_scenarios_of_one_id_are_refused(desk):
    suite = Suite(name="s", scenarios=[Scenario(id="1", name=n, input="b") for n in "ab"])

    with pytest.raises(ConfigError, match="more than one scenario has the id '1'"):
        Runner(desk).run_suite(suite)


def test_one_scenario_runs_as_often_as_it_is_in_the_suite(desk):
    again = Scenario(name="a", input="b")

    run = Runner(desk).run_suite(Suite(name="s", scenarios=[again, again, again.model_copy()]))

    assert [one.scenario.name for one in run.scenario_results] == ["a", "a", "a"]
    assert len(desk.asked) == 3


def test_a_misspelled_expectation_is_refused():
    with pytest.raises(ValueError, match="expected_outputs"):
        Scenario(name="a", input="b", expected_outputs="4")


def test_durations_are_by_the_clock_and_working_them_out_again_changes_nothing():
    started = time.perf_counter()
    result = Runner(lambda input: time.sleep(0.05) or "x").run_suite(a_suite("a", "b"))
    most_ms = (time.perf_counter() - started) * 1000

    once = result.model_copy(deep=True)
    result.compute_aggregates()
    assert 100 <= result.total_duration_ms <= most_ms
    assert result == once
    assert 100 <= result.sum_duration_ms <= result.total_duration_ms


def test_the_durations_of_a_result_made_by_hand_are_their_sum():
    results = Runner(lambda input: "x").run_suite(a_suite("a", "b")).scenario_results
    by_hand = RunResult(suite_name="s", scenario_results=results[:1])
    by_hand.compute_aggregates()
    by_hand.scenario_results.append(results[1])

    by_hand.compute_aggregates()

    assert by_hand.total_duration_ms == sum(one.duration_ms for one in results)


def test_a_rate_counts_what_passed_and_not_what_was_scored():
    suite = a_suite("a", "b", "c", "d")
    suite.scenarios[0].expected_output = "something else"

    run = Runner(lambda question: question).run_suite(suite)

    assert (run.pass_rate, run.aggregate_score) == (0.75, 0.75)
    assert [one.passed for one in run.scenario_results] == [False, True, True, True]


def test_each_run_has_an_id_of_its_own_and_the_time_it_was_made():
    suite, runner = a_suite("a"), Runner(lambda question: question)

    first, second = runner.run_suite(suite), runner.run_suite(suite)

    assert first.run_id != second.run_id
    assert first.timestamp <= second.timestamp
    assert first.timestamp.utcoffset().total_seconds() == 0


def test_an_adapter_that_fills_one_result_again_and_again_changes_no_earlier_one():
    answer = AgentResult(output="")

    class Reusing:
        def run(self, input, context=None):
            answer.output = input
            return answer

    run = Runner(Reusing()).run_suite(a_suite("a", "b"))

    assert [one.agent_result.output for one in run.scenario_results] == ["a", "b"]


def test_errors_count_in_rate_and_score(desk):
    def agent(input):
        if input == "b":
            raise ValueError
        return "x"

    result = Runner(agent).run_suite(a_suite("a", "b"))

    assert (result.pass_rate, result.aggregate_score) == (0.5, 0.5)


def test_a_report_can_be_written_whatever_the_agent_gave():
    class Odd:
        def run(self, input, context=None):
            return AgentResult(output="x", raw_response=threading.Lock())

    result = Runner(Odd()).run_suite(a_suite("a"))

    assert (
        "lock"
        in json.loads(result.model_dump_json())["scenario_results"][0]["agent_result"][
            "raw_response"
        ]
    )


# Scorers.


def scored(scorer, output="", calls=(), **fields):
    scenario = Scenario(name="a", input="b", **fields)
    return get_scorer(scorer).score(scenario, AgentResult(output=output, tool_calls=list(calls)))


ADD = ToolCall(name="add", arguments={"a": 1, "b": "2"})


@pytest.mark.parametrize(
    ("fields", "passed"),
    [
        ({"output": " \n"}, False),
        ({"output": "x"}, True),
        ({"output": "The ANSWER is 4", "expected_output": "answer IS"}, True),
        ({"output": "x", "expected_output": "y"}, False),
        ({"output": "x", "expected_tools": []}, True),
        ({"output": "x", "expected_tools": [], "calls": [ADD]}, False),
        ({"output": "x", "calls": [ADD]}, True),
        ({"output": "x", "expected_tools": ["add"]}, False),
        ({"output": "x", "expected_tools": ["add"], "calls": [ADD]}, True),
        ({"output": "x", "expected_tools": ["ad"], "calls": [ADD]}, False),
        ({"output": "x", "expected_tool_args": {"add": {"a": 1}}, "calls": [ADD]}, True),
        ({"output": "x", "expected_tool_args": {"add": {"a": True}}, "calls": [ADD]}, False),
        ({"output": "x", "expected_tool_args": {"add": {"a": "1"}}, "calls": [ADD]}, False),
        ({"output": "x", "expected_tool_args": {"add": {"c": 1}}, "calls": [ADD]}, False),
        ({"output": "x", "expected_tool_args": {"add": {"a": 1}}}, False),
        (
            {
                "output": "x",
                "expected_tool_args": {"add": {"a": 1}},
                "calls": [ToolCall(name="add", arguments={"a": 9}), ADD],
            },
            True,
        ),
    ],
    ids=str,
)
def test_passfail(fields, passed):
    result = scored("passfail", **fields)

    assert (result.passed, result.score) == (passed, float(passed))


@pytest.mark.parametrize(
    ("output", "metadata", "passed"),
    [(" Four\n", {}, True), (" Four\n", {"exact_normalize": False}, False), ("fou", {}, False)],
)
def test_exact(output, metadata, passed):
    assert scored("exact", output, expected_output="four", metadata=metadata).passed is passed


def test_regex_finds_a_pattern_and_tells_what_it_found():
    result = scored("regex", "it is ORD-12.", metadata={"regex_pattern": r"ORD-\d+"})

    assert result.passed
    assert result.details == {"pattern": r"ORD-\d+", "match": "ORD-12"}
    assert not scored("regex", "it is", metadata={"regex_pattern": r"ORD-\d+"}).passed


@pytest.mark.parametrize(
    ("scorers", "fields", "error"),
    [
        (["exact"], {}, "expected_output"),
        (["passfail"], {"expected_output": ""}, "which every answer contains"),
        (["regex"], {}, "metadata.regex_pattern: found None"),
        (["regex"], {"metadata": {"regex_pattern": "("}}, "is not a regular expression"),
        (["regex"], {"metadata": {"regex_pattern": r"(?:a|aa)+$"}}, "took longer than 1 s"),
    ],
    ids=["exact", "passfail", "missing", "invalid", "slow"],
)
def test_a_scorer_without_what_it_needs_is_an_error(scorers, fields, error):
    agent = Runner(lambda input: "a" * 60 + "b")

    result = agent.run_scenario(Scenario(name="a", input="b", scorers=scorers, **fields))

    assert (result.passed, result.outcome) == (False, "metric_error")
    assert error in result.error


@pytest.mark.parametrize(
    ("scorer", "fields", "reason"),
    [
        ("exact", {}, "expected_output: 'exact' compares with it"),
        ("exact", {"expected_output": "x", "metadata": {"exact_normalize": 1}}, "true or false"),
        ("passfail", {"expected_output": ""}, "which every answer contains"),
        ("regex", {}, "metadata.regex_pattern: found None"),
        ("regex", {"metadata": {"regex_pattern": "("}}, "is not a regular expression"),
        ("regex", {"metadata": {"regex_pattern": ".*"}}, "matches every text"),
        ("similarity", {}, "'similarity' compares with it"),
    ],
)
def test_a_scorer_that_is_called_without_what_it_needs_fails_and_says_why(scorer, fields, reason):
    row = scored(scorer, "x", **fields)

    assert (row.passed, row.score, row.scorer_name) == (False, 0.0, scorer)
    assert reason in row.explanation
    assert reason in row.error


def test_expected_tools_fail_where_the_calls_of_tools_are_unknown():
    scenario = Scenario(name="a", input="b", expected_tools=[])

    row = get_scorer("passfail").score(scenario, AgentResult(output="x"))

    assert not row.passed
    assert "tool calls are unknown" in row.explanation


def test_token_usage_adds_up():
    assert TokenUsage(prompt_tokens=2, completion_tokens=3).total_tokens == 5


def test_a_score_is_a_ratio():
    with pytest.raises(ValueError, match="less than or equal to 1"):
        ScoreResult(scenario_id="1", scorer_name="s", score=1.1, passed=True)


def test_anything_with_run_is_an_adapter(desk):
    assert isinstance(desk, AgentAdapter)
    assert not isinstance("text", AgentAdapter)


# Files.


def test_a_file_loads_unchanged(scenarios):
    suite = load_scenarios(str(scenarios / "customer-support.yaml"))

    first, second = suite.scenarios
    assert (suite.name, suite.description) == ("customer-support", "What customers ask")
    assert suite.config.retries == 1
    assert (first.tags, second.timeout_seconds) == (["smoke", "api"], 5)
    assert second.expected_tool_args == {"get_order": {"order_id": "ORD-1"}}
    assert not suite.config.is_given("fail_fast")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: found an empty file; write 'scenarios:'"),
        ("- a", "1:1: found no mapping"),
        ("suite: {name: s}", "scenarios: this key is missing"),
        ("scenarios: []", "scenarios: found a list of 0; expected a list of at least 1"),
        ("scenarios:\n  - {name: a}", "2:5: scenarios[0].input: this key is missing"),
        (
            "scenarios:\n  - name: a\n    input: b\n    expected_outptu: c",
            "4:5: scenarios[0].expected_outptu: unknown key; did you mean 'expected_output'?",
        ),
        (
            "scenarios:\n  - {name: a, input: 4}",
            "2:22: scenarios[0].input: found 4; expected text; put it in quotes",
        ),
        (
            "suite: {name: s, config: {retries: -1}}\nscenarios: [{name: a, input: b}]",
            "1:36: suite.config.retries: found -1; expected at least 0",
        ),
        (
            "scenarios:\n - {name: a, input: b, timeout_seconds: 0}",
            "found 0; expected more than 0",
        ),
        (
            "scenarios:\n - {id: x, name: a, input: b}\n - {id: x, name: b, input: b}",
            "2:9: more than one scenario has the id 'x'",
        ),
        (
            "scenarios:\n - {name: a, input: b, expected_tool_args: {add: [1]}}",
            "scenarios[0].expected_tool_args.add: found a list of 1; expected a mapping",
        ),
        ("scenarios: [", "flow"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_place(text, message, tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text(text)

    with pytest.raises(ValueError, match=r"bad\.yaml") as raised:
        load_scenarios(file)
    assert isinstance(raised.value, ConfigError)
    if message != "flow":
        assert message in str(raised.value)


def test_yes_is_true_in_a_file(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("suite: {name: s, config: {fail_fast: yes}}\nscenarios: [{name: a, input: b}]")

    assert load_scenarios(file).config.fail_fast is True


def test_what_is_not_there_or_no_yaml_is_an_error_of_the_usual_kinds(tmp_path):
    (tmp_path / "s.txt").write_text("x")

    with pytest.raises(builtins.FileNotFoundError, match=r"gone\.yaml: cannot be read: no such"):
        load_scenarios(tmp_path / "gone.yaml")
    with pytest.raises(ValueError, match=r"ends in \.yaml or \.yml"):
        load_scenarios(tmp_path / "s.txt")
    with pytest.raises(NotADirectoryError, match="is not a folder"):
        load_scenarios_from_dir(tmp_path / "s.txt")


def test_other_yaml_in_a_folder_is_left_out_with_a_notice(scenarios, caplog):
    (scenarios / "agenticassure.yaml").write_text("adapter: my.Agent\n")
    (scenarios / "deep").mkdir()
    (scenarios / "deep" / "more.yml").write_text("scenarios: [{name: a, input: b}]")

    suites = load_scenarios_from_dir(scenarios)

    assert [suite.name for suite in suites] == ["customer-support", "more"]
    assert "agenticassure.yaml: left out" in caplog.text


@pytest.mark.parametrize(
    "text",
    ["- hosts: all\n", "a: 1\n---\nb: 2\n", "a: !Ref b\n", "# nothing\n"],
    ids=["list", "documents", "tag", "comment"],
)
def test_yaml_of_other_tools_in_a_folder_is_left_out_whatever_it_holds(scenarios, caplog, text):
    (scenarios / "other.yaml").write_text(text)
    (scenarios / "folder.yaml").mkdir()

    suites = load_scenarios_from_dir(scenarios)

    assert [suite.name for suite in suites] == ["customer-support"]
    assert "other.yaml: left out" in caplog.text


@pytest.mark.parametrize(
    "text",
    ["scenerios:\n  - {name: a, input: b}\n", "scenarios: [{name: a", ""],
    ids=["misspelt", "open", "empty"],
)
def test_a_suite_is_not_lost_to_a_slip(scenarios, text):
    (scenarios / "more.yaml").write_text(text)

    with pytest.raises(ValueError, match=r"more\.yaml:"):
        load_scenarios_from_dir(scenarios)


def test_a_bad_file_in_a_folder_is_an_error_and_an_empty_folder_too(scenarios, tmp_path):
    (scenarios / "bad.yaml").write_text("scenarios:\n  - {name: a}")

    with pytest.raises(ValueError, match=r"bad\.yaml:2:5"):
        load_scenarios_from_dir(scenarios)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingSelected, match="no YAML file"):
        load_scenarios_from_dir(tmp_path / "empty")


def test_an_adapter_and_a_scorer_that_raise_tell_their_file_and_line(grumpy, desk):
    def broken(message):
        return {}[message]

    scored = Runner(desk).run_scenario(grumpy).scores[1]
    answered = Runner(broken).run_scenario(grumpy)

    assert scored.raised.file.endswith("test_suite.py")
    assert scored.raised.function == "score"
    assert scored.explanation.endswith('raise RuntimeError("cannot say"))')
    assert answered.error == "KeyError: 'b'"
    assert answered.raised.code == "return {}[message]"


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("scenarios: [{name: Größe, input: b}]", encoding="utf-8-sig")

    assert load_scenarios(file).scenarios[0].name == "Größe"
    assert validate_scenario_file(file) == []


def test_validating_a_file_gives_its_problems_as_a_list(tmp_path):
    file = tmp_path / "s.yaml"
    file.write_text("scenarios:\n  - {name: a, tags: b}\n")

    problems = validate_scenario_file(str(file))

    assert problems == [
        f"Schema validation failed: {file}:2:5: scenarios[0].input: this key is missing",
        f"{file}:2:21: scenarios[0].tags: found 'b'; expected a list",
    ]
    assert "file not found" in validate_scenario_file(tmp_path / "gone.yaml")[0]
    (tmp_path / "open.yaml").write_text("scenarios: [")
    assert "open.yaml:2:1" in validate_scenario_file(tmp_path / "open.yaml")[0]


@pytest.mark.parametrize(
    ("data", "problems"),
    [
        ({"scenarios": [{"name": "a", "input": "b"}]}, []),
        ({"suite": {"name": "s"}}, ["(root): 'scenarios' is a required property"]),
        (
            {"suite": {}, "scenarios": [{"name": "a", "input": "b"}]},
            ["suite: 'name' is a required property"],
        ),
        (
            {"scenarios": [{"name": "a", "input": "b", "tag": ["x"], "tags": None}]},
            [
                "scenarios.0: Additional properties are not allowed ('tag' was unexpected)",
                "scenarios.0.tags: None is not of type 'array'",
            ],
        ),
    ],
    ids=["valid", "no scenarios", "no name", "unknown key"],
)
def test_values_can_be_compared_with_the_schema_of_files(data, problems):
    assert validate_with_schema(data) == [f"Schema: {one}" for one in problems]
    assert SUITE_SCHEMA["required"] == ["scenarios"]
    assert "null" not in json.dumps(SUITE_SCHEMA)
