"""Colours for terminals."""

from holodeck.lib.ui.terminal import color_enabled


class ANSIColors:
    """The sequences that switch a colour on, and the one that switches it off."""

    GREEN = "\x1b[92m"
    RED = "\x1b[91m"
    YELLOW = "\x1b[93m"
    CYAN = "\x1b[96m"
    RESET = "\x1b[0m"


def colorize(text: str, color: str, force_tty: bool | None = None) -> str:
    """`text` in `color`, one of ANSIColors; plain where stdout shows no colours.

    `force_tty` decides instead of looking at stdout.
    """
    wanted = color_enabled() if force_tty is None else force_tty
    return f"{color}{text}{ANSIColors.RESET}" if wanted else text
