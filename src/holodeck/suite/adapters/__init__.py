"""Adapters: `base` has the protocol; `openai` and `langchain` have an adapter each."""

from holodeck.suite.adapters.base import AgentAdapter

__all__ = ["AgentAdapter"]
