"""The door to everything tests pretend with: `from fakes import FakeOpenAI, Reply, ...`."""

from support.server import FakeOpenAI
from support.wire_types import Fault, Reply, Request, ToolCall

__all__ = ["FakeOpenAI", "Fault", "Reply", "Request", "ToolCall"]
