"""The agents of the end-to-end tests, here too."""

from e2e.conftest import bot_dir, write_bot

__all__ = ["bot_dir", "write_bot"]
