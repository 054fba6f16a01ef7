"""Every path that a file can set says what a run does there."""

import re

from holodeck.models.agent import AgentFile, SuiteFile
from holodeck.models.base import Model, PathUse, _docstrings, is_used, models_in
from holodeck.models.config import GlobalConfig, Setting
from holodeck.models.tool import TOOL_TYPES

NO_PATHS = {
    "allowed_hosts",
    "class_", "columns", "command", "database", "db_schema", "delimiter", "description", "env",
    "expected_output", "function", "ignore", "name", "range", "record_path", "registry_name",
    "sheet", "target", "url",
    # paths in the JSON of an answer, and Python functions
    "HttpAnswerPaths.retrieval_context", "HttpAnswerPaths.tool_calls", "HttpBackendConfig.parse",
    "HttpBackendConfig.prepare", "HttpSessionStart.id", "PassagePaths.path",
    "ToolCallPaths.arguments", "ToolCallPaths.path",
    # of the body of a request
    "IgnoreRule.path",
}  # fmt: skip
"""Fields whose name or description speaks of files although they hold no path, or that name what
is run: programs and Python modules."""
NAME = re.compile(r"events|(^|_)(file|path|folder|dir|directory|cwd|output|log)s?($|_)")
WORD = re.compile(r"\b(files?|folders?|paths?|directory)\b", re.IGNORECASE)


def input_models():
    found, waiting = set(), [AgentFile, SuiteFile, GlobalConfig, *TOOL_TYPES.values()]
    while waiting:
        model = waiting.pop()
        if model not in found:
            found.add(model)
            for field in model.model_fields.values():
                for part in (field.annotation, *field.metadata):
                    waiting += models_in(part)
    return found


def described_fields():
    """Every field that may hold a text, with what its name and its description say."""
    for model in input_models():
        texts = _docstrings(model) if issubclass(model, Model) else {}
        for name, field in model.model_fields.items():
            settings = [part.help for part in field.metadata if isinstance(part, Setting)]
            if "str" in repr(field.annotation):
                yield model, name, field, " ".join([texts.get(name, ""), *settings])


def test_every_path_that_a_file_can_set_is_classified_as_read_or_written():
    unclassified = [
        f"{model.__name__}.{name}"
        for model, name, field, text in described_fields()
        if (NAME.search(name) or WORD.search(text))
        and not any(is_used(field, use) for use in PathUse)
        and not {name, f"{model.__name__}.{name}"} & NO_PATHS
    ]

    assert unclassified == []


def test_the_written_paths_are_known():
    """Whoever adds one adds a way out to tests/security/test_written_paths.py, too."""
    written = {
        f"{model.__name__}.{name}"
        for model, name, field, _ in described_fields()
        if is_used(field, PathUse.WRITTEN)
    }

    assert written == {
        "ExecutionConfig.events",
        "ExecutionConfig.cache_dir",
        "ExecutionConfig.recordings",
        "DatabaseConfig.path",
        "VectorStoreSettings.path",
        "AzureMonitorExporterConfig.storage_directory",
    }
