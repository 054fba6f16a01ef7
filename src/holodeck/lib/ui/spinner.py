"""A spinner of braille dots."""

from typing import ClassVar


class SpinnerMixin:
    """Gives a class `get_spinner_char()`."""

    SPINNER_CHARS: ClassVar[list[str]] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"]
    _spinner_index: int = 0

    def get_spinner_char(self) -> str:
        """The next frame."""
        char = self.SPINNER_CHARS[self._spinner_index % len(self.SPINNER_CHARS)]
        self._spinner_index += 1
        return char
