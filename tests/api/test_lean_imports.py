"""What an import costs: nothing heavy, nothing optional, no matter which module is imported."""

import subprocess
import sys

import pytest

from fakes import clean_environment

HEAVY = (
    "semantic_kernel", "openai", "anthropic", "ollama", "nltk", "sacrebleu", "rouge_score",
    "xllamacpp", "deepeval", "azure", "jsonschema", "opentelemetry.sdk", "markitdown", "httpx",
    "grpc",
    "httpx2", "numpy", "pandas", "chromadb", "psycopg", "qdrant_client", "s3fs", "adlfs",
    "opensearchpy", "gguf",
)  # fmt: skip
"""Libraries that only those who use them may pay for."""

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
