"""An exception that code of the user's raised, and where."""

from dataclasses import dataclass

from holodeck.models.base import Count, Model


class RaisedError(Model):
    """An exception of the user's code: an agent, a tool, a check or a step of a script."""

    error: str
    """Its type and message."""
    file: str
    """Relative to the working directory where it lies in there."""
    line: Count
    function: str
    code: str | None = None
    """The line of code; None where the source cannot be read."""
    traceback: list[str] = []
    """The frames of the user's code, the outermost first."""

    @property
    def place(self) -> str:
        """`agent.py:12: return prices[item]`."""
        place = f"{self.file}:{self.line}"
        return f"{place}: {self.code}" if self.code else place


@dataclass(frozen=True)
class Reason:
    """Why a test did not pass, and what the user's code raised, if that is why."""

    text: str
    raised: RaisedError | None = None

    def __str__(self) -> str:
        """`KeyError: 'tea' (agent.py:12: return prices[item])`."""
        return self.text if self.raised is None else f"{self.text} ({self.raised.place})"

    def after(self, beginning: str) -> "Reason":
        """The same after words that say where."""
        return Reason(beginning + self.text, self.raised)
