"""Describe exceptions."""

from holodeck.errors import HoloDeckError


def message_of(error: BaseException) -> str:
    """Return the message; empty if `__str__` of the exception raises."""
    try:
        return str(error)
    # The user's exception may raise anything.
    except (Exception, SystemExit, GeneratorExit):  # noqa: BLE001
        return ""


def describe(error: BaseException) -> str:
    """Return type and message on one line; only the message for holodeck's own errors."""
    text = " ".join(message_of(error).split())
    name = type(error).__name__
    if isinstance(error, HoloDeckError):
        return text or name
    return f"{name}: {text}" if text else name
