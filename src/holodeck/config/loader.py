"""agent.yaml and config.yaml → models."""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from holodeck import errors
from holodeck.config.defaults import DEFAULT_EXECUTION_CONFIG
from holodeck.config.environment import Environment, user_folders
from holodeck.config.lost_checks import NO_VALUE, lost_checks, raise_on_lost_checks
from holodeck.config.model_calls import merge_prices as merged_prices
from holodeck.config.providers import with_provider_variables
from holodeck.config.settings import (
    ConfigFile,
    EffectiveSetting,
    SettingsLayer,
    effective_model_settings,
    effective_settings,
    overridden_notice,
    resolve_settings,
    setting_fields,
    unknown_variable_warnings,
    with_case_settings,
)
from holodeck.config.source import (
    Locations,
    Origin,
    Source,
    Substitute,
    display_path,
    suggest_file,
    unreadable_reason,
)
from holodeck.config.suite_files import DEFAULT_AGENT_FILE, current_invalid_suites
from holodeck.config.validation_errors import config_error
from holodeck.errors import ConfigError
from holodeck.models.agent import Agent
from holodeck.models.config import COMMAND_LINE, ExecutionConfig, GlobalConfig


@dataclass
class GatheredAgent:
    """An agent.yaml's values, `test_cases` being all of them."""

    data: dict[str, Any]
    cases: list[Any] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    """Of each case, where it was written."""
    read: set[Path] = field(default_factory=set)
    """The files besides the agent.yaml that cases were read from."""

    def add(self, case: Any, origin: Origin) -> None:
        """Add the cases that one stands for; what is no case is left to be told of."""
        for one in _expand(case, origin):
            self.cases.append(one)
            self.origins.append(origin)


def gather_cases(
    source: Source, agent_file: Path, change: Substitute, also: Sequence[str] = ()
) -> GatheredAgent:
    """The values of an agent.yaml with the cases from everywhere. Raises ConfigError.

    `change` puts variables into texts. `also` are files of suites that it need not name itself, as
    seen from its folder.
    """
    data = source.data(change)
    elsewhere: Iterable[tuple[Any, Origin]] = ()
    read: set[Path] = set()
    if also or not data.keys() <= Agent.model_fields.keys():
        # Imported here because most agents hold all of their cases.
        from holodeck.config.cases.data_files import CaseFiles  # noqa: PLC0415
        from holodeck.config.cases.suites import load_external_cases  # noqa: PLC0415

        files = CaseFiles(agent_file, change, read)
        elsewhere = load_external_cases(data, source, files, also)
    own = data.get("test_cases")
    found = GatheredAgent(data, read=read)
    if own is not None and not isinstance(own, list):
        return found  # which is told together with whatever else is wrong
    for index, case in enumerate(own or []):
        found.add(case, Origin(source, ("test_cases", index)))
    for case, at in elsewhere:
        found.add(case, at)
    if own is None and "test_cases" in data and found.cases:
        place = Origin(source, ("test_cases",)).place
        raise ConfigError(place, f"test_cases: {NO_VALUE}")
    if own is not None or found.cases:
        data["test_cases"] = found.cases
    return found


def _expand(case: Any, origin: Origin) -> Iterable[Any]:
    """The cases that one stands for; itself, if it has no parameters."""
    if not isinstance(case, dict) or "parameters" not in case:
        return (case,)
    # Imported here because most cases have none.
    from holodeck.config.cases.parameters import expand_parameters  # noqa: PLC0415

    return expand_parameters(case, origin)


logger = logging.getLogger(__name__)

CONFIG_NAMES = ("config.yml", "config.yaml")
_NO_FILE = "agent"
"""Stands for the file of an agent that is described in Python."""


class ConfigLoader:
    """Reads configuration files; project and user configuration are read once per loader."""

    def __init__(self, env: Environment | None = None) -> None:
        """`env` replaces the real variables and `.env` files, for tests say."""
        self.cases_read: set[Path] = set()
        """The files besides the agent.yaml that test cases were read from."""
        self._env = env
        self._environments: dict[Path, Environment] = {}
        self._configs: dict[Path, GlobalConfig | None] = {}
        self._config_sources: dict[Path, Source] = {}
        self._written: dict[Path, Source] = {}
        """The agent's file by its folder."""

    def environment(self, folder: Path | None = None) -> Environment:
        """The variables as an agent in `folder` sees them."""
        if self._env is not None:
            return self._env
        folder = (folder or Path.cwd()).absolute()
        if folder not in self._environments:
            self._environments[folder] = Environment.beside(folder)
        return self._environments[folder]

    def load_agent_yaml(self, path: str | Path, suites: Sequence[str | Path] = ()) -> Agent:
        """The agent that a file (or the agent.yaml of a folder) describes.

        It has the cases of the files in `suites` too, whether or not it names them itself.
        Raises FileNotFoundError, and ConfigError with a line per problem and its place.
        """
        left_out = current_invalid_suites()
        while True:
            try:
                return self._loaded(path, suites)
            except ConfigError as error:
                if left_out is None or not left_out.take(error):
                    raise

    def _loaded(self, path: str | Path, suites: Sequence[str | Path]) -> Agent:
        file = agent_file(path)
        folder = file.parent.absolute()
        env = self.environment(folder)
        source = self._written[folder] = Source.read(file, display_path(file))
        also = [os.path.relpath(one, folder) for one in suites]
        gathered = gather_cases(source, file.absolute(), env.substitute, also)
        self.cases_read |= gathered.read
        agent = self._validated(gathered, folder, source)
        return _with_sources(agent, source)

    def _validated(self, gathered: GatheredAgent, folder: Path, source: Source) -> Agent:
        env = self.environment(folder)
        merged = self.merge_configs(gathered.data, self._shared(folder))
        merged = with_models(merged, lambda model: with_provider_variables(model, env))
        places = Locations(source, gathered.origins)
        agent = _agent(merged, places).with_base_dir(folder).with_locator(places)
        raise_on_lost_checks(lost_checks(agent), places)
        return self._with_prices(agent, folder)

    def agent_from(
        self,
        values: Mapping[str, Any],
        cases: str | Path | Iterable[Any] | None = None,
        folder: Path | None = None,
    ) -> Agent:
        """Return the agent that values of an agent.yaml describe which stand in Python.

        `cases` are test cases or the path of a data file; relative paths start from `folder`, else
        from the working folder. Raises ConfigError.
        """
        # Imported here because most agents are read from files.
        from holodeck.config.cases.rows import to_node  # noqa: PLC0415

        folder = (folder or Path.cwd()).absolute()
        source = Source(_NO_FILE, to_node(dict(values), 1))
        gathered = GatheredAgent(dict(values))
        try:
            if isinstance(cases, str | Path):
                gathered = self._cases_of_file(folder / cases)
                gathered.data |= values
            elif cases is not None:
                cases = list(cases)
                source = Source(_NO_FILE, to_node({**values, "test_cases": cases}, 1))
                for index, case in enumerate(cases):
                    gathered.add(case, Origin(source, ("test_cases", index)))
                gathered.data["test_cases"] = gathered.cases
            agent = self._validated(gathered, folder, source)
        except ConfigError as error:
            text = str(error).replace(f"{_NO_FILE}:1:1: ", "")
            field, _, message = text.partition(": ")
            raise ConfigError(field, message) from None
        return agent if isinstance(cases, str | Path) else agent.with_locator(None)

    def _cases_of_file(self, file: Path) -> GatheredAgent:
        """Return the test cases of a data file, with their places in it."""
        from holodeck.config.cases.rows import to_node  # noqa: PLC0415 - see above

        source = Source(_NO_FILE, to_node({"test_cases_file": file.name}, 1))
        beside = file.parent / DEFAULT_AGENT_FILE
        return gather_cases(source, beside, self.environment(file.parent).substitute)

    def with_backend(self, agent: Agent, backend: str | Mapping[str, Any]) -> Agent:
        """Return the agent with another `backend`, as YAML has it. Raises ConfigError."""
        parts = {name: getattr(agent, name) for name in ("name", "model", "instructions", "tools")}
        values = {name: part for name, part in parts.items() if part is not None}
        given = self.agent_from({**values, "backend": backend}, folder=agent.base_dir)
        return agent.model_copy(update={"backend": given.backend})

    def load_global_config(self) -> GlobalConfig | None:
        """The user's own configuration; None if there is none."""
        for folder in user_folders(self.environment()):
            found = self._config_in(folder)
            if found is not None:
                return found
        return None

    def load_project_config(self, project_dir: str | Path) -> GlobalConfig | None:
        """The configuration beside an agent.yaml; None if there is none."""
        return self._config_in(Path(project_dir).absolute())

    def merge_configs(
        self, agent: Mapping[str, Any], shared: GlobalConfig | None
    ) -> dict[str, Any]:
        """`agent` as written, the missing keys of its models taken from `shared`'s providers."""
        if shared is None or not shared.providers:
            return dict(agent)
        return with_models(agent, lambda model: _with_provider(model, shared))

    def resolve_execution_config(
        self,
        cli_config: ExecutionConfig | None = None,
        yaml_config: ExecutionConfig | None = None,
        project_config: ExecutionConfig | None = None,
        user_config: ExecutionConfig | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> ExecutionConfig:
        """Every setting with a value: CLI > agent.yaml > project > user > HOLODECK_* > default."""
        layers = [
            SettingsLayer(cli_config, COMMAND_LINE),
            SettingsLayer(yaml_config, DEFAULT_AGENT_FILE),
            SettingsLayer(project_config, "project config"),
            SettingsLayer(user_config, "user config"),
        ]
        return resolve_settings(layers, self.environment(), defaults or DEFAULT_EXECUTION_CONFIG)

    def parse_yaml(self, path: str | Path) -> dict[str, Any]:
        """A YAML mapping as plain values, variables substituted. Raises ConfigError."""
        file = Path(path)
        return Source.read(file, display_path(file)).data(self.environment(file.parent).substitute)

    def resolve_file_path(self, file_path: str | Path, base_dir: str | Path) -> Path:
        """A path of the configuration as an absolute one. Raises FileNotFoundError."""
        full = (Path(base_dir) / file_path).resolve()
        if not full.exists():
            raise errors.FileNotFoundError(
                str(file_path), f"is not there: {full}{suggest_file(full)}"
            )
        return full

    def settings_of(self, agent: Agent, cli_config: ExecutionConfig | None) -> ExecutionConfig:
        """The settings of a run of `agent`, each value knowing its source."""
        layers = self._layers(agent.base_dir, agent.execution, cli_config)
        return resolve_settings(layers, self.environment(agent.base_dir), DEFAULT_EXECUTION_CONFIG)

    def in_use(
        self, agent: Agent | None = None, cli_config: ExecutionConfig | None = None
    ) -> list[EffectiveSetting]:
        """What holds for a run of `agent` that this loader read, or for any in the working folder:
        every setting and every key of the agent's model, with its source.
        """
        folder = Path.cwd() if agent is None else agent.base_dir
        env = self.environment(folder)
        layers = self._layers(folder, agent.execution if agent else None, cli_config)
        rows = effective_settings(
            resolve_settings(layers, env, DEFAULT_EXECUTION_CONFIG), layers, env
        )
        if agent is None or agent.model is None:
            return rows
        shared = self._shared_files(folder)
        return [*rows, *effective_model_settings(agent.model, self._written[folder], shared, env)]

    def overridden_notice(
        self, agent: Agent, cli_config: ExecutionConfig | None = None
    ) -> str | None:
        """What to tell whoever set variables that a `config.yaml` overrules; None if nobody did."""
        has_shared = bool(self._shared_files(agent.base_dir))
        return overridden_notice(self.in_use(agent, cli_config)) if has_shared else None

    def _layers(
        self, folder: Path, own: ExecutionConfig | None, cli_config: ExecutionConfig | None
    ) -> list[SettingsLayer]:
        project, user = self.load_project_config(folder), self.load_global_config()
        return [
            SettingsLayer(cli_config, COMMAND_LINE),
            SettingsLayer(own, DEFAULT_AGENT_FILE),
            SettingsLayer(project.execution if project else None, "project config", is_shared=True),
            SettingsLayer(user.execution if user else None, "user config", is_shared=True),
        ]

    def _shared_files(self, folder: Path) -> list[ConfigFile]:
        """The project's and the user's configuration files that there are, in this order."""
        users = [one for one in user_folders(self.environment()) if self._config_in(one)]
        folders = dict.fromkeys([Path(folder).absolute(), *users[:1]])
        return [
            ConfigFile(self._config_sources[one], config)
            for one in folders
            if (config := self._config_in(one)) is not None
        ]

    def _with_prices(self, agent: Agent, folder: Path) -> Agent:
        """The agent with all prices that the configuration files know."""
        configs = (self.load_project_config(folder), self.load_global_config())
        shared = [one.prices for one in configs if one is not None]
        if not any(shared):
            return agent
        return agent.model_copy(update={"prices": merged_prices([agent.prices, *shared])})

    def _shared(self, folder: Path) -> GlobalConfig | None:
        """Project and user configuration as one, the project's keys winning."""
        project, user = self.load_project_config(folder), self.load_global_config()
        if project is None or user is None:
            return project or user
        return GlobalConfig(providers=_merged_providers(user, project))

    def _config_in(self, folder: Path) -> GlobalConfig | None:
        if folder not in self._configs:
            self._configs[folder] = self._read_config(folder)
        return self._configs[folder]

    def _read_config(self, folder: Path) -> GlobalConfig | None:
        files = [folder / name for name in CONFIG_NAMES if (folder / name).is_file()]
        if not files:
            return None
        if len(files) > 1:
            logger.warning("%s is used; %s beside it is ignored", files[0], files[1].name)
        source = self._config_sources[folder] = Source.read(files[0], display_path(files[0]))
        data = source.data(self.environment(folder).substitute)
        found = _global(data, Locations(source))
        if "execution" in found.model_fields_set and found.execution is None:
            raise_on_lost_checks([(("execution",), NO_VALUE)], Locations(source))
        return _with_sources(found, source)


def load_agent_with_config(
    path: str | Path,
    cli_config: ExecutionConfig | None = None,
    suites: Sequence[str | Path] = (),
) -> tuple[Agent, ExecutionConfig, ConfigLoader]:
    """The agent of a file, the settings of a run of it, and the loader that read both."""
    loader = ConfigLoader()
    agent = loader.load_agent_yaml(path, suites)
    for warning in unknown_variable_warnings(loader.environment(agent.base_dir)):
        logger.warning("%s", warning)
    settings = loader.settings_of(agent, cli_config)
    return with_case_settings(agent, settings), settings, loader


def agent_file(path: str | Path) -> Path:
    """The agent.yaml that `path` means: itself, or the one in it. Raises FileNotFoundError."""
    file = Path(path)
    try:
        file = file / DEFAULT_AGENT_FILE if file.is_dir() else file
        exists = file.exists()
    except OSError as error:  # its name is too long, a folder of it is locked
        raise errors.FileNotFoundError(str(path), unreadable_reason(error)) from error
    if not exists:
        patterns = ("*.yaml", "*.yml")
        hint = suggest_file(file, *patterns) or _only_yaml(file.parent)
        raise errors.FileNotFoundError(str(file), f"there is no such file{hint}")
    return file


def _only_yaml(folder: Path) -> str:
    names = sorted(one.name for one in folder.glob("*.y*ml")) if folder.is_dir() else []
    return f"; found there: {', '.join(names[:5])}" if names else "; write one, or name another"


def _agent(data: Mapping[str, Any], places: Locations) -> Agent:
    try:
        return Agent.model_validate(data)
    except ValidationError as error:
        # Imported here because most files are right: the file may hold more than the agent.
        from holodeck.models.suite import AgentFile  # noqa: PLC0415

        raise config_error(error, places, AgentFile) from None


def _global(data: Mapping[str, Any], places: Locations) -> GlobalConfig:
    try:
        return GlobalConfig.model_validate(data)
    except ValidationError as error:
        raise config_error(error, places, GlobalConfig) from None


def with_models(
    agent: Mapping[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """An agent.yaml's data with every model in it changed: the agent's and all others."""

    def changed(part: Any) -> Any:
        if not isinstance(part, dict) or not isinstance(part.get("model"), dict):
            return part
        return {**part, "model": change(part["model"])}

    def judged(part: Any, key: str) -> Any:
        metrics = part.get(key) if isinstance(part, dict) else None
        if not isinstance(metrics, list) or not any(map(_names_a_model, metrics)):
            return part
        return {**part, key: [changed(metric) for metric in metrics]}

    def of_case(part: Any) -> Any:
        return judged(judged(part, "evaluations"), "scorers")

    merged: dict[str, Any] = dict(changed(dict(agent)))
    if "evaluations" in merged:
        merged["evaluations"] = judged(changed(merged["evaluations"]), "metrics")
    cases = merged.get("test_cases")
    if isinstance(cases, list):
        merged["test_cases"] = [
            _with_turns(_with_simulator(of_case(case), changed), of_case) for case in cases
        ]
    return merged


def _with_simulator(case: Any, change: Callable[[Any], Any]) -> Any:
    """The case with the model changed that plays the user."""
    has_one = isinstance(case, dict) and "simulate" in case
    return {**case, "simulate": change(case["simulate"])} if has_one else case


def _with_turns(case: Any, change: Callable[[Any], Any]) -> Any:
    """The case with every turn of it changed, and every check of its script."""
    if not isinstance(case, dict):
        return case

    def checked(step: Any) -> Any:
        has_check = isinstance(step, dict) and "check" in step
        return {**step, "check": change(step["check"])} if has_check else step

    for key, of_part in (("turns", change), ("script", checked)):
        if isinstance(case.get(key), list):
            case = {**case, key: [of_part(one) for one in case[key]]}
    return case


def _names_a_model(metric: Any) -> bool:
    return isinstance(metric, dict) and "model" in metric


def _with_provider(model: dict[str, Any], shared: GlobalConfig) -> dict[str, Any]:
    name = model.get("provider")
    providers = shared.providers or {}
    fitting = [one for one in providers.values() if one.provider == name]
    provider = providers.get(str(name)) or next(iter(fitting), None)
    if provider is None:
        return model
    known = {key: getattr(provider, key) for key in provider.model_fields_set}
    return {**known, **model, "provider": name}


def _merged_providers(user: GlobalConfig, project: GlobalConfig) -> dict[str, Any]:
    merged = dict(user.providers or {})
    for name, own in (project.providers or {}).items():
        below = merged.get(name)
        known = {key: getattr(own, key) for key in own.model_fields_set}
        merged[name] = own if below is None else below.model_copy(update=known)
    return merged


W = TypeVar("W", Agent, GlobalConfig)


def _with_sources(config: W, source: Source) -> W:
    """The same, its execution settings knowing their places."""
    if config.execution is None:
        return config
    places = {name: source.place(("execution", name)) for name in setting_fields()}
    return config.model_copy(update={"execution": config.execution.with_sources(places)})
