"""The example of a service with sessions, which it runs itself, with the command line."""

import json
import runpy
import shutil
import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

from fakes import run_cli

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "booking"


@contextmanager
def booking_service():
    """Yield the environment with the URL of the service, and its open sessions."""
    service = runpy.run_path(str(EXAMPLE / "service.py"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), service["Desk"])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {"BOOKING_URL": f"http://127.0.0.1:{server.server_port}"}, service["sessions"]
    server.shutdown()
    server.server_close()


def test_the_booking_service_is_tested_as_it_is_and_the_golden_report_has_its_actions(
    tmp_path, golden
):
    folder = shutil.copytree(EXAMPLE, tmp_path / "booking")
    with booking_service() as (env, sessions):
        ran = run_cli(
            "test", "agent.yaml", "-o", "report.json", "-o", "report.md", cwd=folder, env=env
        )

    assert ran.code == 0, ran.stdout + ran.stderr
    price, booked = json.loads((folder / "report.json").read_text())["results"]
    assert price["tool_invocations"][0]["result"] == {"room": 12, "price": 160}
    assert [turn["tool_invocations"][0]["name"] for turn in booked["turns"]] == [
        "find_room",
        "book_room",
    ]
    assert sessions == {}
    shutil.rmtree(folder / ".holodeck")  # the record has the port of the service
    golden("booking", folder, "report.md")


def test_an_error_in_a_success_of_the_service_is_an_error_of_the_agent(tmp_path):
    folder = shutil.copytree(EXAMPLE, tmp_path / "booking")
    file = folder / "agent.yaml"
    file.write_text(file.read_text().replace("How much are 2 nights", "How much are 99 nights"))
    with booking_service() as (env, sessions):
        ran = run_cli("test", "agent.yaml", cwd=folder, env=env)

    assert ran.code == 3, ran.stdout + ran.stderr
    assert "Agent error: no room for 99 nights; the longest stay is 30" in ran.stdout
    assert sessions == {}
