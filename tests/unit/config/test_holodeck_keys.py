"""Keys of HoloDeck's format that mean something else here: they work, or the error helps."""

from contextlib import nullcontext

import pytest

from holodeck.config.checks.agent import check, check_opened_tools
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError
from holodeck.lib.backends.selector import BackendSelector
from holodeck.lib.tools.base import Tool
from holodeck.models.evaluation import EvaluationMetric


def load():
    return ConfigLoader().load_agent_yaml("agent.yaml")


def problems_of(folder, more):
    folder.agent(more)
    with pytest.raises(ConfigError) as caught:
        load()
    return str(caught.value)


def with_metric(text):
    return f"evaluations:\n  metrics:\n    - {{{text}}}\n"


@pytest.mark.parametrize(
    ("settings", "threshold"),
    [
        ("threshold: 4.0, scale: 1-5", 0.75),
        ("threshold: 4, scale: 5", 0.75),
        ("threshold: 4.2, scale: 1-5", 0.8),
        ("threshold: 5, scale: 1-5", 1.0),
        ("threshold: 0.8, scale: 0-1", 0.8),
        ("threshold: 0.8", 0.8),
        ("scale: 1-5", 0.5),
    ],
)
def test_a_threshold_on_azures_scale_is_translated(folder, settings, threshold):
    folder.agent(with_metric(f"metric: groundedness, {settings}"))

    [metric] = load().evaluations.metrics

    assert metric.threshold == threshold
    assert type(metric).model_validate(metric.model_dump()) == metric


def test_a_threshold_on_azures_scale_is_translated_in_python():
    metric = EvaluationMetric(metric="relevance", threshold=4, scale=5)

    assert metric.threshold == 0.75
    assert metric.scale is None


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("groundedness, threshold: 4.0", "found 4; expected 0 to 1; for a threshold on the scale"),
        ("groundedness, threshold: 4.0", "of 1 to 5, add 'scale: 1-5'"),
        ("groundedness, threshold: 0.8, scale: 5", "expected 1 to 5, because 'scale' is 1-5;"),
        ("groundedness, threshold: 0.8, scale: 5", "from 0 to 1 needs no 'scale'"),
        ("groundedness, scale: 10", "scale: found 10; expected '1-5', '0-1', 5 or 1"),
        ("task_adherence, scale: 1-5", "scale: task_adherence is 0 or 1; remove this key"),
        ("groundedness, threshold: 7", "threshold: found 7; expected at most 1"),
        ("bleu, threshold: 0.5, scale: 5", "scale: not supported yet (the scores of this"),
        ("bleu, custom_prompt: Rate it", "is 'type: judge'"),
        ("groundedness, custom_prompt: Rate it", "is 'type: judge'"),
    ],
)
def test_a_scale_that_cannot_be_translated_says_what_to_write(folder, metric, said):
    told = problems_of(folder, with_metric(f"metric: {metric}"))

    assert told.startswith("agent.yaml:6:")
    assert said in told


def test_a_threshold_out_of_its_scale_hides_no_other_problem_of_the_metric(folder):
    told = problems_of(folder, with_metric("metric: fluency, threshold: 4, enable: true"))

    assert "add 'scale: 1-5'" in told
    assert "enable: unknown key; did you mean 'enabled'?" in told


def test_the_threshold_that_every_response_reaches_is_an_error(folder):
    folder.agent(with_metric("metric: fluency, threshold: 1, scale: 1-5"))

    assert [one.path for one in check(load()) if one.severity == "error"] == [
        "evaluations.metrics[0].threshold"
    ]


def test_an_api_key_is_the_way_to_authenticate(folder):
    folder.write("config.yaml", "providers: {anthropic: {auth_provider: api_key, api_key: k}}")
    folder.write(
        "agent.yaml",
        "name: a\nmodel: {provider: anthropic, name: m, auth_provider: api_key}\n"
        "instructions: {inline: Be brief.}\n",
    )

    assert load().model.api_key.get_secret_value() == "k"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("oauth_token", "write 'backend: module:attribute' with an agent of the Claude Agent SDK"),
        ("bedrock", "write 'provider: litellm_proxy'"),
        ("vertex", "write 'provider: litellm_proxy'"),
        ("foundry", "write 'endpoint' and 'api_key' of the resource"),
        ("custom", "write 'endpoint' and 'api_key', such as"),
        ("token", "found 'token'; expected 'api_key'"),
    ],
)
def test_another_way_to_authenticate_says_what_to_write(folder, value, said):
    folder.write(
        "agent.yaml",
        f"name: a\nmodel: {{provider: anthropic, name: m, auth_provider: {value}}}\n"
        "instructions: {inline: Be brief.}\n",
    )

    with pytest.raises(ConfigError) as caught:
        load()

    assert caught.value.field.startswith("agent.yaml:2:")
    assert "model.auth_provider: found" in str(caught.value)
    assert said in str(caught.value)


def test_the_cache_directory_of_the_samples_is_the_cache_dir(folder):
    folder.agent("execution: {cache_directory: .cache_of_mine}")

    loader = ConfigLoader()
    agent = loader.load_agent_yaml("agent.yaml")

    assert loader.settings_of(agent, None).cache_dir == ".cache_of_mine"


def test_two_cache_directories_are_an_error(folder):
    told = problems_of(folder, "execution: {cache_directory: a, cache_dir: b}")

    assert "'cache_directory' is another name of 'cache_dir'; write one of them" in told


@pytest.mark.parametrize(
    ("name", "framework"),
    [
        ("google_adk", "Google ADK"),
        ("claude", "the Claude Agent SDK"),
        ("openai-agents", "the OpenAI Agents SDK"),
        ("LangGraph", "LangGraph"),
    ],
)
async def test_a_framework_is_no_backend_for_validate_and_for_a_run(folder, name, framework):
    folder.agent(f"backend: {name}")
    agent = load()
    said = f"for an agent of {framework}, write 'module:attribute'"

    [error] = [one for one in check(agent) if one.severity == "error"]

    assert (error.path, said in error.message) == ("backend", True)
    with pytest.raises(ConfigError, match=framework):
        await BackendSelector.select(agent)


def test_a_wrong_model_is_reported_beside_a_wrong_config_yaml(folder):
    folder.write("config.yaml", "provider: {}\n")
    folder.write(
        "agent.yaml",
        "name: a\nmodel: {provider: azure_openai, temprature: 1, auth_provider: bedrock}\n"
        "instructions: {inline: Be brief.}\n",
    )

    with pytest.raises(ConfigError) as caught:
        load()

    told = str(caught.value)
    assert "config.yaml:1:1: provider: unknown key; did you mean 'providers'?" in told
    assert "model.temprature: unknown key" in told
    assert "model.auth_provider: found 'bedrock'" in told
    assert "missing" not in told  # the config.yaml may add the name and the endpoint


@pytest.mark.parametrize(
    ("expected", "is_known"),
    [("memory", True), ("mem", True), ("memory-read_graph", True), ("disk", False)],
)
def test_expected_tools_may_name_an_mcp_server(folder, expected, is_known):
    folder.agent(f"test_cases: [{{input: hi, expected_tools: [{expected}]}}]\n")
    tool = Tool("read_graph", "Reads.", {}, print, source="mcp", server="memory")

    with nullcontext() if is_known else pytest.raises(ConfigError, match="unknown tool 'disk'"):
        check_opened_tools(load(), [tool])
