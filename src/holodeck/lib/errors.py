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

AgentInitializationError = BackendInitError

__all__ = [
    "AgentFactoryError",
    "AgentInitializationError",
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
