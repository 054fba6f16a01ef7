"""An exception that code of the user's raised, and where."""

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
