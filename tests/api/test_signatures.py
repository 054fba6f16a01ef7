"""The documented signatures: names, order and defaults of parameters, kinds of functions."""

import dataclasses
import inspect

import pytest

from holodeck.lib.backends.base import AgentBackend, AgentSession, ExecutionResult
from holodeck.lib.backends.selector import BackendSelector
from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.file_processor import FileProcessor
from holodeck.lib.test_runner.agent_factory import (
    AgentExecutionResult,
    AgentFactory,
    AgentThreadRun,
)
from holodeck.lib.test_runner.eval_kwargs_builder import (
    EvalKwargsBuilder,
    build_retrieval_context_from_tools,
)
from holodeck.lib.test_runner.executor import (
    RAG_EVALUATOR_MAP,
    RAGEvaluatorConstructor,
    TestExecutor,
    validate_tool_calls,
)
from holodeck.lib.test_runner.options import NO_OPTIONS
from holodeck.lib.test_runner.progress import ProgressIndicator
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.lib.ui import ANSIColors, SpinnerMixin, colorize, is_tty
from holodeck.models.evaluation import RAGMetricType

NEEDED = inspect.Parameter.empty

EXECUTOR = {
    "agent_config_path": NEEDED,
    "execution_config": None,
    "file_processor": None,
    "agent_factory": None,
    "evaluators": None,
    "config_loader": None,
    "progress_callback": None,
    "on_test_start": None,
    "force_ingest": False,
    "agent_config": None,
    "resolved_execution_config": None,
    "backend": None,
    "allow_side_effects": False,
    "options": NO_OPTIONS,
}
FACTORY = {
    "agent_config": NEEDED,
    "max_retries": 3,
    "retry_delay": 2.0,
    "retry_exponential_base": 2.0,
    "force_ingest": False,
    "execution_config": None,
}
THREAD_RUN = {
    "agent": NEEDED,
    "kernel": NEEDED,
    "kernel_arguments": NEEDED,
    "timeout": None,
    "max_retries": 3,
    "retry_delay": 2.0,
    "retry_exponential_base": 2.0,
    "observability_enabled": False,
    "tool_filter_manager": None,
}
KWARGS_BUILDER = {
    "agent_response": NEEDED,
    "input_query": None,
    "ground_truth": None,
    "file_content": None,
    "retrieval_context": None,
}


@pytest.mark.parametrize(
    ("function", "documented"),
    [
        (TestExecutor, EXECUTOR),
        (TestExecutor.execute_tests, {}),
        (TestExecutor.shutdown, {}),
        (validate_tool_calls, {"actual": NEEDED, "expected": NEEDED}),
        (AgentFactory, FACTORY),
        (AgentFactory.create_thread_run, {}),
        (AgentFactory.shutdown, {}),
        (AgentThreadRun, THREAD_RUN),
        (AgentThreadRun.invoke, {"user_input": NEEDED}),
        (ProgressIndicator.update, {"result": NEEDED}),
        (ProgressIndicator.get_progress_line, {}),
        (ProgressIndicator.get_spinner_line, {}),
        (ProgressIndicator.get_summary, {}),
        (EvalKwargsBuilder, KWARGS_BUILDER),
        (EvalKwargsBuilder.build_for, {"evaluator": NEEDED}),
        (
            build_retrieval_context_from_tools,
            {"tool_results": NEEDED, "retrieval_tool_names": NEEDED},
        ),
        (colorize, {"text": NEEDED, "color": NEEDED, "force_tty": None}),
        (is_tty, {"stream": None}),
        (AgentBackend.initialize, {}),
        (AgentBackend.invoke_once, {"message": NEEDED, "context": None}),
        (AgentBackend.teardown, {}),
        (AgentSession.send, {"message": NEEDED}),
        (AgentSession.send_streaming, {"message": NEEDED}),
        (AgentSession.close, {}),
        (BaseEvaluator.get_param_spec, {}),
        (ParamSpec.uses_deepeval_params, {}),
    ],
    ids=lambda one: getattr(one, "__qualname__", ""),
)
def test_parameters_are_as_documented(function, documented):
    assert parameters(function) == documented


@pytest.mark.parametrize(
    ("function", "documented"),
    [
        (
            BackendSelector.select,
            {
                "agent": NEEDED,
                "tool_instances": None,
                "mode": "test",
                "allow_side_effects": False,
            },
        ),
        (
            FileProcessor,
            {
                "cache_dir": None,
                "download_timeout_ms": 30_000,
                "max_retries": 3,
                "processing_timeout_ms": 30_000,
            },
        ),
        (FileProcessor.from_execution_config, {"config": NEEDED}),
        (FileProcessor.process_file, {"file_input": NEEDED}),
        (generate_markdown_report, {"report": NEEDED}),
        (AgentBackend.create_session, {}),
        (ProgressIndicator, {"total_tests": NEEDED, "quiet": False, "verbose": False}),
        (ProgressIndicator.start_test, {"test_name": NEEDED}),
        (SpinnerMixin.get_spinner_char, {}),
    ],
    ids=lambda one: getattr(one, "__qualname__", ""),
)
def test_what_was_added_comes_after_what_is_documented_and_may_be_left_out(function, documented):
    found = parameters(function)

    assert list(found.items())[: len(documented)] == list(documented.items())
    assert NEEDED not in list(found.values())[len(documented) :]


@pytest.mark.parametrize(
    "function",
    [
        TestExecutor.execute_tests,
        TestExecutor.shutdown,
        AgentFactory.create_thread_run,
        AgentFactory.shutdown,
        AgentThreadRun.invoke,
        BackendSelector.select,
        BaseEvaluator.evaluate,
    ],
    ids=lambda one: one.__qualname__,
)
def test_what_is_awaited_is_async(function):
    assert inspect.iscoroutinefunction(function)


@pytest.mark.parametrize(
    ("result", "documented"),
    [
        (
            AgentExecutionResult,
            ["tool_calls", "tool_results", "chat_history", "token_usage", "response"],
        ),
        (
            ExecutionResult,
            [
                "response", "tool_calls", "tool_results", "token_usage", "structured_output",
                "num_turns", "is_error", "error_reason",
            ],
        ),
    ],
)  # fmt: skip
def test_results_have_the_documented_fields_first(result, documented):
    names = [field.name for field in dataclasses.fields(result)]

    assert names[: len(documented)] == documented


def test_a_result_of_an_agent_needs_calls_results_and_history_only():
    result = AgentExecutionResult([], [], None)

    assert (result.token_usage, result.response) == (None, "")


def test_every_rag_metric_has_a_constructor_of_the_common_shape():
    assert list(RAG_EVALUATOR_MAP) == list(RAGMetricType)
    wanted = parameters(RAGEvaluatorConstructor.__call__)
    for make in RAG_EVALUATOR_MAP.values():
        taken = parameters(make.__init__)
        assert {name: taken[name] for name in wanted} == wanted


def test_a_spec_can_be_written_with_its_documented_names():
    spec = ParamSpec(
        required=frozenset({EvalParam.ACTUAL_OUTPUT}),
        optional=frozenset({EvalParam.INPUT}),
        uses_context=False,
        uses_retrieval_context=True,
    )

    assert spec.uses_deepeval_params()


def test_the_ui_has_its_colours_and_braille_dots():
    assert {"GREEN", "RED", "YELLOW", "RESET"} <= set(vars(ANSIColors))
    assert "".join(SpinnerMixin.SPINNER_CHARS) == "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def test_protocols_can_be_asked_for_at_run_time():
    assert not isinstance(object(), AgentBackend)
    assert not isinstance(object(), AgentSession)


def parameters(function):
    """Name → default of what a caller may pass by position, without `self`."""
    positional = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = inspect.signature(function).parameters
    if "EvalKwargsBuilder" in getattr(function, "__qualname__", ""):  # our own, by name only
        positional = positional[:1]
    return {
        name: one.default
        for name, one in found.items()
        if name != "self" and one.kind in positional
    }
