"""The state of a `holodeck` command: its verbosity and the secrets that it must not print."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holodeck.cli.github_actions import GitHubActions
    from holodeck.cli.watch import ReadTracker
    from holodeck.lib.secrets.redact import Redactor

MAX_MESSAGE = 1900
"""Characters of a message; it may quote a value of several megabytes."""
_SHORT_FLAGS = re.compile(r"-[a-zA-Z]+")


class CliContext:
    """Passed as click's `obj` from `main` to the command and back to the error handler."""

    def __init__(self, verbosity: int = 0) -> None:
        self.verbosity = verbosity
        """How often -v was given; from 2 on, errors are printed with their traceback."""
        self.read_tracker: ReadTracker | None = None
        """Set in a run that `--watch` started."""
        self.github: GitHubActions | None = None
        """Set in a run in a step of GitHub Actions."""
        self.trusts_endpoints = False
        """Whether `--trust` consents to the endpoints of `.env` files."""
        self._notices: set[str] = set()
        self._secrets: list[str] = []
        self._redactor: Redactor | None = None

    @classmethod
    def from_args(cls, args: Sequence[str]) -> "CliContext":
        """Read the verbosity from raw arguments, because parsing them may fail."""
        options = args[: args.index("--")] if "--" in args else args
        short = sum(arg.count("v") for arg in options if _SHORT_FLAGS.fullmatch(arg))
        return cls(short + sum(arg == "--verbose" for arg in options))

    def protect(self, secrets: Iterable[str]) -> None:
        """Mask these values in all output from now on."""
        self._secrets += secrets
        self._redactor = None

    def is_new_notice(self, notice: str) -> bool:
        """Return whether the notice was not printed yet; several agents may cause the same."""
        is_new = notice not in self._notices
        self._notices.add(notice)
        return is_new

    @property
    def redactor(self) -> "Redactor":
        """Masks the protected values and those of the environment."""
        if self._redactor is None:
            # Imported here because `holodeck --help` has no secrets to mask.
            from holodeck.config.secrets import collect
            from holodeck.lib.secrets.redact import Redactor

            self._redactor = Redactor([*self._secrets, *collect()])
        return self._redactor

    def clean(self, text: str) -> str:
        """Return `text` without secrets, control characters and commands to CI services."""
        from holodeck.lib.support.text import inert

        return inert(self.redactor.redact(text))

    def brief(self, text: str) -> str:
        """Return `text` clean and at most MAX_MESSAGE characters long."""
        from holodeck.lib.support.text import shorten_middle

        return shorten_middle(self.clean(text), MAX_MESSAGE)

    def print_json(self, text: str) -> None:
        """Print JSON without secrets; its other values stay what they are."""
        from holodeck.lib.support.text import inert_json
        from holodeck.lib.ui.live import echo

        echo(self.redactor.redact(text), escape=inert_json)

    def warn(self, text: str) -> None:
        """Print a warning to stderr."""
        from holodeck.lib.ui.live import echo

        echo(self.clean(f"WARNING: {text}"), err=True)
