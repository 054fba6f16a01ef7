"""One call of `holodeck`: how much it may say, and what it must not."""

import re
from collections.abc import Sequence

_SHORT_FLAGS = re.compile(r"-[a-zA-Z]+")


class Invocation:
    """Travels as click's `obj` from `main` to the command and back to the error handler."""

    def __init__(self, verbosity: int = 0) -> None:
        self.verbosity = verbosity
        """How often -v was given; from 2 on errors come with their traceback."""
        self.secrets: list[str] = []
        """Values that a command has learned and that must not be shown."""

    @classmethod
    def of(cls, args: Sequence[str]) -> "Invocation":
        """Read from the arguments, because errors have to be shown before they are parsed."""
        options = args[: args.index("--")] if "--" in args else args
        short = sum(arg.count("v") for arg in options if _SHORT_FLAGS.fullmatch(arg))
        return cls(short + sum(arg == "--verbose" for arg in options))

    def clean(self, text: str) -> str:
        """`text` without secrets and control characters."""
        # Imported here because `holodeck --help` has nothing to clean.
        from holodeck.config.secrets import collect
        from holodeck.lib.redact import Redactor
        from holodeck.lib.text import printable

        return printable(Redactor([*self.secrets, *collect()]).redact(text))
