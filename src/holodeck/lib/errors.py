"""The errors under their documented path; they live in `holodeck.errors`."""

from holodeck.errors import (
    AgentFactoryError,
    BackendError,
    BackendInitError,
    BackendSessionError,
    BackendTimeoutError,
    ConfigError,
    EvaluationError,
    ExecutionError,
    FileNotFoundError,  # noqa: A004 - the name is public API
    HoloDeckError,
    ValidationError,
)

__all__ = [
    "AgentFactoryError",
    "BackendError",
    "BackendInitError",
    "BackendSessionError",
    "BackendTimeoutError",
    "ConfigError",
    "EvaluationError",
    "ExecutionError",
    "FileNotFoundError",
    "HoloDeckError",
    "ValidationError",
]
