"""Reading an agent.yaml for a run, and refusing what can be known to be wrong with it."""

import logging
from pathlib import Path

from holodeck.cli.agent_paths import AgentTarget
from holodeck.cli.cli_context import CliContext
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig

logger = logging.getLogger(__name__)


def read_agent(
    subject: AgentTarget, given: ExecutionConfig, invocation: CliContext
) -> tuple[Agent, ExecutionConfig, frozenset[Path]]:
    """The agent as it is written, its settings, and the other files that its cases are from."""
    from holodeck.cli.logs import start_logging
    from holodeck.config.loader import ConfigLoader, agent_file, load_agent_with_config
    from holodeck.config.secrets import collect

    env = ConfigLoader().environment(agent_file(subject.path).parent)
    invocation.protect(collect(None, env))
    start_logging(invocation.verbosity, env, invocation.clean)
    agent, settings, loader = load_agent_with_config(subject.path, given, subject.suites)
    invocation.protect(collect(agent, env))
    notice = loader.overruled_notice(agent, given)
    if notice is not None and invocation.is_news(notice):
        logger.warning("%s", notice)
    return agent, settings, frozenset(loader.cases_read)


def check_before_run(agent: Agent, settings: ExecutionConfig) -> None:
    """Raise ConfigError for what can be known to be wrong before the run."""
    from holodeck.config import check

    _log_sources(settings)
    check.log_findings(check.check_before_run(agent, settings))


def _log_sources(settings: ExecutionConfig) -> None:
    """Tell where each setting came from; those that somebody set with -v, all of them with -vv."""
    for name in type(settings).model_fields:
        source = settings.source_of(name)
        level = logging.DEBUG if source == "default" else logging.INFO
        logger.log(level, "setting %s = %s (%s)", name, getattr(settings, name), source)
