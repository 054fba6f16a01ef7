"""The errors of DeepEval's metrics."""

from holodeck.errors import EvaluationError


class DeepEvalError(EvaluationError):
    """A metric of DeepEval could not be computed."""


class ProviderNotSupportedError(DeepEvalError):
    """The judge's provider is unknown."""
