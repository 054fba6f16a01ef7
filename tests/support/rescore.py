"""What `holodeck score` makes of a recorded run."""

from dataclasses import dataclass

from holodeck.config.loader import ConfigLoader
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.test_runner.progress import RunDisplay
from holodeck.lib.test_runner.rescore import RescoringSession
from holodeck.lib.test_runner.session import SessionAgent
from holodeck.models.test_result import TestReport


@dataclass(frozen=True)
class Rescored:
    report: TestReport
    ungraded: tuple[str, ...]
    unused: tuple[str, ...]


async def rescore(agent, run, redactor=None):
    """Grade the recorded answers of a run again."""
    redactor = redactor or Redactor([])
    tested = SessionAgent("agent.yaml", agent, ConfigLoader().settings_of(agent, None))
    session = RescoringSession([tested], redactor, RunDisplay(redactor.redact), recorded=run)
    report = await session.execute()
    return Rescored(report, tuple(session.ungraded), tuple(session.unused))
