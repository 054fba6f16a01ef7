"""`holodeck view`: opens a recorded run in the browser; `--live` serves a run while it goes on."""

import hmac
import json
import os
import secrets
import shutil
import stat
import sys
import tempfile
import time
import webbrowser
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

import click

from holodeck.cli.commands.report import read_named
from holodeck.cli.context import CliContext
from holodeck.cli.options import agent_option, file_option, read_run, run_store_of
from holodeck.errors import ReportError
from holodeck.lib.records.run_store import Run, RunStore, parse_event
from holodeck.lib.records.trends import past_outcomes, run_trends
from holodeck.lib.reports.formats import write_report_text
from holodeck.lib.reports.html import page_case, page_of, page_of_runs
from holodeck.lib.reports.page_file import Page, index_of, render_page
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.files import try_lock
from holodeck.lib.support.safe_paths import inputs_noted, refuse_input
from holodeck.lib.test_runner.grading.recorded import is_report, report_of
from holodeck.lib.ui.live import echo
from holodeck.models.base import Json
from holodeck.models.records.record import CaseFinished, CaseSkipped, RunEnd, RunHead

_FOLDERS = "holodeck-view-"
_KEPT_S = 86_400


@click.command()
@click.argument("run", required=False)
@click.option("--live", is_flag=True, help="Show a run that goes on, until Ctrl-C.")
@click.option("--no-open", is_flag=True, help="Print the path or address only.")
@file_option("Write the page to a file instead.")
@agent_option
@click.pass_context
def view(
    context: click.Context,
    run: str | None,
    live: bool,
    no_open: bool,
    output: Path | None,
    agent: Path,
) -> None:
    """Open all recorded runs in the browser, or RUN alone.

    The page of all runs shows how each test case went, since when it passes or fails, which ones
    are flaky, and any two runs compared. RUN is an id, a tag, `last`, `previous`, or the path of a
    record or JSON report.

    Without -o, the page is a temporary file, which a later call removes after a day. With --live,
    holodeck serves RUN (default: the last) on 127.0.0.1, at an address that contains a secret.
    """
    cli_context = context.ensure_object(CliContext)
    store = run_store_of(agent)
    if live:
        if output is not None:
            raise click.UsageError("--live serves a page and writes none; remove -o")
        _serve(store.path(run), no_open, cli_context)
        return
    with inputs_noted():
        page = _page(run, store, cli_context)
        if output is not None:
            refuse_input(output, "--output", ["report"])
    if output is not None:
        write_report_text(render_page(page), output)
        echo(cli_context.clean(f"Report saved to {output}"))
        return
    path = _write_page(page)
    echo(path)
    if not no_open:
        _open_in_browser(path.as_uri(), f"open {path} in one, or write the page where one is")


def _page(run: str | None, store: RunStore, context: CliContext) -> Page:
    """Return the page of all runs, or of one with the past of its cases if that is recorded."""
    redact = context.redactor.redact_report
    if run is None:
        return page_of_runs(redact(run_trends(store)))
    if is_report(run):
        return page_of(redact(read_named(run, store, context).report))
    recorded = read_run(store, run, context)
    return page_of(redact(report_of(recorded)), trends=redact(past_outcomes(recorded, store)))


def _write_page(page: Page) -> Path:
    """Write the page into a new folder that only the user can read."""
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
    for folder in parent.glob(f"{_FOLDERS}*"):
        with suppress(OSError):
            status = folder.lstat()
            is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
            if is_own and time.time() - status.st_mtime > _KEPT_S:
                shutil.rmtree(folder)


def _serve(record: Path, no_open: bool, context: CliContext) -> None:
    """Serve the page of a run until the command is interrupted."""
    url, server = live_server(record, context.redactor)
    echo(url)
    if not no_open:
        _open_in_browser(url, f"open {url} in one on this machine")
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()


def _open_in_browser(url: str, instead: str) -> None:
    """Open a page; if there is no browser, say on stderr what to do instead."""
    try:
        is_open = webbrowser.open(url)
    except webbrowser.Error:
        is_open = False
    if not is_open:
        echo(f"No browser was found: {instead}", err=True)


HOST = "127.0.0.1"
MOST_CASES = 500
"""In a response."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class GrowingRun:
    """The record of a run, of which each call reads what was appended since the last."""

    def __init__(self, path: Path, redactor: Redactor) -> None:
        self._path = path
        self._redact = redactor.redact_report
        self._offset = 0
        self._started: RunHead | None = None
        self._ended: RunEnd | None = None
        self._cases: list[CaseFinished | CaseSkipped] = []
        self._lock = Lock()

    def changes(self, after: int) -> dict[str, Json]:
        """Return what the page is about, and the cases that ended after the first `after` ones."""
        with self._lock:
            run = self._read()
            page = page_of(self._redact(report_of(run)))
            is_running = run.state == "running"
            if is_running:
                counts = f"{len(self._cases)} of {run.planned} ended: {page.counts}"
                page = replace(page, verdict="running", counts=counts, notes=())
            shown = self._cases[after : after + MOST_CASES]
            cases = [page_case(self._redact(case.result)) for case in shown]
            return {
                "page": index_of(page),
                "rows": [case.row for case in cases],
                "lines": [case.line for case in cases],
                "is_last": not is_running and after + len(cases) >= len(self._cases),
            }

    def _read(self) -> Run:
        with self._path.open("rb") as file:
            is_running = not try_lock(file.fileno())
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):  # it is still being written
                    break
                self._offset += len(line)
                match parse_event(line):
                    case RunHead() as started:
                        self._started = started
                    case RunEnd() as ended:
                        self._ended = ended
                    case CaseFinished() | CaseSkipped() as case:
                        self._cases.append(case)
        finished = {case.index: case for case in self._cases if isinstance(case, CaseFinished)}
        skipped = {case.index: case for case in self._cases if isinstance(case, CaseSkipped)}
        return Run(self._path, self._started, finished, self._ended, is_running, skipped=skipped)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *request: Any) -> None:
        """Print nothing about a browser that closed its connection."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(*request)


def live_server(path: Path, redactor: Redactor) -> tuple[str, ThreadingHTTPServer]:
    """Return a server for the record of a run, and its address.

    The address contains a token, without which nothing is served.
    """
    run = GrowingRun(path, redactor)
    token = secrets.token_urlsafe(32)
    shell = render_page(Page("holodeck", "loading", "", cases=(), is_live=True)).encode()

    class Handler(BaseHTTPRequestHandler):
        """Answers two paths, both with the token, to browsers that were sent to this address."""

        def version_string(self) -> str:
            return "holodeck"

        def log_message(self, *_: object) -> None:
            """Print nothing: the terminal belongs to the command."""

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            # A page of another site can make its name mean this machine, but not change the header.
            if self.headers.get("Host") not in {f"{HOST}:{port}", f"localhost:{port}"}:
                self._answer(HTTPStatus.FORBIDDEN, b"")
            elif _is(url.path, f"/{token}/"):
                self._answer(HTTPStatus.OK, shell, "text/html; charset=utf-8")
            elif _is(url.path, f"/{token}/results"):
                self._answer(HTTPStatus.OK, self._changes(url.query), "application/json")
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"")

        def _changes(self, query: str) -> bytes:
            after = parse_qs(query).get("after", ["0"])[0]
            return json.dumps(run.changes(int(after) if after.isdecimal() else 0)).encode()

        def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain") -> None:
            self.send_response(status)
            for name, value in {**_HEADERS, "Content-Type": kind}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = _Server((HOST, 0), Handler)
    port = server.server_address[1]
    return f"http://{HOST}:{port}/{token}/", server


def _is(path: str, wanted: str) -> bool:
    return hmac.compare_digest(path.encode(), wanted.encode())
