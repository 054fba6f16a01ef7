"""The model of an agent.yaml, and the suites in it and in files beside it."""

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from holodeck.lib.support.text import did_you_mean
from holodeck.models.backend import (
    A2aBackendConfig,
    HttpBackendConfig,
    McpBackendConfig,
    ProcessBackendConfig,
    PythonBackendConfig,
)
from holodeck.models.base import BuiltWhenUsed, Json, KeyPath, Model, NonBlank, ReadPath, Seconds
from holodeck.models.cases.expectations import WrittenScorer
from holodeck.models.cases.stubs import StandIns
from holodeck.models.config import ExecutionConfig
from holodeck.models.evaluation import EvaluationConfig
from holodeck.models.llm import LLMProvider
from holodeck.models.observability import ObservabilityConfig
from holodeck.models.recordings import RecordingsConfig
from holodeck.models.test_case import CaseSettings, TestCaseModel
from holodeck.models.token_usage import PriceTable
from holodeck.models.tool import ToolUnion
from holodeck.models.tools.config import ToolFilterConfig

Locator = Callable[[KeyPath], tuple[str, KeyPath]]
"""Maps the path of a value to the place where it is written, such as `agent.yaml:41:7`, and to its
path in that file. Workers get it with the agent, so it can be pickled."""
UNLOCATED = "agent"
"""The location of a value that is not in a file."""
AGENT_KEYS = (
    *("name", "backend", "model", "instructions", "tools", "tool_filtering"),
    *("retrieval_tools", "embedding_provider", "response_format", "claude"),
)
"""The keys that describe the agent itself, not its tests."""


def unlocated(path: KeyPath) -> tuple[str, KeyPath]:
    """The locator of an agent that is not in a file."""
    return UNLOCATED, path


def _locate_selected(
    original: Locator, indexes: Sequence[int], path: KeyPath
) -> tuple[str, KeyPath]:
    """Locate a value of an agent with only the cases that had these indexes."""
    match path:
        case ("test_cases", int(index), *rest) if index < len(indexes):
            return original(("test_cases", indexes[index], *rest))
    return original(path)


def _locate_replaced(
    keys: Collection[str], agent: Locator, others: Locator, path: KeyPath
) -> tuple[str, KeyPath]:
    """Locate a value of an agent that has these keys from another agent."""
    return agent(path) if path and path[0] in keys else others(path)


CHAT = "chat"
_CHAT_PROTOCOLS = frozenset({"openai", "azure", "scripted"})
BUILT_IN_BACKENDS = (None, "semantic_kernel", CHAT)
"""Backends that take model, instructions and tools from the agent.yaml."""
IN_PYTHON = "(a Python object)"
"""`backend` of an agent that is a Python object, which the executor gets as an argument."""


NO_EFFECT = "belongs to other commands of HoloDeck; it has no effect here"
KEYS_WITHOUT_EFFECT = {"chat": NO_EFFECT, "deployment": NO_EFFECT}
"""Keys of HoloDeck's own format that are not used, with the reason."""

DUPLICATE_NAME = "duplicate_name"
"""The type of the validation error about two items with the same name."""


class Instructions(Model):
    """The system prompt, as a file or inline."""

    file: ReadPath | None = None
    """Path relative to `agent.yaml`."""
    inline: NonBlank | None = None
    """The text."""
    template: Literal["semantic-kernel"] | None = None
    """`semantic-kernel` renders the text as a template of Semantic Kernel, without variables; by
    default it is sent unchanged."""

    @model_validator(mode="after")
    def _has_exactly_one_key(self) -> "Instructions":
        if (self.file is None) == (self.inline is None):
            raise ValueError("write exactly one of 'file' and 'inline'")
        return self


CLAUDE_CODE_KEYS = (
    *("agents", "allowed_tools", "bash", "disallowed_tools", "effort", "extended_thinking"),
    *("fallback_model", "file_system", "i_understand_this_is_unsafe", "max_budget_usd"),
    *("max_concurrent_sessions", "setting_sources", "subagents", "working_directory"),
)
"""Keys of `claude` about Claude Code, which HoloDeck starts and holodeck does not."""


class ClaudeConfig(Model):
    """Settings of HoloDeck for an agent on a model of Anthropic."""

    model_config = ConfigDict(extra="allow")

    max_turns: Annotated[int, Field(ge=1)] | None = None
    """How many rounds of tool calls a turn may have, before it ends as an error; 20 if unset."""
    web_search: bool = False
    """Whether the model may search the web, with Anthropic's own tool `web_search`."""
    permission_mode: Literal["manual", "acceptEdits", "acceptAll"] = "manual"
    """Tools of the `agent.yaml` run unasked in every mode; the modes differ for tools of Claude
    Code, which holodeck does not start."""

    @property
    def without_effect(self) -> list[str]:
        """The keys that are settings of Claude Code."""
        return sorted(self.model_extra or ())

    @property
    def changes_the_agent(self) -> bool:
        """Whether the agent is another one without these settings."""
        return self.max_turns is not None or self.web_search

    @model_validator(mode="after")
    def _has_known_keys(self) -> "ClaudeConfig":
        known = {*type(self).model_fields, *CLAUDE_CODE_KEYS}
        for key in self.without_effect:
            if key not in known:
                raise ValueError(f"unknown key {key!r}{did_you_mean(key, known)}")
        return self


def _expand_url(backend: Any) -> Any:
    """Return a URL as the mapping that it is short for; anything else unchanged."""
    is_url = isinstance(backend, str) and backend.startswith(("http://", "https://"))
    return {"type": "http", "url": backend} if is_url else backend


class _AgentHead(Model):
    """What an agent.yaml begins with."""

    name: NonBlank
    """Name of the agent in reports."""


class Agent(StandIns, _AgentHead):
    """An agent, its tests and its settings."""

    description: NonBlank | None = None
    """A note for readers; holodeck ignores it."""
    author: NonBlank | None = None
    """A note for readers; holodeck ignores it."""
    model: LLMProvider | None = None
    """The model; required unless `backend` is Python code or a URL."""
    instructions: Instructions | None = None
    """The system prompt; required unless `backend` is Python code or a URL."""
    backend: Annotated[
        NonBlank
        | Annotated[
            PythonBackendConfig
            | HttpBackendConfig
            | ProcessBackendConfig
            | McpBackendConfig
            | A2aBackendConfig,
            Field(discriminator="type"),
        ]
        | None,
        BeforeValidator(_expand_url),
    ] = None
    """How holodeck reaches the agent: unset for Semantic Kernel, `chat` for a chat endpoint,
    `module:attribute` for Python code, a URL, or a mapping with a `type`."""
    code: ReadPath | None = None
    """Folder from which `python -m` would import your modules, such as `..`; not needed beside
    `agent.yaml`, and in the nearest folder above with a `pyproject.toml` or its `src/`."""
    response_format: dict[str, Json] | ReadPath | None = None
    """JSON schema of the response, or the path of a JSON file that contains it."""
    tools: Annotated[list[ToolUnion], Field(max_length=50)] | None = None
    """Tools that the agent can call."""
    retrieval_tools: list[NonBlank] = []
    """Names of tools whose results are passages, which metrics get as `retrieval_context`."""
    tool_filtering: ToolFilterConfig | None = None
    """Which tools the model is offered; all of them if it is off."""
    embedding_provider: LLMProvider | None = None
    """The embedding model for tools that search documents; by default one of the agent's provider,
    or the embedded all-minilm-l6-v2."""
    evaluations: EvaluationConfig | None = None
    """Metrics for every test case without its own `evaluations`."""
    test_cases: list[TestCaseModel] | None = None
    """The test cases."""
    names: dict[NonBlank, NonBlank] | None = None
    """Names of tools, arguments and agents that the agent of `--against` has in place of those
    here, such as `{lookup_order: find_order}`."""
    execution: ExecutionConfig | None = None
    """Settings of the run."""
    prices: PriceTable | None = None
    """Prices of the models, in addition to `prices` in the configuration files."""
    recordings: RecordingsConfig | None = None
    """What recordings leave out of requests, and how old they may be."""
    observability: Annotated[ObservabilityConfig, BuiltWhenUsed(ObservabilityConfig)] | None = None
    """Traces of the run."""
    claude: ClaudeConfig | None = None
    """Settings of HoloDeck for an agent on a model of Anthropic."""
    chat: dict[str, Json] | None = None
    """For other commands of HoloDeck; it has no effect here."""
    deployment: dict[str, Json] | None = None
    """For other commands of HoloDeck; it has no effect here."""

    _base_dir: Path | None = PrivateAttr(default=None)
    _own_code_folders: tuple[Path, ...] | None = PrivateAttr(default=None)
    _locator: Locator = PrivateAttr(default_factory=lambda: unlocated)

    @property
    def base_dir(self) -> Path:
        """The folder of the agent.yaml, else the working folder; relative paths start from it."""
        return self._base_dir or Path.cwd()

    @property
    def own_dir(self) -> Path:
        """Where relative paths of the agent itself start, such as those of its tools.

        It differs from `base_dir` only if the agent runs the test cases of another file.
        """
        return self.own_code_folders[0]

    @property
    def code_folders(self) -> tuple[Path, ...]:
        """Where modules are looked for first: `base_dir`, and the folder that `code` names."""
        return self.base_dir, *(() if self.code is None else (self.base_dir / self.code,))

    @property
    def own_code_folders(self) -> tuple[Path, ...]:
        """Where modules of the agent itself are looked for first; see `own_dir`."""
        return self._own_code_folders or self.code_folders

    @property
    def has_base_dir(self) -> bool:
        """Whether `base_dir` is set, and not only the working folder."""
        return self._base_dir is not None

    def with_base_dir(self, folder: Path) -> "Agent":
        """Return the agent with relative paths starting from `folder`."""
        return self.with_private(_base_dir=folder)

    def moved(self, old: Path, new: Path) -> "Agent":
        """Return the agent with relative paths inside `old` starting from the copy of it, `new`."""
        folders = [Path(os.path.normpath(folder)) for folder in self.own_code_folders]
        return self.with_private(
            _base_dir=new / self.base_dir.relative_to(old),
            _own_code_folders=tuple(new / folder.relative_to(old) for folder in folders),
        )

    def with_locator(self, locator: Locator) -> "Agent":
        """Return the agent with the locations of its values."""
        return self.with_private(_locator=locator)

    def with_agent_of(self, other: "Agent", keys: Collection[str] = AGENT_KEYS) -> "Agent":
        """Return these tests and settings with the agent that `keys` of `other` describe."""
        copy = self.model_copy(update={key: getattr(other, key) for key in AGENT_KEYS})
        locators = other._locator, self._locator  # noqa: SLF001 - of its own class
        return copy.with_private(
            _own_code_folders=other.own_code_folders,
            _locator=partial(_locate_replaced, keys, *locators),
        )

    def with_names_of_second(self) -> "Agent":
        """Return the test cases with the `names` that the agent of `--against` has."""
        cases = [case.renamed(self.names or {}) for case in self.test_cases or ()]
        return self.model_copy(update={"test_cases": cases}) if cases else self

    def location(self, *path: str | int) -> str:
        """Return the location of a value, such as `agent.yaml:41:7`; `agent` without a file."""
        return self._locator(path)[0]

    def source_path(self, *path: str | int) -> KeyPath:
        """Return the path of a value in the file where it is written, such as a suite file."""
        return self._locator(path)[1]

    def with_cases(self, indexes: Sequence[int]) -> "Agent":
        """Return the agent with the cases at these indexes, in this order; locations are kept."""
        cases = self.test_cases or []
        copy = self.model_copy(update={"test_cases": [cases[index] for index in indexes]})
        return copy.with_locator(partial(_locate_selected, self._locator, indexes))

    @property
    def has_own_model(self) -> bool:
        """Whether the backend has its own model, instructions and tools."""
        return self.backend not in BUILT_IN_BACKENDS

    @property
    def target(self) -> str | None:
        """The user's code that is the agent, as `module:attribute`; None for other agents."""
        if isinstance(self.backend, ProcessBackendConfig | PythonBackendConfig):
            return self.backend.target
        return self.backend if isinstance(self.backend, str) and ":" in self.backend else None

    @property
    def retrieving_tools(self) -> frozenset[str]:
        """The names of the tools whose results are retrieved passages."""
        own = (tool.name for tool in self.tools or () if tool.retrieves)
        return frozenset([*self.retrieval_tools, *own])

    @property
    def judge_model(self) -> LLMProvider | None:
        """The default model for judges and simulated users; None if there is none."""
        shared = self.evaluations.model if self.evaluations else None
        is_scripted = self.model is not None and self.model.protocol == "scripted"
        return shared or (None if is_scripted else self.model)

    def simulator_model(self, case: TestCaseModel) -> LLMProvider | None:
        """Return the model that simulates the user of a case; None if there is none."""
        of_case = None if case.simulate is None else case.simulate.model
        return of_case or self.judge_model

    @model_validator(mode="after")
    def _can_have_settings_of_claude(self) -> "Agent":
        if self.claude is None or not self.claude.changes_the_agent:
            return self
        if self.has_own_model:
            raise ValueError(
                "'claude' is for the built-in agent; remove it, and set 'max_turns' and the tools"
                " in the code of the agent"
            )
        if self.model is not None and self.model.protocol != "anthropic":
            raise ValueError(
                "'claude' is for models of Anthropic; remove it, or write 'provider: anthropic'"
                f" instead of {self.model.provider.value!r}"
            )
        return self

    @model_validator(mode="after")
    def _has_what_its_backend_needs(self) -> "Agent":
        if self.has_own_model:
            for key in ("tools", "tool_filtering"):
                if getattr(self, key):
                    raise ValueError(
                        f"{key!r} is for the built-in agent; remove it, as a 'backend' has its own"
                        " tools"
                    )
            return self
        if self.model is None:
            raise ValueError("'model' is missing; write 'model: {provider: local}', for example")
        if self.instructions is None:
            raise ValueError(
                "'instructions' is missing; write 'instructions: {inline: …}', for example"
            )
        if self.model.protocol == "litellm":
            raise ValueError(
                f"the built-in agent cannot call {self.model.provider.value!r} through LiteLLM,"
                " which only judges and simulated users can; write an 'endpoint' that has OpenAI's"
                " protocol, or 'provider: litellm_proxy'"
            )
        if self.backend == CHAT and self.instructions.template is not None:
            raise ValueError(
                "'instructions.template' is rendered by Semantic Kernel; leave 'backend' or"
                " 'template' out"
            )
        if self.backend == CHAT and self.model.protocol not in _CHAT_PROTOCOLS:
            raise ValueError(
                f"'backend: chat' does not support the provider {self.model.provider.value!r};"
                " write 'provider: openai' with the 'endpoint' of an OpenAI-compatible server,"
                " or leave 'backend' out"
            )
        return self

    @model_validator(mode="after")
    def _other_names_are_told_apart(self) -> "Agent":
        first: dict[str, str] = {}
        for name, other in (self.names or {}).items():
            if first.setdefault(other, name) != name:
                raise ValueError(
                    f"'names' gives {first[other]!r} and {name!r} the same name {other!r}, so that"
                    " a comparison could not tell them apart; remove one"
                )
        return self

    @model_validator(mode="after")
    def _names_are_unique(self) -> "Agent":
        _require_unique("tools", "name", [tool.name for tool in self.tools or []])
        cases = self.test_cases or []
        named = (None if case.name is None else (case.suite, case.name) for case in cases)
        _require_unique("test_cases", "name", named)
        _require_unique("test_cases", "id", (case.id for case in cases))
        return self


def _require_unique(list_name: str, key: str, names: Iterable[object]) -> None:
    """Raise an error of the type DUPLICATE_NAME if two items have the same name."""
    first: dict[object, int] = {}
    for index, name in enumerate(names):
        if name is not None and first.setdefault(name, index) != index:
            text = name[1] if isinstance(name, tuple) else name
            message = (
                "'{list_name}[{second}].{key}': {name} is already the {key} of"
                " {list_name}[{first}]; use a different one"
            )
            context = {"list_name": list_name, "key": key, "name": repr(text)}
            raise PydanticCustomError(
                DUPLICATE_NAME, message, {**context, "first": first[name], "second": index}
            )


Parameters = dict[NonBlank, list[Json]] | list[dict[NonBlank, Json]]


class WrittenCase(TestCaseModel):
    """A test case as written; with `parameters`, it becomes several test cases."""

    parameters: Parameters | None = None
    """Values for `{{name}}` in texts of the case: a mapping of name to values, every combination of
    which is a case, or a list of mappings with one case each."""


class DataFile(Model):
    """A file of test cases."""

    file: ReadPath
    """Path of a .yaml, .yml, .csv, .jsonl or .json file."""
    columns: dict[NonBlank, NonBlank] = {}
    """For each key of a test case, the column or key of the file that contains it, if the names
    differ."""
    ignore: list[NonBlank] = []
    """Columns or keys of the file to ignore."""


class SuiteSettings(CaseSettings):
    """Settings for cases of a suite that do not set them themselves."""

    other_names: ClassVar = {"default_timeout": "timeout"}

    default_scorers: list[WrittenScorer] | None = None
    """Scorers of cases that name none."""


class SuiteHeader(StandIns):
    """The settings that all cases of a suite share."""

    name: NonBlank | None = None
    """Name of the suite for reports and `--suite`; by default the name of its file."""
    description: NonBlank | None = None
    """A note for readers; holodeck ignores it."""
    tags: list[NonBlank] = []
    """Tags of every case, in addition to its own."""
    config: SuiteSettings = Field(default_factory=SuiteSettings)
    """Settings for the cases of the suite."""
    context: dict[NonBlank, Json] = {}
    """`context` of each case; keys of a case win."""


class SuiteEntry(SuiteHeader):
    """A suite with its test cases, or the files that contain suites."""

    file: ReadPath | None = None
    """Path or pattern (`suites/*.yaml`; `**` matches nested folders) of suite files."""
    test_cases: list[WrittenCase] | None = None
    """The test cases of the suite."""
    test_cases_file: ReadPath | DataFile | None = None
    """A file with further test cases of the suite."""

    @model_validator(mode="after")
    def _has_name_or_file(self) -> "SuiteEntry":
        given = self.model_fields_set
        if self.file is not None and len(given) > 1:
            other = next(name for name in type(self).model_fields if name in given - {"file"})
            raise ValueError(f"{other!r} cannot be combined with 'file'; write it in the file")
        if self.file is None and self.name is None:
            raise ValueError("'name' is missing; write the suite's name, or a 'file'")
        return self


class WrittenScenario(Model):
    """A test case with the keys of AgenticAssure."""

    id: NonBlank | None = None
    """As of a test case."""
    name: NonBlank
    """As of a test case."""
    description: NonBlank | None = None
    """As of a test case."""
    input: NonBlank
    """As of a test case."""
    expected_output: NonBlank | None = None
    """`ground_truth` of a test case."""
    expected_tools: list[NonBlank] | None = None
    """Exact names of tools that have to be called; [] means that no tool may be called."""
    expected_tool_args: dict[NonBlank, dict[NonBlank, Json]] = {}
    """Tool → argument → value, all of them in one call of the tool."""
    tags: list[NonBlank] = []
    """As of a test case."""
    metadata: dict[str, Json] = {}
    """Options of scorers (`regex_pattern`, `exact_normalize`, `similarity_threshold`), notes."""
    scorers: list[NonBlank] | None = None
    """Those of the suite if not given, else `passfail`."""
    timeout_seconds: Seconds | None = None
    """`timeout` of a test case."""


class SuiteFile(Model):
    """A file that holds a suite."""

    suite: SuiteHeader | None = None
    """What its cases share."""
    scenarios: Annotated[list[WrittenScenario], Field(min_length=1)] | None = None
    """Its cases in the words of AgenticAssure, whose files are read as they are."""
    test_cases: list[WrittenCase] | None = None
    """The test cases of the suite."""
    test_cases_file: ReadPath | DataFile | None = None
    """A file with further test cases of the suite."""

    @model_validator(mode="after")
    def _cases_have_one_format(self) -> "SuiteFile":
        if self.scenarios is not None and self.test_cases is not None:
            raise ValueError("'scenarios' and 'test_cases' cannot be combined; use one of them")
        return self


class AgentFile(Agent):
    """The content of an `agent.yaml`, before holodeck reads the suites and files that it names."""

    test_cases: list[WrittenCase] | None = None  # type: ignore[assignment]
    """The test cases."""
    test_cases_file: ReadPath | DataFile | None = None
    """A file with further test cases: its path, or a mapping that also describes its columns."""
    suites: Annotated[list[SuiteEntry], Field(min_length=1)] | None = None
    """Suites of test cases, written here or in separate files."""
