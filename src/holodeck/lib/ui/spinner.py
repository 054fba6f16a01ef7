"""A spinner of braille dots, or of ASCII characters."""

from typing import ClassVar


class SpinnerMixin:
    """Gives a class `get_spinner_char()`."""

    SPINNER_CHARS: ClassVar[list[str]] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"]
    ASCII_CHARS: ClassVar[list[str]] = ["|", "/", "-", "\\"]
    _spinner_index: int = 0

    def get_spinner_char(self, *, ascii_only: bool = False) -> str:
        """The next frame."""
        chars = self.ASCII_CHARS if ascii_only else self.SPINNER_CHARS
        char = chars[self._spinner_index % len(chars)]
        self._spinner_index += 1
        return char
