"""The tree of all errors that holodeck raises; each class has an exit code.

HoloDeckError
├── ConfigError              exit 2   the configuration or the command line is wrong
│   ├── FileNotFoundError    exit 2   a file that the configuration names is missing
│   ├── MissingExtra         exit 2   an optional library is not installed
│   └── NotSupportedYet      exit 2   a key of the format that is not implemented yet
├── ValidationError          exit 2   a value breaks a rule of its own type
├── ModelStoreError          exit 3   a local model's weights are not available
├── ExecutionError           exit 3   the agent could not be run
│   ├── BackendError         ← BackendInitError, BackendSessionError, BackendTimeoutError
│   ├── AgentFactoryError
│   ├── VectorStoreError              a vector store could not be reached or used
│   └── ReportError                   a report or the record could not be written
├── EvaluationError          exit 4   a metric or its judge could not be run
└── NothingSelected          exit 5   there is nothing to test
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import unquote, urlsplit


class ExitCode(IntEnum):
    """The exit codes of the `holodeck` command."""

    PASSED = 0
    TEST_FAILED = 1
    CONFIG = 2
    EXECUTION = 3
    EVALUATION = 4
    NOTHING_SELECTED = 5
    BUDGET = 6
    INTERRUPTED = 130
    TERMINATED = 143


INTERRUPTED = (ExitCode.INTERRUPTED, ExitCode.TERMINATED)
"""The exit codes of a run that a signal ended."""
_RANKED = (
    *INTERRUPTED,
    ExitCode.CONFIG,
    ExitCode.EXECUTION,
    ExitCode.EVALUATION,
    ExitCode.BUDGET,
    ExitCode.TEST_FAILED,
    ExitCode.NOTHING_SELECTED,
    ExitCode.PASSED,
)


def worst_exit_code(codes: Iterable[int]) -> ExitCode:
    """Return the worst exit code of several runs; an unknown code counts as 3."""
    known = [ExitCode(code) if code in _RANKED else ExitCode.EXECUTION for code in codes]
    return min(known, key=_RANKED.index)


class HoloDeckError(Exception):
    """The base class of all errors that holodeck raises."""

    exit_code: ClassVar[ExitCode] = ExitCode.EXECUTION
    label: ClassVar[str] = "Error"


class ConfigError(HoloDeckError):
    """The configuration is wrong: `field` is the location, `message` the problem and its fix."""

    exit_code = ExitCode.CONFIG
    label = "Configuration Error"

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        self.message = message
        super().__init__(f"{field}: {message}")


class FileNotFoundError(ConfigError):  # noqa: A001 - the name is public API
    """A file that the configuration or the command line names is missing."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(path, message)


class MissingExtra(ConfigError):
    """An optional library is required and not installed."""

    def __init__(self, extra: str, needed_by: str) -> None:
        self.extra = extra
        command = install_command(extra)
        super().__init__(needed_by, f"needs an optional library; install it with: {command}")


class NotSupportedYet(ConfigError):
    """A key of the format that this version does not implement."""

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
"""What a provider rejects: the API key, the quota, the model or URL, or this request; `unreachable`
means that the server never answered in the run."""


class BackendError(ExecutionError):
    """A call of the agent failed.

    `attempts` are the failed attempts (`models.test_result.Attempt`). `seen` is what the agent did
    before the error (`lib.backends.base.ExecutionResult`), or None. `permanent` means that every
    other call will fail likewise, for example because the API key is wrong or the quota is
    used up. `refusal` is what the provider rejected; None if it did not reject anything. `raised`
    is what the user's code raised in another process (`outcome.RaisedError`), or None.
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
        """Mark the error as permanent, because the server was never reached."""
        self.refusal, self.permanent = "unreachable", True


class BackendInitError(BackendError):
    """The agent could not be built or reached at all, so no case can run."""


class BackendSessionError(BackendError):
    """One conversation with the agent failed."""


class BackendTimeoutError(BackendError):
    """The agent did not respond within its time limit."""


class AgentFactoryError(BackendError):
    """Building or invoking the Semantic Kernel agent failed."""


class VectorStoreError(ExecutionError):
    """A vector store could not be reached or used; the message names it and what to change."""


class ReportError(ExecutionError):
    """A report, or the record of a run, could not be written."""


class EvaluationError(HoloDeckError):
    """A metric could not be computed, so there is no verdict about the agent.

    `raised` is what the user's code raised in another process (`outcome.RaisedError`), or
    None.
    """

    raised: object | None = None
    exit_code = ExitCode.EVALUATION
    label = "Evaluation Error"


class NothingSelected(HoloDeckError):
    """There is no test case to run, which does not count as success."""

    exit_code = ExitCode.NOTHING_SELECTED
    label = "Nothing to test"


DISTRIBUTION = "holodeck-harness"
"""The name on the package index, where `holodeck` is another project."""


def install_command(extra: str) -> str:
    """Return the shell command that adds an extra to this installation, for any folder."""
    name = f"{DISTRIBUTION}[{extra}]"
    origin = _origin()
    url = str(origin.get("url", ""))
    if origin.get("dir_info", {}).get("editable"):
        checkout = Path(unquote(urlsplit(url).path))
        if Path(sys.prefix) == checkout / ".venv":
            return shlex.join([str(checkout / "scripts" / "install"), extra])
        return f"python -m pip install --editable {shlex.quote(f'{checkout}[{extra}]')}"
    if url:
        kind = origin.get("vcs_info", {}).get("vcs")
        name = f"{name} @ {f'{kind}+' if kind else ''}{url}"
    return f"python -m pip install '{name}'"


def _origin() -> dict[str, Any]:
    """Return the installer's record of the package's origin; empty for a package index."""
    # Imported here because every command imports this module, and few need an extra.
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415

    try:
        note = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        return {}
    origin = json.loads(note) if note else {}
    return origin if isinstance(origin, dict) else {}
