"""Every error holodeck raises on purpose: one tree, and each class knows its exit code.

HoloDeckError
├── ConfigError              exit 2   the configuration or the command line is wrong
│   ├── FileNotFoundError    exit 2   a file that the configuration names is not there
│   ├── MissingExtra         exit 2   an optional library is not installed
│   └── NotSupportedYet      exit 2   a known key whose behaviour does not exist yet
├── ValidationError          exit 2   a value breaks a rule of its own type
├── ModelStoreError          exit 3   a local model's weights cannot be had
├── ExecutionError           exit 3   the agent could not be run
│   ├── BackendError         ← BackendInitError, BackendSessionError, BackendTimeoutError
│   ├── AgentFactoryError
│   └── ReportError                   a report or the record could not be written
├── EvaluationError          exit 4   a metric or its judge could not be run
└── NothingSelected          exit 5   there was nothing to test
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import ClassVar, Literal


class ExitCode(IntEnum):
    """What `holodeck` tells the shell."""

    PASSED = 0
    TEST_FAILED = 1
    CONFIG = 2
    EXECUTION = 3
    EVALUATION = 4
    NOTHING_SELECTED = 5
    BUDGET = 6
    INTERRUPTED = 130
    TERMINATED = 143


class HoloDeckError(Exception):
    """The root of the tree; catching it catches everything holodeck raises on purpose."""

    exit_code: ClassVar[ExitCode] = ExitCode.EXECUTION
    label: ClassVar[str] = "Error"


class ConfigError(HoloDeckError):
    """The configuration is wrong: `field` says where, `message` what was found and wanted."""

    exit_code = ExitCode.CONFIG
    label = "Configuration Error"

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        self.message = message
        super().__init__(f"{field}: {message}")


class FileNotFoundError(ConfigError):  # noqa: A001 - the name is public API
    """A file that the configuration or the command line names is not there."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(path, message)


class MissingExtra(ConfigError):
    """An optional library is needed and not installed."""

    def __init__(self, extra: str, needed_by: str) -> None:
        # Imported here because every command imports this module, and few miss a library.
        from holodeck.installation import install_command  # noqa: PLC0415

        self.extra = extra
        super().__init__(
            needed_by,
            f"needs an optional library; install it with: {install_command(extra)}",
        )


class NotSupportedYet(ConfigError):
    """A key that belongs to the format but does nothing in this version."""

    def __init__(self, field: str, why: str = "") -> None:
        super().__init__(field, f"not supported yet{': ' + why if why else ''}; remove it")


class ValidationError(HoloDeckError):
    """A value breaks a rule of its own type."""

    exit_code = ExitCode.CONFIG
    label = "Configuration Error"

    def __init__(
        self, field: str, message: str, expected: str | None = None, actual: str | None = None
    ) -> None:
        self.field = field
        self.message = message
        self.expected = expected
        self.actual = actual
        super().__init__(f"{field}: {message}")


class ModelStoreError(HoloDeckError):
    """A local model's weights are missing, damaged, or cannot be fetched."""

    exit_code = ExitCode.EXECUTION
    label = "Model Error"


class ExecutionError(HoloDeckError):
    """The run could not be carried out."""

    exit_code = ExitCode.EXECUTION
    label = "Execution Error"


Refusal = Literal["key", "quota", "model", "request", "unreachable"]
"""What a provider refuses: the key, what is left to spend, the model or address, this request;
`unreachable` is a server that never answered in the run."""


class BackendError(ExecutionError):
    """Something went wrong on the way to the agent.

    `attempts` are the tries made until then (`models.test_result.Attempt`), `seen` is what the
    agent had done by then (`lib.backends.base.ExecutionResult`) or None. `permanent`: every
    other call will fare the same: the key is wrong, or the quota spent. `refusal` says what the
    provider objects to, where its answer says that, or that it was never reached. `raised` is what
    the user's code raised in another process (`models.outcome.RaisedError`), or None.
    """

    raised: object | None = None

    def __init__(
        self,
        message: str,
        attempts: Sequence[object] = (),
        seen: object | None = None,
        *,
        permanent: bool = False,
        refusal: Refusal | None = None,
    ) -> None:
        self.attempts = tuple(attempts)
        self.seen = seen
        self.permanent = permanent or refusal not in {None, "request"}
        self.refusal = refusal
        super().__init__(message)

    def give_up(self) -> None:
        """Take it that every other call will fare the same: the server was never reached."""
        self.refusal, self.permanent = "unreachable", True


class BackendInitError(BackendError):
    """The agent could not be built or reached at all, so no case can run."""


class BackendSessionError(BackendError):
    """One conversation with the agent failed."""


class BackendTimeoutError(BackendError):
    """The agent did not answer within its time limit."""


class AgentFactoryError(BackendError):
    """Building or invoking the Semantic Kernel agent failed."""


class ReportError(ExecutionError):
    """A report, or the record of a run, could not be written."""


class EvaluationError(HoloDeckError):
    """A metric could not be computed; this says nothing about the agent."""

    exit_code = ExitCode.EVALUATION
    label = "Evaluation Error"


class NothingSelected(HoloDeckError):
    """There is no test case to run, which is not success."""

    exit_code = ExitCode.NOTHING_SELECTED
    label = "Nothing to test"
