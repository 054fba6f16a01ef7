"""Load an agent.yaml, its test cases and the configuration files as models."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from holodeck import errors
from holodeck.config.cases.data_files import CaseFiles
from holodeck.config.cases.rows import to_node
from holodeck.config.cases.stand_ins import with_stand_ins
from holodeck.config.cases.suite_files import DEFAULT_AGENT_FILE, current_invalid_suites
from holodeck.config.cases.suites import EXTERNAL_KEYS, load_external_cases
from holodeck.config.cases.written_cases import expand_parameters
from holodeck.config.defaults import DEFAULT_EXECUTION_CONFIG
from holodeck.config.environment import Environment, user_folders
from holodeck.config.prices import merge_prices
from holodeck.config.project_file import find_project_defaults
from holodeck.config.providers import (
    merge_shared,
    with_models,
    with_provider_settings,
    with_provider_variables,
    with_vector_stores,
)
from holodeck.config.settings import (
    ConfigFile,
    EffectiveSetting,
    SettingsLayer,
    effective_model_settings,
    effective_settings,
    overridden_notice,
    resolve_settings,
    unknown_variable_warnings,
    with_case_settings,
)
from holodeck.config.trust import refuse_untrusted
from holodeck.config.yaml.lost_checks import NO_VALUE, lost_checks, raise_on_lost_checks
from holodeck.config.yaml.source import (
    Locations,
    Origin,
    Source,
    Substitute,
    display_path,
    suggest_file,
    unreadable_reason,
)
from holodeck.config.yaml.validation_errors import validate
from holodeck.errors import ConfigError
from holodeck.lib.support.trust import is_untrusted
from holodeck.models.agent import IN_PYTHON, NO_EFFECT, Agent, unlocated
from holodeck.models.cases.stubs import StandIns
from holodeck.models.config import COMMAND_LINE, ExecutionConfig, GlobalConfig, setting_fields
from holodeck.models.tool import McpTool

logger = logging.getLogger(__name__)

CONFIG_NAMES = ("config.yml", "config.yaml")
_NO_FILE = "agent"
"""The name in messages of the missing file of an agent that is described in Python."""


@dataclass
class GatheredAgent:
    """The values of an agent.yaml; its `test_cases` are all cases, wherever they were written."""

    data: dict[str, Any]
    cases: list[Any] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    """Where each case was written."""
    read: set[Path] = field(default_factory=set)
    """The files besides the agent.yaml that cases were read from."""
    stand_ins: dict[str, StandIns] = field(default_factory=dict)
    """Suite → what stands in for tools and models in its cases."""

    def add(self, case: Any, origin: Origin) -> None:
        """Add a case, or the cases that it becomes with its `parameters`."""
        expanded = list(expand_parameters(case, origin))
        self.cases += expanded
        self.origins += [origin] * len(expanded)


def gather_cases(
    source: Source, agent_file: Path, substitute: Substitute, extra_suites: Sequence[str] = ()
) -> GatheredAgent:
    """Return the values of an agent.yaml with the cases of all its files. Raises ConfigError.

    `substitute` replaces variables in texts. `extra_suites` are files of suites that the agent.yaml
    may not name, relative to its folder.
    """
    gathered = GatheredAgent(source.data(substitute))
    data = gathered.data
    external = {key: data.pop(key) for key in EXTERNAL_KEYS if key in data}
    written = data.get("test_cases")
    if written is not None and not isinstance(written, list):
        return gathered  # validation reports it with the other errors
    for index, case in enumerate(written or []):
        gathered.add(case, Origin(source, ("test_cases", index)))
    files = CaseFiles(agent_file, substitute, gathered.read)
    stand_ins = gathered.stand_ins
    for case, origin in load_external_cases(external, source, files, extra_suites, stand_ins):
        gathered.add(case, origin)
    if written is None and "test_cases" in data and gathered.cases:
        raise ConfigError(source.location(("test_cases",)), f"test_cases: {NO_VALUE}")
    if written is not None or gathered.cases:
        data["test_cases"] = gathered.cases
    return gathered


class ConfigLoader:
    """Reads configuration files; project and user configuration are read once per loader."""

    def __init__(self, env: Environment | None = None) -> None:
        """`env` replaces the environment variables and `.env` files, in tests for example."""
        self.cases_read: set[Path] = set()
        """The files besides the agent.yaml that test cases were read from."""
        self._env = env
        self._environments: dict[Path, Environment] = {}
        self._configs: dict[Path, GlobalConfig | None] = {}
        self._config_sources: dict[Path, Source] = {}
        self._agent_sources: dict[Path, Source] = {}
        """The agent.yaml files that were read, by folder."""

    def environment(self, folder: Path | None = None) -> Environment:
        """Return the variables for an agent in `folder`."""
        if self._env is not None:
            return self._env
        folder = (folder or Path.cwd()).absolute()
        if folder not in self._environments:
            self._environments[folder] = Environment.beside(folder)
        return self._environments[folder]

    def load_agent_yaml(self, file_path: str | Path, suites: Sequence[str | Path] = ()) -> Agent:
        """Load the agent of a file, or of the agent.yaml in a folder.

        The agent gets the cases of the files in `suites` too, whether or not it names them.
        Raises FileNotFoundError, or ConfigError with a line for each problem and its location.
        """
        file = agent_file(file_path)
        return self._load(file, suites, lambda: Source.read(file, display_path(file)))

    def load_adapter(self, adapter: str, suites: Sequence[str | Path]) -> Agent:
        """Return the agent of `module:attribute` with the cases of `suites`, without an agent.yaml.

        Its folder is the working folder. IN_PYTHON stands for an agent that is not known, for
        checks and previews. Raises like `load_agent_yaml`.
        """
        name = "(no agent)" if adapter == IN_PYTHON else adapter
        root = to_node({"name": name, "backend": adapter}, 0)
        return self._load(Path(DEFAULT_AGENT_FILE), suites, lambda: Source("--adapter", root))

    def _load(self, file: Path, suites: Sequence[str | Path], read: Callable[[], Source]) -> Agent:
        """Return the agent that `read` gives; `file` is where its agent.yaml is, or would be."""
        invalid_suites = current_invalid_suites()
        while True:
            try:
                return self._gather(file, suites, read())
            except ConfigError as error:
                if invalid_suites is None or not invalid_suites.add(error):
                    raise

    def _gather(self, file: Path, suites: Sequence[str | Path], source: Source) -> Agent:
        folder = file.parent.absolute()
        env = self.environment(folder)
        self._agent_sources[folder] = source
        extra_suites = [os.path.relpath(suite, folder) for suite in suites]
        gathered = gather_cases(source, file.absolute(), env.substitute, extra_suites)
        self.cases_read |= gathered.read
        agent = _with_sources(self._validate(gathered, folder, source), source)
        if is_untrusted():
            refuse_untrusted(agent, env, self.load_global_config())
        return agent

    def _validate(self, gathered: GatheredAgent, folder: Path, source: Source) -> Agent:
        env = self.environment(folder)
        problems: list[ConfigError] = []
        locations = Locations(source, gathered.origins)
        shared = self._shared_config(folder, problems)
        merged = self.merge_configs(gathered.data, shared)
        merged = with_models(merged, lambda model: with_provider_variables(model, env))
        merged = with_vector_stores(merged, shared, locations, problems)
        # what a model lacks may stand in the config.yaml that cannot be read
        may_lack = "model" if problems else None
        try:
            agent = validate(Agent, merged, locations, problems, may_lack)
            agent = agent.with_base_dir(folder).with_locator(locations.locate)
            raise_on_lost_checks(lost_checks(agent), locations)
            agent = with_stand_ins(agent, gathered.stand_ins, env.substitute)
        except ConfigError as error:
            # Imported here because most files are valid.
            from holodeck.config.checks.partial import with_further_problems  # noqa: PLC0415

            raise with_further_problems(
                error, merged, folder, locations, has_config=not problems
            ) from None
        return self._with_servers(self._with_prices(agent, folder), folder)

    def agent_from(
        self,
        values: Mapping[str, Any],
        cases: str | Path | Iterable[Any] | None = None,
        folder: Path | None = None,
    ) -> Agent:
        """Return the agent for values of an agent.yaml that are given in Python.

        `cases` are test cases or the path of a data file; relative paths start from `folder`, else
        from the working folder. Raises ConfigError.
        """
        folder = (folder or Path.cwd()).absolute()
        source = Source(_NO_FILE, to_node(dict(values), 1))
        gathered = GatheredAgent(dict(values))
        try:
            if isinstance(cases, str | Path):
                file = folder / cases
                named = Source(_NO_FILE, to_node({"test_cases_file": file.name}, 1))
                substitute = self.environment(file.parent).substitute
                gathered = gather_cases(named, file.parent / DEFAULT_AGENT_FILE, substitute)
                gathered.data |= values
            elif cases is not None:
                cases = list(cases)
                source = Source(_NO_FILE, to_node({**values, "test_cases": cases}, 1))
                for index, case in enumerate(cases):
                    gathered.add(case, Origin(source, ("test_cases", index)))
                gathered.data["test_cases"] = gathered.cases
            agent = self._validate(gathered, folder, source)
        except ConfigError as error:
            text = str(error).replace(f"{_NO_FILE}:1:1: ", "")
            field, _, message = text.partition(": ")
            raise ConfigError(field, message) from None
        return agent if isinstance(cases, str | Path) else agent.with_locator(unlocated)

    def with_backend(self, agent: Agent, backend: str | Mapping[str, Any]) -> Agent:
        """Return the agent with another `backend`, as YAML has it. Raises ConfigError."""
        parts = {name: getattr(agent, name) for name in ("name", "model", "instructions")}
        parts["tools"] = [tool for tool in agent.tools or () if not tool.is_shared] or None
        values = {name: part for name, part in parts.items() if part is not None}
        given = self.agent_from({**values, "backend": backend}, folder=agent.base_dir)
        return agent.model_copy(update={"backend": given.backend})

    def load_global_config(self) -> GlobalConfig | None:
        """Return the user's configuration, or None if there is none."""
        for folder in user_folders(self.environment()):
            found = self._config_in(folder)
            if found is not None:
                stores = {
                    name: vectorstore.of_user()
                    for name, vectorstore in (found.vectorstores or {}).items()
                }
                return found.model_copy(update={"vectorstores": stores or None})
        return None

    def load_project_config(self, project_dir: str | Path) -> GlobalConfig | None:
        """Return the configuration beside an agent.yaml, or None if there is none."""
        return self._config_in(Path(project_dir).absolute())

    def merge_configs(
        self, agent: Mapping[str, Any], shared: GlobalConfig | None
    ) -> dict[str, Any]:
        """Return the values of an agent, missing keys of its models taken from `providers`."""
        if shared is None or not shared.providers:
            return dict(agent)
        return with_models(agent, lambda model: with_provider_settings(model, shared))

    def resolve_execution_config(
        self,
        cli_config: ExecutionConfig | None = None,
        yaml_config: ExecutionConfig | None = None,
        project_config: ExecutionConfig | None = None,
        user_config: ExecutionConfig | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> ExecutionConfig:
        """Resolve all settings: CLI > agent.yaml > project > user > HOLODECK_* > default."""
        layers = [
            SettingsLayer(cli_config, COMMAND_LINE),
            SettingsLayer(yaml_config, DEFAULT_AGENT_FILE),
            SettingsLayer(project_config, "project config"),
            SettingsLayer(user_config, "user config"),
        ]
        return resolve_settings(layers, self.environment(), defaults or DEFAULT_EXECUTION_CONFIG)

    def parse_yaml(self, file_path: str | Path) -> dict[str, Any]:
        """Return the values of a YAML file, variables substituted. Raises ConfigError."""
        file = Path(file_path)
        return Source.read(file, display_path(file)).data(self.environment(file.parent).substitute)

    def resolve_file_path(self, file_path: str | Path, base_dir: str | Path) -> Path:
        """Return a path of the configuration as an absolute path. Raises FileNotFoundError."""
        full = (Path(base_dir) / file_path).resolve()
        if not full.exists():
            raise errors.FileNotFoundError(
                str(file_path), f"file not found: {full}{suggest_file(full)}"
            )
        return full

    def settings_of(self, agent: Agent, cli_config: ExecutionConfig | None) -> ExecutionConfig:
        """Return the settings for a run of `agent`, each value with its source."""
        layers = self._layers(agent.base_dir, agent.execution, cli_config)
        method = getattr(self.resolve_execution_config, "__func__", None)
        if method is not ConfigLoader.resolve_execution_config:  # of a subclass or an instance
            cli, own, project, user, defaults = (layer.config for layer in layers)
            given = {} if defaults is None else defaults.model_dump(exclude_none=True)
            values = {**DEFAULT_EXECUTION_CONFIG, **given}
            return self.resolve_execution_config(cli, own, project, user, values)
        env = self.environment(agent.base_dir)
        return resolve_settings(layers, env, DEFAULT_EXECUTION_CONFIG, agent.base_dir)

    def settings_in_use(
        self, agent: Agent | None = None, cli_config: ExecutionConfig | None = None
    ) -> list[EffectiveSetting]:
        """Return every setting and every key of the agent's model, each with its source.

        Without an agent, return the settings of a run in the working folder.
        """
        folder = Path.cwd() if agent is None else agent.base_dir
        env = self.environment(folder)
        layers = self._layers(folder, agent.execution if agent else None, cli_config)
        rows = effective_settings(layers, env, DEFAULT_EXECUTION_CONFIG)
        if agent is None or agent.model is None:
            return rows
        shared = self._shared_files(folder)
        return [
            *rows,
            *effective_model_settings(agent.model, self._agent_sources[folder], shared, env),
        ]

    def overridden_notice(
        self, agent: Agent, cli_config: ExecutionConfig | None = None
    ) -> str | None:
        """Return a notice about variables that a `config.yaml` overrides, if there are any."""
        has_shared = bool(self._shared_files(agent.base_dir))
        return overridden_notice(self.settings_in_use(agent, cli_config)) if has_shared else None

    def _layers(
        self, folder: Path, own: ExecutionConfig | None, cli_config: ExecutionConfig | None
    ) -> list[SettingsLayer]:
        project, user = self.load_project_config(folder), self.load_global_config()
        found = find_project_defaults(Path(folder).absolute())
        return [
            SettingsLayer(cli_config, COMMAND_LINE, is_users=True),
            SettingsLayer(own, DEFAULT_AGENT_FILE),
            SettingsLayer(project.execution if project else None, "project config", is_shared=True),
            SettingsLayer(
                user.execution if user else None, "user config", is_shared=True, is_users=True
            ),
            SettingsLayer(found[1].execution if found else None, "pyproject.toml", yields=True),
        ]

    def _shared_files(self, folder: Path) -> list[ConfigFile]:
        """Return the configuration files of the project and the user that exist."""
        users = [
            user_folder
            for user_folder in user_folders(self.environment())
            if self._config_in(user_folder)
        ]
        folders = dict.fromkeys([Path(folder).absolute(), *users[:1]])
        return [
            ConfigFile(self._config_sources[folder], config)
            for folder in folders
            if (config := self._config_in(folder)) is not None
        ]

    def _configs_for(self, folder: Path) -> list[GlobalConfig]:
        """Return the configurations of the project and the user, as far as there are any."""
        configs = (self.load_project_config(folder), self.load_global_config())
        return [config for config in configs if config is not None]

    def _with_prices(self, agent: Agent, folder: Path) -> Agent:
        """Return the agent with the prices of the configuration files added."""
        shared = [config.prices for config in self._configs_for(folder)]
        merged = merge_prices([agent.prices, *shared])
        if merged is not None and agent.prices is not None:
            merged = merged.of_agent(agent.prices.models)
        return agent.model_copy(update={"prices": merged})

    def _with_servers(self, agent: Agent, folder: Path) -> Agent:
        """Return the agent with the MCP servers of the configuration files among its tools."""
        if agent.has_own_model:
            return agent
        own = {tool.name for tool in agent.tools or ()}
        servers: dict[str, McpTool] = {}
        for config in self._configs_for(folder):
            for server in config.mcp_servers or ():
                if server.name not in own:
                    servers.setdefault(server.name, server)
        if not servers:
            return agent
        return agent.model_copy(update={"tools": [*(agent.tools or ()), *servers.values()]})

    def _shared_config(self, folder: Path, problems: list[ConfigError]) -> GlobalConfig | None:
        """Return what project and user share among agents; the keys of the project win.

        A file with errors counts as missing, and its error is added to `problems`.
        """
        loaded: list[GlobalConfig | None] = []
        for load in (partial(self.load_project_config, folder), self.load_global_config):
            try:
                loaded.append(load())
            except ConfigError as error:
                problems.append(error)
                loaded.append(None)
        project, user = loaded
        if project is None or user is None:
            return project or user
        return merge_shared(user, project)

    def _config_in(self, folder: Path) -> GlobalConfig | None:
        if folder not in self._configs:
            self._configs[folder] = self._read_config(folder)
        return self._configs[folder]

    def _read_config(self, folder: Path) -> GlobalConfig | None:
        files = [folder / name for name in CONFIG_NAMES if (folder / name).is_file()]
        if not files:
            return None
        if len(files) > 1:
            logger.warning("using %s; ignoring %s in the same folder", files[0], files[1].name)
        source = Source.read(files[0], display_path(files[0]), may_be_empty=True)
        self._config_sources[folder] = source
        data = source.data(self.environment(folder).substitute)
        found = validate(GlobalConfig, data, Locations(source))
        if "execution" in found.model_fields_set and found.execution is None:
            raise_on_lost_checks([(("execution",), NO_VALUE)], Locations(source))
        if found.deployment is not None:
            logger.warning("%s: deployment: %s", source.location(("deployment",)), NO_EFFECT)
        if found.mcp_servers:
            servers = [server.of_config_in(folder) for server in found.mcp_servers]
            found = found.model_copy(update={"mcp_servers": servers})
        return _with_sources(found, source)


def load_agent_with_config(
    agent_config_path: str | Path,
    cli_config: ExecutionConfig | None = None,
    suites: Sequence[str | Path] = (),
    adapter: str | None = None,
    loader: ConfigLoader | None = None,
) -> tuple[Agent, ExecutionConfig, ConfigLoader]:
    """Return the agent of a file, the settings for a run of it, and the loader that read both.

    With `adapter`, it is the agent of that `module:attribute`, and no file is read.
    """
    loader = loader or ConfigLoader()
    if adapter is None:
        agent = loader.load_agent_yaml(agent_config_path, suites)
    else:
        agent = loader.load_adapter(adapter, suites)
    for warning in unknown_variable_warnings(loader.environment(agent.base_dir)):
        logger.warning("%s", warning)
    settings = loader.settings_of(agent, cli_config)
    return with_case_settings(agent, settings), settings, loader


class DelegatingLoader(ConfigLoader):
    """Reads with the documented methods of an object that is no ConfigLoader, such as a fake."""

    def __init__(self, loader: Any) -> None:
        super().__init__()
        self._loader = loader

    def load_agent_yaml(self, file_path: str | Path, suites: Sequence[str | Path] = ()) -> Agent:  # noqa: ARG002 - of `holodeck test`
        agent: Agent = self._loader.load_agent_yaml(file_path)
        return agent

    def load_global_config(self) -> GlobalConfig | None:
        config: GlobalConfig | None = self._loader.load_global_config()
        return config

    def load_project_config(self, project_dir: str | Path) -> GlobalConfig | None:
        config: GlobalConfig | None = self._loader.load_project_config(project_dir)
        return config

    def resolve_execution_config(self, *configs: Any, **named: Any) -> ExecutionConfig:
        names = ("cli_config", "yaml_config", "project_config", "user_config", "defaults")
        named |= dict(zip(names, configs, strict=False))
        given: ExecutionConfig = self._loader.resolve_execution_config(**named)
        # HoloDeck's settings are a part of ours.
        return resolve_settings(
            [SettingsLayer(given)], self.environment(), DEFAULT_EXECUTION_CONFIG
        )


def loader_of(given: ConfigLoader | None) -> ConfigLoader:
    """Return the loader that a caller gives, which may be any object with the same methods."""
    if given is None:
        return ConfigLoader()
    # Not `isinstance`, which a mock with a spec passes.
    return given if issubclass(type(given), ConfigLoader) else DelegatingLoader(given)


def agent_file(path: str | Path) -> Path:
    """Return `path`, or the agent.yaml in it if it is a folder. Raises FileNotFoundError."""
    file = Path(path)
    try:
        file = file / DEFAULT_AGENT_FILE if file.is_dir() else file
        exists = file.exists()
    except OSError as error:  # such as a name that is too long, or a folder without access
        raise errors.FileNotFoundError(str(path), unreadable_reason(error)) from error
    if not exists:
        patterns = ("*.yaml", "*.yml")
        hint = suggest_file(file, *patterns) or _suggest_only_yaml_file(file.parent)
        raise errors.FileNotFoundError(str(file), f"file not found{hint}")
    return file


def _suggest_only_yaml_file(folder: Path) -> str:
    names = sorted(path.name for path in folder.glob("*.y*ml")) if folder.is_dir() else []
    return (
        f"; found there: {', '.join(names[:5])}"
        if names
        else "; write one with 'holodeck init', or name another file"
    )


W = TypeVar("W", Agent, GlobalConfig)


def _with_sources(config: W, source: Source) -> W:
    """Return the configuration with the location of each setting in its file."""
    if config.execution is None:
        return config
    sources = {name: source.location(("execution", name)) for name in setting_fields()}
    return config.model_copy(update={"execution": config.execution.with_sources(sources)})
