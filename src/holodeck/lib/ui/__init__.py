"""What a person sees in a terminal: colours, a spinner, one live line, a download's progress."""

from holodeck.lib.ui.spinner import SpinnerMixin
from holodeck.lib.ui.terminal import ANSIColors, colorize, is_tty

__all__ = ["ANSIColors", "SpinnerMixin", "colorize", "is_tty"]
