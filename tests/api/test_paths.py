"""The documented import paths: each name is there, and it is the one thing of that name."""

from importlib import import_module

import pytest

PATHS = {
    "holodeck": ["ConfigError", "ConfigLoader", "HoloDeckError", "ValidationError", "__version__"],
    "holodeck.cli.main": ["main"],
    "holodeck.config.defaults": ["DEFAULT_EXECUTION_CONFIG"],
    "holodeck.config.loader": ["ConfigLoader", "load_agent_with_config"],
    "holodeck.lib.backends.base": [
        "AgentBackend", "AgentSession", "BackendError", "BackendInitError", "BackendSessionError",
        "BackendTimeoutError", "ExecutionResult",
    ],
    "holodeck.lib.backends.selector": ["BackendSelector"],
    "holodeck.lib.errors": [
        "AgentFactoryError", "AgentInitializationError", "BackendError", "BackendInitError",
        "BackendSessionError", "BackendTimeoutError", "ConfigError", "EvaluationError",
        "ExecutionError", "FileNotFoundError", "HoloDeckError", "ValidationError",
    ],
    "holodeck.lib.evaluators.azure_ai": [
        "CoherenceEvaluator",
        "FluencyEvaluator",
        "GroundednessEvaluator",
        "ModelConfig",
        "RelevanceEvaluator",
        "SimilarityEvaluator",
    ],
    "holodeck.lib.evaluators.base": ["BaseEvaluator", "EvaluationError", "RetryConfig"],
    "holodeck.lib.evaluators.deepeval": [
        "AnswerRelevancyEvaluator", "ContextualPrecisionEvaluator", "ContextualRecallEvaluator",
        "ContextualRelevancyEvaluator", "DEFAULT_MODEL_CONFIG", "DeepEvalBaseEvaluator",
        "DeepEvalError", "DeepEvalModelConfig", "FaithfulnessEvaluator", "GEvalEvaluator",
        "ProviderNotSupportedError",
    ],
    "holodeck.lib.evaluators.deepeval.answer_relevancy": ["AnswerRelevancyEvaluator"],
    "holodeck.lib.evaluators.deepeval.base": ["DeepEvalBaseEvaluator"],
    "holodeck.lib.evaluators.deepeval.config": ["DEFAULT_MODEL_CONFIG", "DeepEvalModelConfig"],
    "holodeck.lib.evaluators.deepeval.contextual_precision": ["ContextualPrecisionEvaluator"],
    "holodeck.lib.evaluators.deepeval.contextual_recall": ["ContextualRecallEvaluator"],
    "holodeck.lib.evaluators.deepeval.contextual_relevancy": ["ContextualRelevancyEvaluator"],
    "holodeck.lib.evaluators.deepeval.errors": ["DeepEvalError", "ProviderNotSupportedError"],
    "holodeck.lib.evaluators.deepeval.faithfulness": ["FaithfulnessEvaluator"],
    "holodeck.lib.evaluators.deepeval.geval": ["GEvalEvaluator"],
    "holodeck.lib.evaluators.nlp_metrics": [
        "BLEUEvaluator", "METEOREvaluator", "NLPMetricsError", "ROUGEEvaluator",
    ],
    "holodeck.lib.evaluators.param_spec": ["EvalParam", "ParamSpec"],
    "holodeck.lib.file_processor": ["FileProcessor"],
    "holodeck.lib.observability": [
        "ObservabilityContext", "get_tracer", "initialize_observability", "shutdown_observability",
    ],
    "holodeck.lib.test_runner.agent_factory": [
        "AgentExecutionResult", "AgentFactory", "AgentThreadRun",
    ],
    "holodeck.lib.test_runner.eval_kwargs_builder": [
        "EvalKwargsBuilder", "build_retrieval_context_from_tools",
    ],
    "holodeck.lib.test_runner.executor": [
        "RAG_EVALUATOR_MAP", "RAGEvaluatorConstructor", "TestExecutor", "validate_tool_calls",
    ],
    "holodeck.lib.test_runner.progress": ["ProgressIndicator"],
    "holodeck.lib.test_runner.reporter": ["generate_markdown_report"],
    "holodeck.lib.ui": ["ANSIColors", "SpinnerMixin", "colorize", "is_tty"],
    "holodeck.lib.ui.spinner": ["SpinnerMixin"],
    "holodeck.models.agent": ["Agent", "Instructions"],
    "holodeck.models.config": ["ExecutionConfig", "GlobalConfig"],
    "holodeck.models.evaluation": [
        "EvaluationConfig", "EvaluationMetric", "GEvalMetric", "RAGMetric", "RAGMetricType",
    ],
    "holodeck.models.llm": ["LLMProvider", "ProviderEnum"],
    "holodeck.models.observability": ["ObservabilityConfig"],
    "holodeck.models.test_case": ["FileInput", "TestCase", "TestCaseModel"],
    "holodeck.models.test_result": [
        "MetricResult", "ProcessedFileInput", "ReportSummary", "TestReport", "TestResult",
        "ToolInvocation",
    ],
    "holodeck.models.token_usage": ["TokenUsage"],
    "holodeck.models.tool": ["FunctionTool", "ToolUnion"],
}  # fmt: skip


def test_the_documented_names_are_where_they_are_documented():
    missing = [
        f"{module}:{name}"
        for module, names in PATHS.items()
        for name in names
        if not hasattr(import_module(module), name)
    ]

    assert missing == []


@pytest.mark.parametrize(
    ("path", "home"),
    [
        ("holodeck:ConfigLoader", "holodeck.config.loader:ConfigLoader"),
        ("holodeck:TestExecutor", "holodeck.lib.test_runner.executor:TestExecutor"),
        ("holodeck.lib.errors:ConfigError", "holodeck.errors:ConfigError"),
        ("holodeck.lib.evaluators.base:EvaluationError", "holodeck.errors:EvaluationError"),
        ("holodeck.lib.file_processor:FileProcessor", "holodeck.lib.file_processor:FileProcessor"),
        ("holodeck.models.test_case:TestCase", "holodeck.models.test_case:TestCaseModel"),
    ],
)
def test_a_name_with_two_paths_is_one_thing(path, home):
    assert named(path) is named(home)


def test_every_public_name_of_the_package_loads():
    import holodeck

    assert all(getattr(holodeck, name) for name in holodeck.__all__)


def test_a_name_that_the_package_does_not_have_is_an_attribute_error():
    import holodeck

    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        holodeck.Nothing  # noqa: B018


def test_the_documented_errors_form_one_tree():
    from holodeck.lib import errors

    assert issubclass(errors.AgentFactoryError, errors.BackendError)
    assert issubclass(errors.BackendTimeoutError, errors.BackendError)
    assert all(issubclass(getattr(errors, name), errors.HoloDeckError) for name in errors.__all__)


def named(path):
    module, _, attribute = path.partition(":")
    return getattr(import_module(module), attribute)
