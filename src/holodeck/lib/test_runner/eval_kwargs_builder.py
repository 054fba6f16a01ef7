"""The documented path of what metrics get as their inputs."""

from holodeck.lib.evaluators.inputs import EvalKwargsBuilder, build_retrieval_context_from_tools

__all__ = ["EvalKwargsBuilder", "build_retrieval_context_from_tools"]
