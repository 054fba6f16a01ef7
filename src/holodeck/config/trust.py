"""What an agent.yaml runs and where it sends: code, commands and addresses, and what is refused."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, SecretStr

from holodeck.config.addresses import Address, hosts_in
from holodeck.config.checks.findings import CheckContext, raise_on_errors
from holodeck.config.checks.programs import named_code
from holodeck.config.environment import Environment, values_in
from holodeck.config.model_calls import all_metrics
from holodeck.config.yaml.source import KeyPath
from holodeck.lib.evaluators.build import RequiredInputs
from holodeck.models.agent import Agent
from holodeck.models.backend import McpBackendConfig, ProcessBackendConfig
from holodeck.models.base import NetworkUse, PathUse, is_used, keys_used, walk
from holodeck.models.config import GlobalConfig, setting_fields
from holodeck.models.llm import PROVIDERS, LLMProvider
from holodeck.models.metrics.azure import AzureProject
from holodeck.models.metrics.base import ClassMetric
from holodeck.models.tool import McpTool
from holodeck.models.tools.knowledge import S3_ENDPOINTS, DatabaseConfig, KnowledgeTool


def named_commands(agent: Agent) -> Iterator[tuple[KeyPath, str]]:
    """Yield the programs that a run starts, each with its path."""
    backend = agent.backend
    if isinstance(backend, ProcessBackendConfig | McpBackendConfig) and backend.command:
        yield ("backend", "command"), backend.command[0]
    for index, tool in enumerate(agent.tools or ()):
        if isinstance(tool, McpTool) and tool.command is not None:
            yield ("tools", index, "command"), tool.command


def named_addresses(agent: Agent) -> Iterator[Address]:
    """Yield the addresses of models, agents, tools, stores and collectors."""
    for path, part in _parts_of(agent):
        provider = part.provider if isinstance(part, LLMProvider) else None
        for key in keys_used(type(part), NetworkUse.SERVER):
            value = getattr(part, key)
            text = value.get_secret_value() if isinstance(value, SecretStr) else value
            may_be_path = is_used(type(part).model_fields[key], PathUse.READ)
            if isinstance(text, str) and ("://" in text or not may_be_path):
                yield Address((*path, key), text, provider)


def _parts_of(agent: Agent) -> Iterator[tuple[KeyPath, BaseModel]]:
    """Yield the models in an agent that reach out by themselves, each with its path.

    Of test cases these are the metrics and the simulated user. The rest of a case is its texts,
    and files, which are downloaded from public addresses only.
    """
    for key in type(agent).model_fields:
        if key != "test_cases":
            yield from _models_in(getattr(agent, key), (key,))
    for path, metric in all_metrics(agent):
        if path[0] == "test_cases":
            yield from _models_in(metric, path)
    for number, case in enumerate(agent.test_cases or ()):
        if case.simulate is not None:
            yield from _models_in(case.simulate, ("test_cases", number, "simulate"))


def _models_in(part: Any, path: KeyPath) -> Iterator[tuple[KeyPath, BaseModel]]:
    return ((at, model) for at, model in walk(part, path) if isinstance(model, BaseModel))


def _reach_without_address(part: BaseModel) -> tuple[str, str] | None:
    """Return the key by which a part reaches out although no address says so, and the reason.

    None if it does not.
    """
    match part:
        case DatabaseConfig(named_class=None, is_embedded=False):
            return "provider", f"refuses vector stores on servers; found {part.provider}"
        case AzureProject():
            return "project_name", "refuses your sign-in to Azure"
        case LLMProvider():
            return _reach_of_model(part)
        case ClassMetric(user_class=None):
            return "class", "refuses classes of libraries"
    return None


def _reach_of_model(model: LLMProvider) -> tuple[str, str] | None:
    if model.protocol == "litellm":
        return "provider", f"refuses {model.provider}, whose library finds keys by itself"
    if model.protocol != "local":
        return None
    # Imported here because few models are local.
    from holodeck.lib.local_models.store import is_path

    is_file = is_path(model.name)
    return ("name", "refuses weights from a file, whose reader is not safe") if is_file else None


def refuse_untrusted(agent: Agent, env: Environment, user: GlobalConfig | None) -> None:
    """Raise ConfigError for everything that an agent of a stranger must not run or reach.

    `env` and `user`, the user's configuration, may name endpoints.
    """
    context = CheckContext(agent, RequiredInputs(agent))
    for path, name in named_code(agent):
        context.error(path, f"--untrusted refuses code; found {name!r}")
    for path, name in named_commands(agent):
        context.error(path, f"--untrusted refuses commands; found {name!r}")
    for path, part in _parts_of(agent):
        reach = _reach_without_address(part)
        if reach is not None:
            context.error((*path, reach[0]), f"--untrusted {reach[1]}")
    allowed = _hosts_of_user(env, user)
    for address in named_addresses(agent):
        is_users = bool(address.hosts) and allowed.issuperset(address.hosts)
        is_known = is_users or address.is_local or address.is_providers_own
        # Other servers obey what they are sent, also on this machine: that of Docker, for example.
        if address.provider is None or not is_known:
            context.error(address.path, f"--untrusted refuses requests to {address.shown}")
    raise_on_errors(context.findings)


def _hosts_of_user(env: Environment, user: GlobalConfig | None) -> set[str]:
    """Return the hosts of the endpoints that the user chose, and no repository did."""
    names = [name for facts in PROVIDERS.values() for name in facts.endpoint]
    texts = [env[name] for name in names if name in env and env.is_users(name)]
    texts += [provider.endpoint or "" for provider in ((user and user.providers) or {}).values()]
    return {host for text in texts for host in hosts_in(text)}


def addresses_of_repository(agent: Agent, env: Environment) -> Iterator[tuple[Address, str]]:
    """Yield the addresses elsewhere that a `.env` file of the repository chose, with the file."""
    values = [(env[name].lower(), env.source_of(name)) for name in env if not env.is_users(name)]
    addresses = [*named_addresses(agent), *_named_by_variables(agent, env)] if values else []
    for address in addresses:
        if address.is_local or address.is_providers_own:
            continue
        parts = {value.lower() for value in values_in.get(address.text, ())}
        for text, source in values:
            # Hosts that cannot be told may be in any URL.
            names_host = any(host in text for host in address.hosts or ("://",))
            is_part = text in parts and any(text in host for host in address.hosts)
            if source is not None and (names_host or is_part):
                yield address, source
                break


def _named_by_variables(agent: Agent, env: Environment) -> Iterator[Address]:
    """Yield the addresses that only variables name: of a Ray cluster, which gets the agent's
    folder, and of the storage that documents come from, which gets the user's key.
    """
    place = env.get(setting_fields()["run_on"].variable, "")
    if "://" in place:
        yield Address(("execution", "run_on"), place)
    for index, tool in enumerate(agent.tools or ()):
        if isinstance(tool, KnowledgeTool) and tool.source.lower().startswith("s3://"):
            for name in S3_ENDPOINTS:
                if name in env:
                    yield Address(("tools", index, "source"), env[name])


def other_hosts(agent: Agent) -> Iterator[Address]:
    """Yield the addresses of models that are neither here nor at their provider."""
    for address in named_addresses(agent):
        is_models = address.provider is not None
        if is_models and not (address.is_local or address.is_providers_own):
            yield address
