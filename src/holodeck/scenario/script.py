"""The steps of a script."""

from holodeck.lib.conversation.script_run import (
    DroppedStep,
    Step,
    agent,
    fail,
    judge,
    message,
    proceed,
    succeed,
    user,
)

__all__ = [
    "DroppedStep",
    "Step",
    "agent",
    "fail",
    "judge",
    "message",
    "proceed",
    "succeed",
    "user",
]
