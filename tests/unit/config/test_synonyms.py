"""The keys, metrics and commands of other tools lead to ours."""

import pytest

from holodeck.cli.main import COMMANDS
from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError
from holodeck.lib.support import synonyms
from holodeck.models.agent import Agent, AgentFile, SuiteFile, WrittenCase
from holodeck.models.backend import (
    HttpAnswerPaths,
    HttpBackendConfig,
    PassagePaths,
    ToolCallPaths,
)
from holodeck.models.cases.conversation import ScriptMessage, Simulation, StepModel
from holodeck.models.cases.matchers import MATCHER_KEYS
from holodeck.models.config import ExecutionConfig
from holodeck.models.evaluation import EvaluationConfig, GEvalMetric, RAGMetric
from holodeck.models.llm import LLMProvider
from holodeck.models.metrics.base import metric_classes, metric_names, metric_types
from holodeck.models.test_case import ExpectedTool
from holodeck.models.token_usage import Price

CASE = "test_cases:\n  - input: hi\n    "


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("tests: []", "tests: unknown key; did you mean 'test_cases'?"),
        ("url: http://127.0.0.1", "url: unknown key; did you mean 'backend'?"),
        ("prices: {models: {m: {prompt: 1, completion: 2}}}", "prompt: {} 'input'?"),
        ("prices: {models: {m: {prompt: 1, completion: 2}}}", "completion: {} 'output'?"),
        ("test_cases: [{prompt: hi}]", "test_cases[0].prompt: {} 'input'?"),
        ("test_cases: [{input: hi, expected_output: x}]", "expected_output: {} 'ground_truth'?"),
        ("test_cases: [{input: hi, expectedOutput: x}]", "expectedOutput: {} 'ground_truth'?"),
        ("test_cases: [{input: hi, tools: [a]}]", "tools: {} 'expected_tools'?"),
        ("test_cases: [{input: hi, assert: []}]", "assert: {} 'evaluations'?"),
        ("test_cases: [{input: hi, vars: {a: b}}]", "vars: {} 'parameters'?"),
        ("test_cases: [{turns: [{user: hi}]}]", "turns[0].user: {} 'input'?"),
        ("test_cases: [{script: [{input: hi}, agent]}]", "script[0].input: {} 'user'?"),
        (CASE + "expected_tools: [{name: a, arguments: {}}]", "arguments: {} 'args'?"),
        (CASE + "evaluations: [{metric: equals}]", "'equals'; did you mean 'metric: exact_match'?"),
        (CASE + "evaluations: [{type: contains}]", "did you mean 'metric: contains'?"),
        (CASE + "evaluations: [{metric: g-eval}]", "did you mean 'type: geval'?"),
        (
            CASE + "evaluations: [{metric: AnswerRelevancyMetric}]",
            "did you mean 'type: rag, metric_type: answer_relevancy'?",
        ),
    ],
)
def test_the_word_of_another_tool_leads_to_ours_before_one_that_is_spelled_like_it(
    folder, written, message
):
    folder.agent(written)

    with pytest.raises(ConfigError) as caught:
        ConfigLoader().load_agent_yaml("agent.yaml")

    assert message.format("unknown key; did you mean") in str(caught.value)
    assert "this key is missing" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "hint"),
    [("{contains: x}", "; did you mean 'regex'? known"), ("{type: integer}", "; known: equals,")],
)
def test_a_condition_of_another_tool_for_an_argument_is_not_compared_in_silence(
    folder, value, hint
):
    tools = f"expected_tools: [{{name: a, args: {{x: {value}}}}}]"
    folder.write("agent.yaml", f'name: x\nbackend: "m:f"\ntest_cases: [{{input: hi, {tools}}}]\n')
    folder.write("m.py", "def f(message): ...\n")

    [finding] = check(ConfigLoader().load_agent_yaml("agent.yaml"))

    assert (finding.severity, finding.path) == ("warning", "test_cases[0].expected_tools[0].args.x")
    assert f"is no condition{hint}" in finding.message


@pytest.mark.parametrize("value", ["{number: 3, absolute_tolerance: 1}", "{regex: a, y: 1}"])
def test_a_condition_beside_another_key_is_an_error(folder, value):
    tools = f"expected_tools: [{{name: a, args: {{x: {value}}}}}]"
    folder.write("agent.yaml", f'name: x\nbackend: "m:f"\ntest_cases: [{{input: hi, {tools}}}]\n')
    folder.write("m.py", "def f(message): ...\n")

    [finding] = check(ConfigLoader().load_agent_yaml("agent.yaml"))

    assert finding.severity == "error"
    assert "is a condition, and" in finding.message


@pytest.mark.parametrize(
    "value", ["{equals: 3}", "{regex: '[0-9]+'}", "{equals: {y: 1}}", "{y: 1}"]
)
def test_a_condition_of_holodeck_for_an_argument_is_no_warning(folder, value):
    tools = f"expected_tools: [{{name: a, args: {{x: {value}}}}}]"
    folder.write("agent.yaml", f'name: x\nbackend: "m:f"\ntest_cases: [{{input: hi, {tools}}}]\n')
    folder.write("m.py", "def f(message): ...\n")

    assert check(ConfigLoader().load_agent_yaml("agent.yaml")) == []


def test_what_synonyms_lead_to_exists():
    kinds = (
        *(Agent, AgentFile, SuiteFile, WrittenCase, StepModel, ScriptMessage, Simulation),
        *(ExpectedTool, EvaluationConfig, GEvalMetric, *metric_classes(), LLMProvider, Price),
        *(HttpBackendConfig, HttpAnswerPaths, PassagePaths, ToolCallPaths, ExecutionConfig),
    )
    known = [{field.alias or name for name, field in kind.model_fields.items()} for kind in kinds]
    targets = [(marks, key) for marks, table in synonyms.KEYS for key in table]

    missing = [key for marks, key in targets if not any(marks | {key} <= keys for keys in known)]
    commands = {name.partition(" ")[0] for name in synonyms.COMMANDS}

    assert missing == []
    assert set(synonyms.METRICS) <= {*metric_names(), *metric_types(), *RAGMetric.names()}
    assert set(synonyms.MATCHERS) == set(MATCHER_KEYS)
    assert commands <= set(COMMANDS)
