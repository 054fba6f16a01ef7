"""The terminal: colours, a spinner, a live line, downloads, conversations and grouped help."""

from holodeck.lib.ui.spinner import SpinnerMixin
from holodeck.lib.ui.terminal import ANSIColors, colorize, is_tty

__all__ = ["ANSIColors", "SpinnerMixin", "colorize", "is_tty"]
