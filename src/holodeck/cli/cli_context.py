"""One call of `holodeck`: how much it may say, and what it must not."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holodeck.cli.read_tracker import ReadTracker
    from holodeck.lib.redact import Redactor

MAX_MESSAGE = 1900
"""Characters of a message: what was found may be a value of megabytes."""
_SHORT_FLAGS = re.compile(r"-[a-zA-Z]+")


class CliContext:
    """Travels as click's `obj` from `main` to the command and back to the error handler."""

    def __init__(self, verbosity: int = 0) -> None:
        self.verbosity = verbosity
        """How often -v was given; from 2 on errors come with their traceback."""
        self.read_tracker: ReadTracker | None = None
        """Notes what is read, where somebody watches."""
        self._notices: set[str] = set()
        self._secrets: list[str] = []
        self._redactor: Redactor | None = None

    @classmethod
    def of(cls, args: Sequence[str]) -> "CliContext":
        """Read from the arguments, because errors have to be shown before they are parsed."""
        options = args[: args.index("--")] if "--" in args else args
        short = sum(arg.count("v") for arg in options if _SHORT_FLAGS.fullmatch(arg))
        return cls(short + sum(arg == "--verbose" for arg in options))

    def protect(self, secrets: Iterable[str]) -> None:
        """From now on none of these is shown."""
        self._secrets += secrets
        self._redactor = None

    def is_news(self, notice: str) -> bool:
        """Whether a notice was not given yet; several agents may share what it is about."""
        is_new = notice not in self._notices
        self._notices.add(notice)
        return is_new

    @property
    def redactor(self) -> "Redactor":
        """Knows the protected values and those of the environment."""
        if self._redactor is None:
            # Imported here because `holodeck --help` has nothing to hide.
            from holodeck.config.secrets import collect
            from holodeck.lib.redact import Redactor

            self._redactor = Redactor([*self._secrets, *collect()])
        return self._redactor

    def brief(self, text: str) -> str:
        """`text` clean, and short enough for a message whatever it quotes."""
        from holodeck.lib.text import abridged

        return abridged(self.clean(text), MAX_MESSAGE)

    def clean(self, text: str) -> str:
        """`text` without secrets and control characters."""
        from holodeck.lib.text import printable

        return printable(self.redactor.redact(text))
