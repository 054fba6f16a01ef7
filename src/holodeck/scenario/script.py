"""The steps of a script."""

from holodeck.lib.conversation.script import (
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
