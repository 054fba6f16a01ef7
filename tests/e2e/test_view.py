"""`holodeck view` and the HTML of comparisons: recorded runs in a real browser."""

import os
import socket
import struct
import sys
import threading
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holodeck.cli.commands.view import live_server
from holodeck.lib.compare.run_comparison import ComparedRun, compare_runs
from holodeck.lib.reports.html import generate_html_comparison
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.files import try_lock
from holodeck.models.records.record import CaseFinished, PlannedCase, RunEnd, RunHead
from holodeck.models.results.evidence import evidence
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import ToolInvocation
from support.chromium import needs_chromium
from support.html_page import HtmlPage
from support.report_examples import contains
from support.results import a_report, a_result

CASES = [
    {"name": "greets", "input": "hello", "evaluations": [{"metric": "contains", "value": "hello"}]},
    {"name": "parts", "input": "bye", "evaluations": [{"metric": "contains", "value": "bye"}]},
]
BROWSER = f"#!{sys.executable}\nimport sys\nopen(__file__ + '.txt', 'w').write(sys.argv[1])\n"


@pytest.fixture
def runs(write_bot, bot_dir):
    """An agent with two recorded runs, the second of which breaks a case."""
    write_bot(test_cases=CASES)
    bot_dir.run("test")
    bot_dir.write("bot.py", "def answer(message):\n    return message.replace('bye', 'ciao')\n")
    bot_dir.run("test")
    return bot_dir


def test_view_opens_the_last_run_with_the_past_of_each_case_or_says_what_to_do(runs, tmp_path):
    browser = tmp_path / "browser"
    browser.write_text(BROWSER)
    browser.chmod(0o755)

    ran = runs.run("view", "last", env={"BROWSER": str(browser), "TMPDIR": str(tmp_path)})

    assert (ran.code, ran.stderr) == (0, "")
    path = Path(ran.stdout.strip())
    assert path.parent.stat().st_mode & 0o077 == 0
    assert Path(f"{browser}.txt").read_text() == path.as_uri()
    page = HtmlPage(path.read_text())
    page.require_harmless()
    assert [[one["outcome"] for one in trend] for trend in page.index["trends"]] == [
        ["passed", "passed"],
        ["passed", "failed"],
    ]

    runs.run("report", "-o", "results.json")
    nothing = {"BROWSER": "", "PATH": str(tmp_path), "TMPDIR": str(tmp_path), "DISPLAY": None}
    ran = runs.run("view", "results.json", env=nothing)
    assert HtmlPage(Path(ran.stdout.strip()).read_text()).index["rows"] == page.index["rows"]
    assert "No browser was found: open /" in ran.stderr


def test_view_without_a_run_shows_all_of_them(runs, write_bot):
    runs.run("runs", "tag", "previous", "before")

    ran = runs.run("view", "-o", "runs.html")

    assert (ran.code, ran.stdout) == (0, "Report saved to runs.html\n")
    page = HtmlPage((runs.path / "runs.html").read_text())
    page.require_harmless()
    assert [(run["passed"], run["ran"], run["tags"]) for run in page.index["runs"]] == [
        (2, 2, ["before"]), (1, 2, []),
    ]  # fmt: skip
    assert [row["cells"] for row in page.index["rows"]] == [["passed"] * 2, ["passed", "failed"]]
    assert "2 runs, 2 test cases, 0 with a change, 0 flaky" in page.text
    assert "parts failed: fails since " in page.text
    assert runs.run("view", "before", "--no-open").code == 0
    runs.run("test", "-k", "greets")
    write_bot(test_cases=CASES[:1])
    runs.run("test")
    runs.run("view", "-o", "runs.html")
    assert "since 2" in (text := HtmlPage((runs.path / "runs.html").read_text()).text)
    assert text.count("not in the last run") == 1
    assert "--live serves a page" in runs.run("view", "--live", "-o", "x.html").stderr


def test_view_removes_the_pages_of_its_user_that_are_older_than_a_day(runs, tmp_path):
    def view():
        ran = runs.run("view", "--no-open", env={"TMPDIR": str(tmp_path)})
        return Path(ran.stdout.strip())

    old, recent = view(), view()
    link = tmp_path / f"{old.parent.name}-link"
    link.symlink_to(runs.path)
    for path in (old.parent, link):
        os.utime(path, (0, 0), follow_symlinks=False)
    newest = view()

    assert not old.parent.exists()
    assert recent.exists()
    assert newest.exists()
    assert (runs.path / "bot.py").exists()


@pytest.fixture
def growing(tmp_path):
    """A record that is still being written, with a server: its file, its last lines, the URL."""
    report = a_report(a_result(), a_result(Outcome.FAILED, test_name="parts"))
    planned = [PlannedCase(name=one.test_name, hash="") for one in report.results]
    started = RunHead(
        id="1", started=report.timestamp, agent_name="a", agent_config_path="a", cases=planned
    )
    ended = RunEnd(timestamp=report.timestamp, exit_code=1, summary=report.summary)
    cases = [CaseFinished(index=at, hash="", result=one) for at, one in enumerate(report.results)]
    lines = [one.model_dump_json().encode() + b"\n" for one in (started, *cases, ended)]
    record = tmp_path / "run.jsonl"
    with record.open("wb") as writer:
        assert try_lock(writer.fileno())
        writer.writelines(lines[:2])
        writer.flush()
        url, server = live_server(record, Redactor())
        thread = threading.Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        yield writer, lines[2:], url
        server.shutdown()
        thread.join()
        server.server_close()


@needs_chromium
def test_the_live_page_grows_with_the_run(chromium, growing):
    writer, (last_case, end), url = growing
    with chromium.open(url) as tab:
        tab.wait("document.querySelector('#counts').innerText.startsWith('1 of 2 ended')")
        assert tab.text("#verdict").lower() == "running"
        assert tab.text("#case h2") == "greets"

        writer.write(last_case[:50])
        writer.flush()
        writer.write(last_case[50:])
        writer.flush()
        tab.wait("page.rows.length === 2")
        assert tab.text("#case h2") == "greets"
        assert tab.text(".row .name") == "parts"
        writer.write(end)
        writer.flush()

        tab.wait("document.querySelector('#verdict').innerText.toLowerCase() === 'failed'")
        assert tab.text("#counts") == "2 test cases, 1 failed, 1 passed"
        assert tab.problems == []


def test_the_live_page_is_served_to_its_own_address_only(growing):
    address = urlsplit(growing[2])

    def status(path, **headers):
        connection = HTTPConnection(address.hostname, address.port, timeout=60)
        connection.request("GET", path, headers=headers)
        with closing(connection), connection.getresponse() as response:
            return response.status, response.headers

    found, headers = status(address.path)
    assert found == 200
    assert "Access-Control-Allow-Origin" not in headers
    assert address.hostname == "127.0.0.1"
    assert status(address.path, Host="attacker.example")[0] == 403
    assert status(address.path, Host=f"attacker.example:{address.port}")[0] == 403
    for path in ("/", "/results", f"{address.path}../x", f"{address.path}agent.yaml", "/%2e%2e/"):
        assert status(path)[0] == 404


def test_a_browser_that_resets_its_connection_leaves_the_terminal_alone(growing, capsys):
    address = urlsplit(growing[2])
    with socket.create_connection((address.hostname, address.port)) as browser:
        browser.sendall(b"GET / HTTP/1.1\r\n")
        browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with closing(HTTPConnection(address.hostname, address.port, timeout=60)) as connection:
        connection.request("GET", "/")
        connection.getresponse().read()

    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join()

    assert capsys.readouterr().err == ""


def side(*results):
    return ComparedRun(report=a_report(*results), source="run")


def called(*names, **fields):
    calls = [ToolInvocation(name=name, args={"order": 7}, result="ok") for name in names]
    seen = evidence(tool_calls="backend", history="runner")
    return a_result(tool_invocations=calls, evidence=seen, **fields)


@needs_chromium
def test_the_page_of_a_comparison_shows_where_two_runs_part(chromium, tmp_path):
    comparison = compare_runs(
        side(
            called(
                "search", "answer",
                test_name="refund", agent_response="You get your money back in five days.",
                metric_results=[contains(True)],
            ),
            a_result(test_name="gone"),
        ),
        side(
            called(
                "search", "refund",
                test_name="refund", agent_response="You get a voucher in five <b>long</b> days.",
                outcome=Outcome.FAILED, metric_results=[contains(False)],
            ),
            a_result(Outcome.FAILED, test_name="added"),
        ),
    )  # fmt: skip
    path = tmp_path / "diff.html"
    path.write_text(generate_html_comparison(comparison))

    with chromium.open(path.as_uri()) as tab:
        states = "[...document.querySelectorAll('#states button')].map(one => one.dataset.state)"
        assert tab.js(states) == ["only_first", "new_failure", "vanished"]
        assert "parted at turn 1, call 2: A called answer(order=7), B called refund(order=7)" in (
            tab.text("#case .note")
        )
        changes = "[...document.querySelectorAll('.diff {}')].map(one => one.innerText)"
        assert tab.js(changes.format("del")) == ["your money back"]
        assert tab.js(changes.format("ins")) == ["a voucher", " <b>long</b>"]
        parted = "[...document.querySelectorAll('.call.parted .tool')].map(one => one.innerText)"
        assert tab.js(parted) == ["answer", "refund"]
        assert "contains\t1\t0\t−1" in tab.text("#case")
        tab.js("change({differs: 'calls'})")
        assert tab.text("#count") == "1 of 3 test cases"
        assert not tab.js("document.documentElement.scrollWidth > innerWidth")
        assert tab.problems == []
