"""Cases in worker processes: the results, the limits and the record are those of one process."""

import asyncio
import json
import os
import signal
from collections import Counter

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.lib.records.run_store import RunStore
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.models.config import ExecutionConfig
from support.cli import start_cli
from support.folder import case
from support.processes import descendants, is_running, until, until_gone

BOT = """
import os, signal, sys, time
from pathlib import Path

def answer(message):
    word, _, rest = message.partition(" ")
    with open("calls", "a") as file:
        file.write(f"{os.getpid()} {message}\\n")
    if word == "hang":
        Path(f"hangs-{os.getpid()}").touch()
        time.sleep(600)
    if word == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "die-once" and not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if word == "leave":
        sys.exit(3)
    print("noise on standard output")
    return message
"""
TWO = ("test", "--workers", "2", "-o", "report.json")


@pytest.fixture
def write_bot(agent_dir):
    """Writes an agent in Python with cases, each of which expects what it says."""

    def write(*said, **fields):
        agent_dir.write("bot.py", BOT)
        cases = [case(f"{n}: {one}", one, contains=one) for n, one in enumerate(said)]
        own = {"model": None, "instructions": None, "backend": "bot:answer", "test_cases": cases}
        return agent_dir.write_agent(**own | fields)

    return write


def report_of(agent_dir):
    return json.loads((agent_dir.path / "report.json").read_text())


def outcomes(agent_dir):
    return [one["outcome"] for one in report_of(agent_dir)["results"]]


def calls(agent_dir):
    lines = (agent_dir.path / "calls").read_text().splitlines()
    return [line.split(" ", 1) for line in lines]


def test_the_cases_run_in_several_processes_and_their_report_is_that_of_one(agent_dir, write_bot):
    write_bot(*(f"say {n}" for n in range(12)))

    ran = agent_dir.run(*TWO)
    several = report_of(agent_dir)
    pids = {pid for pid, _ in calls(agent_dir)}
    agent_dir.run("test", "-o", "report.json")
    one = report_of(agent_dir)

    assert ran.code == 0, ran.stderr
    assert len(pids) == 2
    assert "noise" not in ran.stdout
    assert [r["test_name"] for r in several["results"]] == [r["test_name"] for r in one["results"]]
    for ours, theirs in zip(several["results"], one["results"], strict=True):
        changing = {"execution_time_ms", "agent_time_ms", "timestamp", "turns", "metric_results"}
        assert {k: v for k, v in ours.items() if k not in changing} == {
            k: v for k, v in theirs.items() if k not in changing
        }


@pytest.mark.parametrize("backend", ["chat", None], ids=["chat", "Semantic Kernel"])
def test_several_processes_send_no_more_requests_at_once_than_one(agent_dir, backend):
    """Half of the requests are refused at first: everybody slows down and every case passes."""
    refused = set()

    def answer(request):
        if int(request.prompt.split()[1]) % 2 and request.prompt not in refused:
            refused.add(request.prompt)
            return Reply(status=429, headers={"retry-after": "0.01"})
        return Reply(f"OK: {request.prompt}")

    with FakeOpenAI(answer) as server:
        agent_dir.write_agent(
            backend=backend,
            model=agent_dir.model(endpoint=server.url),
            execution={"retry_delay": 0.01, "max_retries": 9},
            test_cases=[case(f"c{n}", f"case {n} please", contains=f"{n}") for n in range(40)],
        )
        ran = agent_dir.run(*TWO, "-j", "3")
        peak, asked = server.peak_in_flight, Counter(one.prompt for one in server.requests)

    assert ran.code == 0, ran.stderr
    assert set(outcomes(agent_dir)) == {"passed"}
    assert 1 <= peak <= 3
    assert set(asked.values()) == {1, 2}


def test_a_response_that_is_no_valid_text_is_a_result_as_in_one_process(agent_dir, write_bot):
    """The run used to wait for it for ever."""
    write_bot("say a", "say b")
    agent_dir.write("bot.py", "def answer(message):\n    return message + ' \\ud800'\n")

    ran = agent_dir.run(*TWO, "--verbose", "--events", "events.jsonl")

    assert ran.code == 0, ran.stderr
    assert outcomes(agent_dir) == ["passed", "passed"]
    assert report_of(agent_dir)["results"][0]["agent_response"] == "say a \ud800"


def test_a_worker_that_is_killed_is_replaced_and_its_cases_run_again(agent_dir, write_bot):
    write_bot("say a", "die-once b", "say c", "say d")

    ran = agent_dir.run(*TWO)

    assert ran.code == 0, ran.stderr
    assert set(outcomes(agent_dir)) == {"passed"}
    assert [said for _, said in calls(agent_dir)].count("die-once b") == 2
    assert report_of(agent_dir)["notes"] == [
        "a worker process ended while it ran cases, which ran again"
    ]


def test_agents_that_run_one_after_the_other_have_workers_each(agent_dir, write_bot):
    agent = write_bot("say a", "say b", "say c")
    agent_dir.write("second.yaml", agent.read_text())

    ran = agent_dir.run("test", "agent.yaml", "second.yaml", "--workers", "2", "-o", "report.json")

    assert ran.code == 0, ran.stderr
    assert outcomes(agent_dir) == ["passed"] * 6


def test_a_case_that_kills_two_workers_is_an_error_and_the_others_pass(agent_dir, write_bot):
    write_bot("say a", "say b", "die c", "say d", "say e")

    ran = agent_dir.run(*TWO)

    assert ran.code == 3, ran.stderr
    assert outcomes(agent_dir) == ["passed", "passed", "agent_error", "passed", "passed"]
    [lost] = [one for one in report_of(agent_dir)["results"] if one["outcome"] != "passed"]
    assert lost["errors"] == ["the worker process was killed by SIGKILL, 2 times"]


def test_workers_that_end_one_after_the_other_end_the_run(agent_dir, write_bot):
    write_bot(*(f"die {n}" for n in range(8)))

    ran = agent_dir.run(*TWO)

    assert ran.code == 3
    assert "3 worker processes ended one after the other" in ran.stderr
    assert len(calls(agent_dir)) < 8


@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
async def test_no_worker_outlives_holodeck_and_finished_cases_are_kept(
    agent_dir, write_bot, how, code
):
    write_bot("say a", "hang b", "hang c")

    with start_cli("test", "--workers", "2", cwd=agent_dir.path) as run:
        await until(lambda: len(list(agent_dir.path.glob("hangs-*"))) == 2)
        processes = descendants(run.pid)
        os.kill(run.pid, how)
        ran = run.finish()

    assert ran.code == code, ran.stderr
    assert len(processes) == 3  # the workers and the guard
    await until_gone(*processes)
    runs = RunStore(agent_dir.path)
    [record] = [runs.read(one) for one in runs.ids()]
    assert [one.result.test_name for one in record.finished.values()] == ["0: say a"]


async def test_a_worker_ends_with_its_parent_although_nobody_tells_it(agent_dir, write_bot):
    """Without the guard, too, which is killed first."""
    write_bot("say a", "hang b", "hang c")

    with start_cli("test", "--workers", "2", cwd=agent_dir.path) as run:
        await until(lambda: len(list(agent_dir.path.glob("hangs-*"))) == 2)
        workers = [int(one.name.rpartition("-")[2]) for one in agent_dir.path.glob("hangs-*")]
        for guard in set(descendants(run.pid)) - set(workers):
            os.kill(guard, signal.SIGKILL)
        os.kill(run.pid, signal.SIGKILL)
        run.finish()

    assert len(workers) == 2
    await until_gone(*workers)


def test_limits_of_the_run_count_all_workers(agent_dir, write_bot):
    write_bot(*(f"say {n}" for n in range(9)))

    ran = agent_dir.run(*TWO, "--max-calls", "4")

    assert ran.code == 6, ran.stderr
    assert len(calls(agent_dir)) == 4
    assert Counter(outcomes(agent_dir)) == {"passed": 4, "skipped": 5}


def test_the_first_failure_stops_all_workers_and_the_rest_can_be_resumed(agent_dir, write_bot):
    agent = write_bot(*(f"say {n}" for n in range(6)))
    text = agent.read_text()
    for first in (0, 1):  # of each worker, so that no case passes before one fails
        text = text.replace(f"value: say {first}", "value: something else")
    agent.write_text(text)

    stopped = agent_dir.run(*TWO, "--fail-fast")
    before = len(calls(agent_dir))
    agent_dir.run(*TWO, "--resume")

    assert stopped.code == 1, stopped.stderr
    assert before <= 2
    assert Counter(outcomes(agent_dir)) == {"passed": 4, "failed": 2}


def test_repetitions_and_what_code_raises_are_results_as_in_one_process(agent_dir, write_bot):
    write_bot(
        test_cases=[
            case("repeated", "say a", contains="say", repeat=4),
            case("leaves", "leave now", contains="x"),
        ]
    )

    ran = agent_dir.run(*TWO)
    several = report_of(agent_dir)["results"]
    agent_dir.run("test", "-o", "report.json")
    one = report_of(agent_dir)["results"]

    assert ran.code == 3, ran.stderr
    assert [len(one[0]["repeats"]["runs"]) for one in (several, one)] == [4, 4]
    assert several[1]["errors"] == one[1]["errors"]


def test_an_agent_that_cannot_be_built_is_the_error_it_is_in_one_process(agent_dir, write_bot):
    write_bot("say a", "say b", backend="bot:missing")

    several, one = agent_dir.run("test", "--workers", "2"), agent_dir.run("test")

    assert (several.code, several.stderr) == (one.code, one.stderr)
    assert several.code == 2


def test_what_the_command_line_cannot_share_runs_in_one_process_and_says_so(agent_dir, write_bot):
    write_bot("say a", "say b", observability={"enabled": True})

    agent_dir.run(*TWO)

    assert set(outcomes(agent_dir)) == {"passed"}
    [note] = report_of(agent_dir)["notes"]
    assert note.startswith("the cases ran in one process, not in 2 workers: telemetry is")


async def test_an_agent_object_runs_in_its_own_process(agent_dir, write_bot):
    write_bot("say a", "say b")
    seen = []

    def agent(message):
        seen.append(message)
        return message

    executor = TestExecutor(
        str(agent_dir.path / "agent.yaml"), ExecutionConfig(workers=2), backend=agent
    )
    report = await executor.execute_tests()

    assert report.summary.passed == 2
    assert seen == ["say a", "say b"]
    assert "objects of this process" in report.notes[0]


async def test_a_cancelled_run_leaves_no_worker(agent_dir, write_bot, monkeypatch):
    monkeypatch.chdir(agent_dir.path)
    write_bot("say a", "hang b", "hang c")
    executor = TestExecutor(
        str(agent_dir.path / "agent.yaml"), ExecutionConfig(workers=2, run_timeout=600)
    )

    run = asyncio.create_task(executor.execute_tests())
    await until(lambda: len(list(agent_dir.path.glob("hangs-*"))) == 2)
    pids = [int(one.name.rpartition("-")[2]) for one in agent_dir.path.glob("hangs-*")]
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert not any(map(is_running, pids))
    assert [one.test_name for one in executor.report(interrupted=True).results] == ["0: say a"]


def test_a_thread_that_tries_to_exit_fails_the_run_as_in_one_process(agent_dir, write_bot):
    """It ended the run with exit code 0."""
    write_bot("say a", "say b")
    code = "import os, threading\n\ndef answer(message):\n    thread = threading.Thread("
    code += (
        "target=os._exit, args=(0,))\n    thread.start()\n    thread.join()\n    return message\n"
    )
    agent_dir.write("bot.py", code)

    ran = agent_dir.run(*TWO)

    assert ran.code == 3, ran.stderr
    assert "os._exit(0) at" in ran.stderr
