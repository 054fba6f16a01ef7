"""A run that is killed, interrupted or terminated at any moment loses nothing it announced."""

import os
import random
import signal
import time

import pytest

from support.checks import assert_plain
from support.fleet import PARALLEL, Fleet, announced
from support.workers import agent_output

KILLS = 20
SIZE = 150
LAST = f"case-{SIZE - 1:05}"
"""Hangs, so that the run does not end before it is killed."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The report of a run that nothing disturbs."""
    fleet = Fleet.made(tmp_path_factory.mktemp("whole") / "agent", SIZE)
    assert fleet.run("-o", "r.json").code == 0
    return fleet.report()


def test_killing_a_run_loses_nothing_announced_and_resuming_asks_only_for_the_rest(
    tmp_path, uninterrupted, record_property
):
    moments = random.Random(2026).sample(range(1, SIZE - 5), KILLS)
    survived = asked_again = 0
    for number, after in enumerate(moments):
        fleet = Fleet.made(tmp_path / f"agent-{number}", SIZE)
        seen = killed_after(fleet, after)
        [record] = fleet.records()
        kept = {one.result.test_name for one in record.finished.values()}
        ran = fleet.run("--resume", "-o", "r.json")
        calls = fleet.calls()

        assert (ran.code, record.state) == (0, "killed"), ran.stderr
        assert len(seen) >= after
        assert seen <= kept
        assert all(calls[name] == 1 for name in seen)
        assert calls.total() - SIZE <= PARALLEL
        assert fleet.report() == uninterrupted
        survived += 1
        asked_again += calls.total() - SIZE
    record_property("counted", f"kills survived: {survived}/{KILLS}")
    record_property("counted", f"asked again after a kill: {asked_again / KILLS:.1f} a kill")


def killed_after(fleet, lines):
    """Kill a run as soon as it has announced so many cases; all that it announced."""
    with fleet.start(env={"BOT_HANGS": LAST}) as run:
        output = b""
        while output.count(b"[Test ") < lines:
            read = run.stdout.readline()
            assert read, output
            output += read
        os.kill(run.pid, signal.SIGKILL)
        output += run.stdout.read()
    complete = output[: output.rfind(b"\n") + 1]
    return announced(complete.decode())


SLOW = {
    "loading": "import time; print('here', flush=True); time.sleep(600)\ndef answer(text): ...",
    "running": (
        "import asyncio\nasync def answer(text):\n    print('here', flush=True)\n"
        "    await asyncio.sleep(0 if text.startswith('case-00000') else 600)\n"
        "    return 'OK: case-'"
    ),
    "judging": "def answer(text): return 'OK: case-'",
}
SHOWN = {"loading": 0, "running": 1, "judging": 101}
"""How many cases stand in the report: what was answered does, though its metrics were not done."""
GRADER = """
import asyncio

async def grade(observation):
    print("here", flush=True)
    await asyncio.sleep(0 if observation.case_name == "case-00000" else 600)
    return 1.0
"""


@pytest.mark.parametrize("moment", ["loading", "running", "judging"])
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_at_any_moment_ends_the_run_at_once_with_all_that_had_finished(
    tmp_path, moment, sent, code
):
    metrics = {"evaluations": {"metrics": [{"metric": "graders:grade", "threshold": 0.5}]}}
    fleet = Fleet.made(tmp_path / "agent", 101, **(metrics if moment == "judging" else {}))
    (fleet.path / "bot.py").write_text(SLOW[moment])
    (fleet.path / "graders.py").write_text(GRADER)
    done = moment != "loading"
    (tmp_path / "tmp").mkdir()
    with fleet.start("-j", "100", "-o", "r.json", env={"TMPDIR": str(tmp_path / "tmp")}) as run:
        is_grader = moment == "judging"  # whose process prints on stderr
        wait_for(run.stderr if is_grader else agent_output(run), 101 if done else 1)
        os.killpg(run.pid, sent)
        ran = run.finish()  # long before what hangs would have ended
        with pytest.raises(ProcessLookupError):  # nobody of the group is left
            os.killpg(run.pid, 0)

    [record] = fleet.records()
    assert_plain(ran)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert ran.code == code
    assert fleet.report()["interrupted"] is True
    assert len(record.finished) == (1 if done else 0)
    assert len(fleet.report()["results"]) == SHOWN[moment]
    assert (record.state, record.ended.exit_code) == ("interrupted", code)
    assert (f"Resume with: holodeck test agent.yaml --resume {record.id}" in ran.stderr) == done


def wait_for(stream, times):
    """Return once so many cases have said where they are; the first one's own line may come."""
    seen = 0
    while seen < times:
        line = stream.readline()
        assert line, "it ended too early"
        seen += line == b"here\n"


def test_a_second_ctrl_c_loses_nothing_either(tmp_path):
    fleet = Fleet.made(tmp_path / "agent", 40)
    stubborn = """
import asyncio

async def answer(text):
    if text < "case-00010":
        return f"OK: {text}"
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            print("not now", flush=True)
"""
    (fleet.path / "bot.py").write_text(stubborn)
    with fleet.start() as run:
        seen = 0
        while seen < 10:
            seen += run.stdout.readline().startswith(b"[Test ")
        run.interrupt()
        while agent_output(run).readline() != b"not now\n":
            pass
        run.interrupt()
        ran = run.finish()

    [record] = fleet.records()
    assert ran.code == 130
    assert (record.state, len(record.finished)) == ("interrupted", 10)


def test_two_runs_at_once_do_not_mix(tmp_path):
    fleet = Fleet.made(tmp_path / "agent", 100)
    with fleet.start() as one, fleet.start() as other:
        assert (one.finish().code, other.finish().code) == (0, 0)

    records = fleet.records()
    assert len({record.started.id for record in records}) == 2
    for record in records:
        assert record.warnings == ()
        assert (record.state, list(record.finished)) == ("finished", list(range(100)))


def test_a_run_that_goes_on_can_be_neither_resumed_nor_pruned(tmp_path):
    fleet = Fleet.made(tmp_path / "agent", 3)
    with fleet.start(env={"BOT_HANGS": "case-"}) as run:
        while fleet.calls().total() < 3:
            time.sleep(0.02)
        resumed = fleet.run("--resume")
        pruned = fleet.holodeck("runs", "prune", "--keep", "0", "--yes")
        listed = fleet.holodeck("runs", "list")
        run.interrupt()
        run.finish()

    assert resumed.code == 2
    assert "still running" in resumed.stderr
    assert pruned.stdout == "Nothing to remove\n"
    assert "running" in listed.stdout
    assert len(fleet.records()) == 1
