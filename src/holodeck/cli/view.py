"""`holodeck view`: opens a recorded run in the browser."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.context import CliContext
from holodeck.cli.options import agent_option, read_run, run_store_of
from holodeck.lib.ui.live import echo

if TYPE_CHECKING:
    from holodeck.lib.records.run_store import RunStore
    from holodeck.models.records.record import PastOutcome
    from holodeck.models.test_result import TestReport

_FOLDERS = "holodeck-view-"
_KEPT_S = 86_400


@click.command()
@click.argument("run", default="last")
@click.option("--live", is_flag=True, help="Show a run that goes on, until Ctrl-C.")
@click.option("--no-open", is_flag=True, help="Print the path or address only.")
@agent_option
@click.pass_context
def view(context: click.Context, run: str, live: bool, no_open: bool, agent: Path) -> None:
    """Open RUN in the browser: an id, `last`, or the path of a record or JSON report.

    The page is a temporary file, which a later call removes after a day; `holodeck report RUN -o
    report.html` writes one to keep. With --live, holodeck serves it on 127.0.0.1, at an address
    that contains a secret.
    """
    cli_context = context.ensure_object(CliContext)
    store = run_store_of(agent)
    if live:
        _serve(store.path(run), no_open, cli_context)
        return
    page = _write_page(run, store, cli_context)
    echo(page)
    if not no_open:
        _open_in_browser(page.as_uri(), f"open {page} in one, or write the page where one is")


def _read(
    run: str, store: "RunStore", context: CliContext
) -> "tuple[TestReport, list[list[PastOutcome]]]":
    """Return the report of a run or in a file, and the past of its cases if that is recorded."""
    from holodeck.cli.report import read_named
    from holodeck.lib.records.history import past_outcomes
    from holodeck.lib.test_runner.recorded import is_report, report_of

    if is_report(run):
        return read_named(run, store, context).report, []
    found = read_run(store, run, context)
    return report_of(found), past_outcomes(found, store)


def _write_page(run: str, store: "RunStore", context: CliContext) -> Path:
    """Write the page into a new folder that only the user can read."""
    import tempfile

    from holodeck.errors import ReportError
    from holodeck.lib.reports.formats import write_report_text
    from holodeck.lib.reports.html import page_of
    from holodeck.lib.reports.page_file import render_page

    report, trends = _read(run, store, context)
    page = page_of(context.redactor.redact_report(report), trends=trends)
    try:
        folder = Path(tempfile.mkdtemp(prefix=_FOLDERS))
    except OSError as error:
        raise ReportError(
            f"no temporary file can be written ({error.strerror});"
            " `holodeck report -o report.html` writes the page to a file"
        ) from error
    _remove_old_pages(folder.parent)
    path = folder / "report.html"
    write_report_text(render_page(page), path)
    return path


def _remove_old_pages(parent: Path) -> None:
    """Remove the pages that this user viewed more than a day ago: conversations do not stay."""
    import os
    import shutil
    import stat
    import time
    from contextlib import suppress

    for folder in parent.glob(f"{_FOLDERS}*"):
        with suppress(OSError):
            status = folder.lstat()
            is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
            if is_own and time.time() - status.st_mtime > _KEPT_S:
                shutil.rmtree(folder)


def _serve(record: Path, no_open: bool, context: CliContext) -> None:
    """Serve the page of a run until the command is interrupted."""
    from contextlib import suppress

    from holodeck.cli.live_view import live_server

    url, server = live_server(record, context.redactor)
    echo(url)
    if not no_open:
        _open_in_browser(url, f"open {url} in one on this machine")
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()


def _open_in_browser(url: str, instead: str) -> None:
    """Open a page; if there is no browser, say on stderr what to do instead."""
    import webbrowser

    from holodeck.lib.ui.live import echo

    try:
        is_open = webbrowser.open(url)
    except webbrowser.Error:
        is_open = False
    if not is_open:
        echo(f"No browser was found: {instead}", err=True)
