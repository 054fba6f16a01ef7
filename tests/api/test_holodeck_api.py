"""Python code that was written for HoloDeck: its names, arguments and small habits work here."""

from types import SimpleNamespace
from unittest.mock import Mock  # as tests for HoloDeck use it

import pytest

from holodeck.config.loader import ConfigLoader, load_agent_with_config
from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.azure_ai import GroundednessEvaluator, ModelConfig
from holodeck.lib.evaluators.deepeval import (
    DeepEvalError,
    DeepEvalModelConfig,
    FaithfulnessEvaluator,
    ProviderNotSupportedError,
)
from holodeck.lib.evaluators.nlp_metrics import BLEUEvaluator, NLPMetricsError
from holodeck.lib.test_runner.agent_factory import (
    DEFAULT_TIMEOUT_SECONDS,
    AgentExecutionResult,
    AgentFactory,
)
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.progress import ProgressIndicator
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.evaluation import EvaluationConfig, EvaluationMetric, GEvalMetric, RAGMetric
from holodeck.models.llm import ProviderEnum
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import ProcessedFileInput, TestResult

LOCAL = {"provider": "local"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with an agent.yaml of one case."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.yaml").write_text(
        "name: greeter\nmodel: {provider: local}\ninstructions: {inline: hi}\n"
        "evaluations: {metrics: [{metric: contains, value: hello}]}\n"
        "test_cases: [{input: greet me}]\n"
    )
    return tmp_path


# Models


@pytest.mark.parametrize(
    ("passed", "errors", "outcome"),
    [
        (True, [], Outcome.PASSED),
        (False, [], Outcome.FAILED),
        (False, ["timeout"], Outcome.AGENT_ERROR),
    ],
)
def test_a_result_without_an_outcome_derives_it(passed, errors, outcome):
    result = TestResult(
        test_input="hi", passed=passed, errors=errors, execution_time_ms=1, timestamp="now"
    )

    assert result.outcome is outcome


def test_metrics_are_made_by_their_names_and_need_no_type():
    config = EvaluationConfig(
        metrics=[
            EvaluationMetric(metric="bleu", threshold=0.5),
            EvaluationMetric(metric="groundedness", model={"provider": "openai", "name": "x"}),
            EvaluationMetric(metric="checks:polite"),
            GEvalMetric(name="polite", criteria="Be polite."),
            RAGMetric(metric_type="faithfulness"),
        ]
    )

    names = [type(metric).__name__ for metric in config.metrics]
    assert names == ["BLEUMetric", "AzureMetric", "CustomMetric", "GEvalMetric", "RAGMetric"]
    assert config.metrics[0].threshold == 0.5


def test_a_metric_of_an_unknown_name_is_an_error_at_once():
    with pytest.raises(ConfigError, match="unknown metric 'bleo'; did you mean 'bleu'"):
        EvaluationMetric(metric="bleo")


def test_yaml_still_needs_the_type_that_selects_a_metric():
    schema = GEvalMetric.model_json_schema()

    assert "type" in schema["required"]
    assert "default" not in schema["properties"]["type"]


# Configuration


def test_the_loaders_take_the_documented_names_of_parameters(folder):
    agent, settings, loader = load_agent_with_config(agent_config_path="agent.yaml")

    assert loader.load_agent_yaml(file_path="agent.yaml").name == agent.name == "greeter"
    assert loader.parse_yaml(file_path="agent.yaml")["name"] == "greeter"
    assert settings.llm_timeout == 60


@pytest.mark.parametrize("text", ["", "# nothing yet\n"])
def test_an_empty_shared_configuration_is_like_none(folder, text):
    (folder / "config.yaml").write_text(text)

    assert ConfigLoader().load_agent_yaml("agent.yaml").name == "greeter"


def test_both_spellings_of_a_shared_configuration_are_a_warning(folder, caplog):
    (folder / "config.yaml").write_text("execution: {llm_timeout: 1}\n")
    (folder / "config.yml").write_text("execution: {llm_timeout: 2}\n")

    settings = load_agent_with_config("agent.yaml")[1]

    assert settings.llm_timeout == 2
    assert "config.yml; ignoring config.yaml in the same folder" in caplog.text


class Doubling(ConfigLoader):
    """Doubles the time limit, as a team's own loader may."""

    def resolve_execution_config(
        self, cli_config, yaml_config, project_config, user_config, defaults
    ):
        found = super().resolve_execution_config(
            cli_config, yaml_config, project_config, user_config, defaults
        )
        return found.model_copy(update={"llm_timeout": found.llm_timeout * 2})


class Loader:
    """Has the methods of HoloDeck's loader, and nothing else."""

    def load_agent_yaml(self, file_path):
        return ConfigLoader().load_agent_yaml(file_path)

    def load_project_config(self, project_dir):
        return None

    def load_global_config(self):
        return None

    def resolve_execution_config(
        self, cli_config, yaml_config, project_config, user_config, defaults
    ):
        return ExecutionConfig(llm_timeout=7)


def mocked_loader():
    loader = Mock(spec=ConfigLoader)
    loader.load_agent_yaml.return_value = ConfigLoader().load_agent_yaml("agent.yaml")
    loader.resolve_execution_config.return_value = ExecutionConfig(llm_timeout=7)
    return loader


@pytest.mark.parametrize("loader", [Loader, mocked_loader])
async def test_a_loader_is_whatever_has_the_methods_of_one(folder, loader):
    executor = TestExecutor("agent.yaml", config_loader=loader(), backend=lambda _: "hi")

    report = await executor.execute_tests()
    await executor.shutdown()

    assert (executor.config.llm_timeout, executor.config.max_retries) == (7, 5)
    assert report.agent_name == "greeter"


def test_progress_is_counted_of_whatever_has_a_verdict():
    result = Mock(spec=TestResult)
    result.test_name, result.passed, result.execution_time_ms = "greets", False, 5
    progress = ProgressIndicator(2)

    progress.update(SimpleNamespace(test_name="greets", passed=True))
    progress.update(result)

    assert (progress.passed, progress.failed) == (1, 1)
    assert progress.get_progress_line() == "[Test 2/2] FAIL greets"
    assert "Test Results: 1/2 passed" in progress.get_summary()


def test_an_overridden_resolve_execution_config_is_used(folder):
    executor = TestExecutor("agent.yaml", config_loader=Doubling())

    assert executor.config.llm_timeout == 120


def test_a_time_limit_of_none_means_no_limit(folder):
    unlimited = ExecutionConfig(llm_timeout=None)

    assert TestExecutor("agent.yaml", unlimited).config.llm_timeout is None
    assert TestExecutor("agent.yaml", ExecutionConfig()).config.llm_timeout == 60


def test_a_factory_has_no_limit_if_none_is_given(folder):
    agent = Agent(
        name="greeter",
        model={"provider": "openai", "name": "x", "api_key": "not-a-real-key"},
        instructions={"inline": "hi"},
    )

    assert AgentFactory(agent).timeout == DEFAULT_TIMEOUT_SECONDS
    assert AgentFactory(agent, execution_config=ExecutionConfig()).timeout == 60
    assert AgentFactory(agent, execution_config=ExecutionConfig(llm_timeout=None)).timeout is None


# Injected parts


class Conversation:
    def __init__(self):
        self.history = []

    async def invoke(self, user_input):
        self.history.append(user_input)
        return AgentExecutionResult(
            tool_calls=[{"name": "look_up", "arguments": {}}],
            tool_results=[{"name": "look_up", "result": 3}],
            chat_history=self.history,
            response=f"hello, {len(self.history)}",
        )


class Factory:
    """All that HoloDeck asks of an injected factory."""

    def __init__(self):
        self.runs, self.is_shut_down = 0, False

    async def create_thread_run(self):
        self.runs += 1
        return Conversation()

    async def shutdown(self):
        self.is_shut_down = True


async def test_a_factory_with_only_the_two_documented_methods_runs_the_cases(folder):
    factory = Factory()
    agent = ConfigLoader().load_agent_yaml("agent.yaml")
    cases = [
        TestCaseModel(input="one", expected_tools=["look_up"]),
        TestCaseModel(turns=[{"input": "two"}, {"input": "three"}], forbidden_tools=["pay"]),
    ]
    executor = TestExecutor(
        "agent.yaml",
        agent_config=agent.model_copy(update={"test_cases": cases}),
        agent_factory=factory,
    )

    report = await executor.execute_tests()
    await executor.shutdown()

    assert [result.passed for result in report.results] == [True, True]
    assert report.results[1].agent_response == "hello, 2"
    assert factory.runs == 2
    assert factory.is_shut_down


class OwnConversations(AgentFactory):
    """A subclass whose conversations are its own."""

    def __init__(self, agent):
        super().__init__(agent)
        self.opened = []

    async def create_thread_run(self):
        self.opened.append(Conversation())
        return self.opened[-1]


async def test_a_subclass_of_the_factory_opens_its_own_conversations(folder):
    agent = ConfigLoader().load_agent_yaml("agent.yaml")
    model = {"provider": "openai", "name": "x", "api_key": "not-a-real-key"}
    factory = OwnConversations(Agent(name="a", model=model, instructions={"inline": "hi"}))

    executor = TestExecutor("agent.yaml", agent_config=agent, agent_factory=factory)
    report = await executor.execute_tests()

    assert report.results[0].passed
    assert len(factory.opened) == 1


class Upper:
    """All that HoloDeck asks of an injected file processor."""

    def process_file(self, file_input):
        if file_input.path == "broken.txt":
            raise OSError("no such drive")
        return ProcessedFileInput(original=file_input, markdown_content="READ BY UPPER")


@pytest.mark.parametrize(("name", "passed"), [("fine.txt", True), ("broken.txt", False)])
async def test_a_processor_with_only_process_file_reads_the_files(folder, name, passed):
    (folder / name).write_text("text")
    agent = ConfigLoader().load_agent_yaml("agent.yaml")
    case = TestCaseModel(
        input="read it",
        files=[{"path": name, "type": "text"}],
        evaluations=[{"metric": "contains", "value": "hello"}],
    )

    def answer(message: str) -> str:
        return "hello" if "READ BY UPPER" in message else "no file"

    executor = TestExecutor(
        "agent.yaml",
        agent_config=agent.model_copy(update={"test_cases": [case]}),
        file_processor=Upper(),
        backend=answer,
    )

    [result] = (await executor.execute_tests()).results

    assert result.passed is passed
    assert result.errors == ([] if passed else ["File error: broken.txt: OSError: no such drive"])


# Evaluators


def test_a_judge_model_may_be_given_under_the_names_of_the_original():
    azure = ModelConfig(azure_endpoint="https://x", api_key="k", azure_deployment="gpt")
    ollama = DeepEvalModelConfig()
    deployed = DeepEvalModelConfig(
        provider=ProviderEnum.AZURE_OPENAI,
        model_name="gpt",
        deployment_name="mine",
        endpoint="https://x",
        api_key="k",
    )

    assert GroundednessEvaluator(model_config=azure).judge.name == "azure_openai/gpt"
    assert FaithfulnessEvaluator(model_config=ollama).judge.name == "ollama/gpt-oss:20b"
    assert (deployed.model_name, deployed.temperature) == ("mine", 0.0)


def test_a_judge_model_of_an_unknown_provider_is_an_error():
    with pytest.raises(ProviderNotSupportedError, match="'openia'; did you mean 'openai'"):
        DeepEvalModelConfig(provider="openia", model_name="x")


@pytest.mark.parametrize(
    ("evaluator", "error"),
    [
        (BLEUEvaluator(), NLPMetricsError),
        (FaithfulnessEvaluator(model_config=DeepEvalModelConfig()), DeepEvalError),
    ],
)
async def test_a_metric_that_cannot_be_computed_raises_the_error_of_its_family(evaluator, error):
    with pytest.raises(error, match="which is missing") as caught:
        await evaluator.evaluate(response="x", actual_output="x")

    assert isinstance(caught.value, EvaluationError)
