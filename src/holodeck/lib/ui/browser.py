"""Opens pages in the user's browser."""

import webbrowser

from holodeck.lib.ui.live import echo


def open_in_browser(url: str, instead: str) -> None:
    """Open a page; if there is no browser, say on stderr what to do instead."""
    try:
        is_open = webbrowser.open(url)
    except webbrowser.Error:
        is_open = False
    if not is_open:
        echo(f"No browser was found: {instead}", err=True)
