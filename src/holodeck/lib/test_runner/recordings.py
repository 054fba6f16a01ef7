"""Open the recordings of a run, as its settings say."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import holodeck
from holodeck.config.secrets import collect
from holodeck.lib.llm.endpoint import keys_needed
from holodeck.lib.llm.request_handler import AGENT, answering_requests
from holodeck.lib.recordings.loopback import only_loopback
from holodeck.lib.recordings.recording import Mode, RecordingSettings
from holodeck.lib.recordings.store import Recordings, file_name
from holodeck.lib.records.fingerprint import hash_parts
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.tools.recorded import recording_tools
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.recordings import RecordingsConfig
from holodeck.models.test_case import TestCaseModel

if TYPE_CHECKING:
    from holodeck.lib.test_runner.case_run import CaseSetup

_HASHED = ("instructions", "tools")
"""The parts of the configuration that files have a hash of."""
EMBEDDINGS = "embeddings"


@contextmanager
def open_recordings(setup: "CaseSetup", mode: Mode, source: str) -> Iterator[None]:
    """Record and replay within the block, also what is asked outside of cases.

    `source` is the agent.yaml.
    Raises ConfigError for recordings that cannot be replayed, and ReportError if what was recorded
    cannot be written.
    """
    agent, config = setup.agent, setup.config
    redactor = Redactor(collect(agent, setup.config_loader.environment(agent.base_dir)))
    is_strict = bool(config.strict_recordings)
    block = agent.recordings or RecordingsConfig()
    settings = RecordingSettings(mode, block.ignore, block.max_age_days, is_strict, redactor)
    folder = recordings_folder(agent, config, source)
    names, note = names_of(agent.test_cases or ()), setup.evaluator_set.note
    recordings = setup.recordings = Recordings(folder, about_agent(agent), names, settings, note)
    is_replay, shared = mode == "replay", recordings.shared
    with (
        only_loopback() if is_replay else nullcontext(),
        keys_needed(needed=not is_replay),
        answering_requests(shared.handlers(AGENT, EMBEDDINGS)),
        recording_tools(shared),
    ):
        try:
            yield
        finally:
            recordings.close()


def about_agent(agent: Agent) -> dict[str, Any]:
    """Return what recordings say about their agent."""
    parts, _ = hash_parts(agent)
    return {
        "agent": agent.name,
        "model": None if agent.model is None else agent.model.label,
        "hashes": {name: parts[name] for name in _HASHED},
        "holodeck": holodeck.__version__,
    }


def recordings_folder(agent: Agent, config: ExecutionConfig, source: str) -> Path:
    """Return the folder with the recordings of an agent."""
    folder = config.path_of("recordings", agent.base_dir) or agent.base_dir / "recordings"
    return folder / Path(file_name(Path(source).stem)).stem


def names_of(cases: Sequence[TestCaseModel]) -> list[str]:
    """Return what recordings call the cases: id, else name, else input; repeated ones numbered."""
    seen: dict[str, int] = {}
    names = []
    for case in cases:
        name = case.id or case.name or case.user_input
        if case.suite is not None and case.id is None:
            name = f"{case.suite}: {name}"
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names
