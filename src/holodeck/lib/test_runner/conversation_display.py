"""Following the conversations of a run as they happen, and taking part in them."""

from collections.abc import Callable

from holodeck.lib.conversation.script_run import ScriptRun
from holodeck.lib.conversation.terminal import ConversationPrinter, Debugger
from holodeck.lib.test_runner.events import StaticConversation

OnConversation = Callable[[ScriptRun | StaticConversation], None]
"""Told of a conversation before it begins."""


def show_conversations(
    clean: Callable[[str], str] | None = None, *, debug: bool = False
) -> OnConversation:
    """Shows every conversation on stderr.

    Args:
        clean: What hides secrets; None for what knows none by name.
        debug: Whether a person at the terminal may speak for a user whose turns are not written.
    """
    debugger = Debugger() if debug else None

    def attend(talk: ScriptRun | StaticConversation) -> None:
        talk.events.subscribe(ConversationPrinter(has_end=False, clean=clean, before=talk.before))
        if isinstance(talk, ScriptRun):
            talk.debugger = debugger

    return attend
