"""What an import costs: nothing heavy, nothing optional, no matter which module is imported."""

import subprocess
import sys

import pytest

from fakes import clean_environment

HEAVY = (
    "semantic_kernel", "openai", "anthropic", "ollama", "nltk", "sacrebleu", "rouge_score",
    "xllamacpp", "deepeval", "azure", "jsonschema", "opentelemetry.sdk", "markitdown", "httpx",
    "grpc", "prometheus_client",
    "httpx2", "numpy", "pandas", "chromadb", "psycopg", "qdrant_client", "s3fs", "adlfs",
    "opensearchpy", "gguf",
)  # fmt: skip
"""Libraries that only those who use them may pay for."""

SELDOM = (
    "holodeck.config.cases.suites", "holodeck.config.cases.data_files", "holodeck.config.history",
    "holodeck.config.cases.parameters", "holodeck.config.check_history", "holodeck.models.suite",
    "holodeck.lib.llm.client", "holodeck.lib.conversation.engine",
    "holodeck.lib.conversation.events", "holodeck.lib.conversation.types",
    "holodeck.lib.evaluators.grader_judge", "holodeck.lib.evaluators.nlp_metrics",
    "holodeck.lib.selection.select_cases",
    "holodeck.lib.records.run_store", "holodeck.lib.test_runner.events",
    "holodeck.lib.files", "holodeck.lib.remote_files", "holodeck.models.attachments",
    "holodeck.lib.test_runner.criteria", "holodeck.lib.test_runner.conversation",
    "holodeck.lib.knowledge",
    "holodeck.lib.test_runner.repeats", "holodeck.lib.test_runner.turns_to_done",
    "holodeck.lib.test_runner.worker_lane", "holodeck.lib.test_runner.workers",
    "holodeck.lib.test_runner.trace_checks", "holodeck.lib.test_runner.traced_turns",
    "holodeck.lib.traces.agent_traces", "holodeck.config.check_traces", "opentelemetry.trace",
    "holodeck.models.observability", "holodeck.models.spans", "holodeck.models.trace_checks",
    "holodeck.models.tool_filtering", "holodeck.models.judged_metrics",
    "holodeck.lib.observability.sdk", "holodeck.lib.observability.meters",
    "holodeck.lib.observability.log_bridge", "holodeck.lib.observability.delivery",
    "holodeck.lib.evaluators.deepeval", "holodeck.lib.backends.frameworks.semantic_kernel_agents",
    "importlib.metadata", "pydantic.plugin._loader",
)  # fmt: skip
"""Modules that only some cases and flags need."""
UNWRITTEN = (
    "RegexMetric", "ExpectedTool", "StepModel", "Simulation",
    "CriterionSettings", "EarlierMessage", "FileInput", "PriceTable", "TurnResult", "Repeats",
    "VectorStoreSettings",
)  # fmt: skip
"""Models of which an ordinary run has no value."""

AN_ORDINARY_RUN = """
import sys
from holodeck.cli.main import run
from holodeck.models.base import Model

def models(root):
    for one in root.__subclasses__():
        yield one
        yield from models(one)

assert run(["test", "agent.yaml", "--quiet"]) == 0
named = [one for one in models(Model) if one.__name__ in {unwritten}]
assert len({{one.__name__ for one in named}}) == len({unwritten}), named
print(*[name for name in {seldom} if name in sys.modules], file=sys.stderr)
print(*[one.__name__ for one in named if one.__pydantic_complete__], file=sys.stderr)
"""
AGENT = """
name: echo
backend: echo:answer
evaluations: {metrics: [{metric: contains}, {metric: equality}]}
test_cases: [{input: hello, ground_truth: hello}]
"""

TOLD = "print(*[name for name in {heavy} if name in sys.modules])"

EVERY_MODULE = """
import importlib, pkgutil, sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {heavy}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
import holodeck
doors = "holodeck.lib.backends.semantic_kernel"
names = [one.name for one in pkgutil.walk_packages(
    holodeck.__path__, "holodeck.", onerror=lambda name: None)]
names = [one for one in names if not one.startswith(doors) and one != "holodeck.__main__"]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


@pytest.mark.parametrize(
    "module",
    [
        "holodeck",
        "holodeck.config.loader",
        "holodeck.lib.evaluators.nlp_metrics",
        "holodeck.lib.knowledge.stores.collection",
        "holodeck.lib.test_runner.agent_factory",
        "holodeck.lib.test_runner.executor",
        "holodeck.suite.adapters.langchain",
        "holodeck.suite.adapters.openai",
        "holodeck.suite.loader",
        "holodeck.suite.reports",
        "holodeck.suite.runner",
    ],
)
def test_importing_the_runner_imports_no_provider_and_no_optional_library(module, tmp_path):
    program = f"import sys, {module}; {TOLD.format(heavy=HEAVY)}"

    assert run(program, tmp_path).split() == []


def test_cases_of_one_input_import_and_build_nothing_that_they_do_not_need(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / "echo.py").write_text("def answer(message):\n    return message\n")
    program = AN_ORDINARY_RUN.format(seldom=SELDOM, unwritten=UNWRITTEN)

    assert ran(program, tmp_path, tmp_path).stderr.split() == []


def test_importing_the_scenario_api_builds_no_schema(tmp_path):
    # pydantic loads its plugins, and with them 35 modules, for the first schema
    loaded = "'pydantic.plugin._loader' in sys.modules"
    program = f"import sys; from holodeck.scenario import run; print({loaded})"

    assert run(program, tmp_path).split() == ["False"]


def test_plugins_of_pydantic_see_the_models_of_the_user_and_not_those_of_holodeck(tmp_path):
    program = """
import pydantic, sys
from holodeck.models.llm import LLMProvider
LLMProvider(provider="ollama", name="qwen3")
print("pydantic.plugin._loader" in sys.modules)
class Own(pydantic.BaseModel):
    name: str
print(sys.modules["pydantic.plugin._loader"].__file__ is not None)
"""

    assert run(program, tmp_path).split() == ["False", "True"]


def test_every_module_can_be_imported_where_nothing_optional_is_installed(tmp_path):
    assert int(run(EVERY_MODULE.format(heavy=HEAVY), tmp_path)) > 80


def run(program, home):
    """What a fresh Python prints."""
    return ran(program, home).stdout


def ran(program, home, folder=None):
    """A fresh Python that has run the program in a folder."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=folder,
        env=clean_environment(home), capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done
