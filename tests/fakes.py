"""The door to what tests use instead of the world: `from fakes import FakeOpenAI, run_cli, ...`."""

from support.backend import Call, ScriptedBackend, ScriptedSession
from support.cli import (
    Ran,
    RanInTerminal,
    RunningCli,
    RunningInTerminal,
    clean_environment,
    run_cli,
    run_in_pty,
    start_cli,
    start_in_pty,
    start_python_in_pty,
)
from support.folder import AgentFolder, case
from support.screen import render
from support.server import FakeOpenAI
from support.wire_types import Fault, Reply, Request, ToolCall

__all__ = [
    "AgentFolder",
    "Call",
    "FakeOpenAI",
    "Fault",
    "Ran",
    "RanInTerminal",
    "Reply",
    "Request",
    "RunningCli",
    "RunningInTerminal",
    "ScriptedBackend",
    "ScriptedSession",
    "ToolCall",
    "case",
    "clean_environment",
    "render",
    "run_cli",
    "run_in_pty",
    "start_cli",
    "start_in_pty",
    "start_python_in_pty",
]
