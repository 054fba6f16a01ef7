"""Open the recordings of a run, as its settings say."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import holodeck
from holodeck.config.loader import ConfigLoader
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

_HASHED = ("instructions", "tools")
"""The parts of the configuration that files have a hash of."""
EMBEDDINGS = "embeddings"


@contextmanager
def open_recordings(
    agent: Agent,
    mode: Mode,
    config: ExecutionConfig,
    loader: ConfigLoader,
    source: str,
    note: Callable[[str], None],
) -> Iterator[Recordings]:
    """Yield the recordings of an agent; what is asked outside of cases is recorded, too.

    `source` is the agent.yaml; `note` is called with what readers of the report must know.
    Raises ConfigError for recordings that cannot be replayed, and ReportError if what was recorded
    cannot be written.
    """
    about = about_agent(agent)
    redactor = Redactor(collect(agent, loader.environment(agent.base_dir)))
    is_strict = bool(config.strict_recordings)
    block = agent.recordings or RecordingsConfig()
    settings = RecordingSettings(mode, block.ignore, block.max_age_days, is_strict, redactor)
    folder = recordings_folder(agent, config, source)
    recordings = Recordings(folder, about, names_of(agent.test_cases or ()), settings, note)
    is_replay = mode == "replay"
    here = only_loopback() if is_replay else nullcontext()
    shared = recordings.shared
    handlers = shared.handlers(AGENT, EMBEDDINGS)
    with (
        here,
        keys_needed(needed=not is_replay),
        answering_requests(handlers),
        recording_tools(shared),
    ):
        try:
            yield recordings
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
