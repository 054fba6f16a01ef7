"""The messages between a run and its worker processes.

They are those of `lib.processes.channel`; the first item of a head is the kind of the message. To
the worker:

- `start`: first of all; the body is a pickled WorkerTask
- `run` number, index, slot: run the case at that index once; the slot is for its first request:
  number, endpoint and kind, or null
- `cancel` number: cancel a run
- `slot` number: the slot that was asked for with `enter`
- `reached` or `down`, URL: what another worker found out about an endpoint
- `close`: close the agent and end

To the parent:

- `ready` concurrency, costs, notes: the agent is ready
- `failed` class, args, fields: it is not, because of this error of holodeck
- `done` number, failure, is permanent, refusal, notes: a run is over; the body is its result
- `cancelled` number: a cancelled run is over; the body is its result, if something was graded
- `error` number, class, args, fields: a run raised an error that ends all runs
- `enter` number, endpoint, kind, run: the run asks for a slot
- `leave` number, failed: gives it back
- `return` number: gives back a slot that came with the run and was not used
- `overload` number, seconds: the endpoint reported an overload for its request
- `pause` endpoint, kind, seconds, reason: the endpoint asks for a pause
- `reached` or `down`, URL: what was found out about an endpoint
- `began` activity, run, text, timed, seconds, reason: what a run waits for, for the display
- `ended` activity: it waits no more
- `exit` text: a thread of the user's code tried to exit, which ends the run with this error
- `log` logger, level, text: a line of the log
- `event` run, stream, type: an event of a case or of its conversation; the body is its JSON
- `judge` key, what, detail: what became of a request to a judge

`judge` also goes to the other workers, whose judges count what happened to all.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from holodeck import errors
from holodeck.errors import ExecutionError, HoloDeckError
from holodeck.lib.records.recorder import json_line
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_result import TestResult


@dataclass(frozen=True)
class Surroundings:
    """What a process of this machine would inherit if it started from nothing now."""

    path: tuple[str, ...]
    """Where Python looks for modules."""
    variables: Mapping[str, str]


@dataclass(frozen=True)
class WorkerTask:
    """What a worker needs to run cases."""

    path: str
    """The agent.yaml."""
    agent: Agent
    settings: ExecutionConfig
    allow_side_effects: bool
    may_leave_folder: bool
    """Whether paths outside of the agent's folder are allowed."""
    force_ingest: bool
    log_levels: Mapping[str, int]
    """The levels of the root logger and of holodeck's, by name."""
    is_displayed: bool
    """Whether somebody watches what the runs wait for."""
    has_events: bool
    """Whether somebody listens to the events of the cases."""
    has_conversations: bool
    """Whether somebody listens to the conversations."""
    has_telemetry: bool
    """Whether the run sends telemetry, as the agent's `observability` says."""
    trace: Mapping[str, str]
    """The headers of the trace that the cases continue; empty without one."""
    folder: Path | None = None
    """The folder that travelled, where it was; the worker's working folder is its copy. None if the
    worker runs on the same machine."""
    surroundings: Surroundings | None = None
    """None on another machine."""


def pack_result(result: TestResult) -> bytes:
    """Return a result as the record has it, whatever the texts and values of the agent are."""
    return json_line(result)


def unpack_result(body: bytes) -> TestResult:
    """Return the result that was packed. Raises ValueError."""
    try:
        return TestResult.model_validate_json(body)
    except ValidationError:  # lone surrogates, and what is deeply nested
        return TestResult.model_validate(json.loads(body))


def pack_error(error: HoloDeckError) -> list[Any]:
    """Return the class of an error of holodeck, its arguments and its fields that JSON can hold."""
    fields = {name: value for name, value in vars(error).items() if _is_plain(value)}
    args = [value if _is_plain(value) else str(value) for value in error.args]
    return [type(error).__name__, args, fields]


def unpack_error(name: str, args: list[Any], fields: dict[str, Any]) -> HoloDeckError:
    """Return the error that was packed; its class is one of `holodeck.errors`."""
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, HoloDeckError)):
        kind = ExecutionError
    error: HoloDeckError = kind.__new__(kind)
    error.args = tuple(args)
    error.__dict__.update(fields)
    return error


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
