"""Cases on a real Ray cluster of several nodes; `scripts/ray` runs this with Ray installed."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from holodeck.lib.records.run_store import RunStore
from support.checks import assert_plain
from support.ci import obeyed
from support.cli import run_cli, start_cli
from support.folder import case
from support.processes import until

ray = pytest.importorskip("ray", reason="Ray is not installed; scripts/ray runs these tests")

# Ray leaves the log files of its own processes to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
BOT = """
import asyncio, os
from pathlib import Path

async def answer(message):
    with open({calls!r}, "a") as file:
        file.write(f"{{os.getpid()}} {{message}}\\n")
    await asyncio.sleep({seconds})
    here = Path(__file__).parent
    return f"{{message}} from {{here}}: {{Path('greeting.txt').read_text()}}"
"""
PLAIN = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
PORT = 24567
MEMORY = 100_000_000


@pytest.fixture(scope="module")
def cluster():
    """A head without work of its own, and three nodes with one core each."""
    from ray.cluster_utils import Cluster

    os.environ.update(PLAIN)
    head = {
        "num_cpus": 0,
        "include_dashboard": False,
        "object_store_memory": MEMORY,
        "ray_client_server_port": PORT,
    }
    found = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(3):
        found.add_node(num_cpus=1, object_store_memory=MEMORY)
    yield found
    found.shutdown()


@pytest.fixture
def bot(tmp_path):
    """Writes an agent in Python whose cases expect what a file beside it says."""

    def write(cases, seconds=0.01, **fields):
        folder = tmp_path / "agent"
        folder.mkdir(exist_ok=True)
        calls = str(tmp_path / "calls")
        (folder / "bot.py").write_text(BOT.format(calls=calls, seconds=seconds))
        (folder / "greeting.txt").write_text("good day")
        own = [case(f"case-{n:05}", f"case-{n:05}", contains="good day") for n in range(cases)]
        agent = {"name": "bot", "backend": "bot:answer", "test_cases": own} | fields
        (folder / "agent.yaml").write_text(json.dumps(agent))
        return folder

    return write


def calls_of(folder):
    file = folder.parent / "calls"
    lines = file.read_text().splitlines() if file.exists() else []
    return [line.split(" ", 1) for line in lines]


def record_of(folder):
    runs = RunStore(folder)
    return runs.read(next(iter(runs.ids())))


def on_cluster(cluster, **more):
    return PLAIN | {"RAY_ADDRESS": cluster.address} | more


def test_code_and_files_travel_and_every_node_works(cluster, bot):
    folder = bot(60)

    ran = run_cli("test", "--on", "ray", "-o", "r.json", cwd=folder, env=on_cluster(cluster))
    results = json.loads((folder / "r.json").read_text())["results"]

    assert ran.code == 0, ran.stderr
    assert len({pid for pid, _ in calls_of(folder)}) == 3
    assert not [one for one in results if str(folder) in one["agent_response"]]


def test_a_client_outside_the_cluster_runs_cases_there(cluster, bot):
    folder = bot(6)

    ran = run_cli("test", "--on", f"ray://127.0.0.1:{PORT}", cwd=folder, env=PLAIN)

    assert ran.code == 0, ran.stderr
    assert len(calls_of(folder)) == 6


def test_a_node_that_is_lost_costs_no_case(cluster, bot):
    """Two thousand cases; a node is killed in the middle."""
    folder = bot(2000)
    lost = cluster.add_node(num_cpus=1, object_store_memory=MEMORY)

    with start_cli(
        "test", "--on", "ray", cwd=folder, env=on_cluster(cluster), from_nothing=True
    ) as run:
        wait_for(lambda: len(calls_of(folder)) > 700)
        cluster.remove_node(lost, allow_graceful=False)
        ran = run.finish(600)

    record = record_of(folder)
    asked = Counter(said for _, said in calls_of(folder))
    assert ran.code == 0, ran.stderr[-2000:]
    assert [one.result.test_name for one in sorted_results(record)] == [
        f"case-{n:05}" for n in range(2000)
    ]
    assert all(one.result.passed for one in record.finished.values())
    assert max(asked.values()) <= 2
    assert sum(asked.values()) - 2000 <= 10  # what ran on the lost node at that moment


def sorted_results(record):
    return [record.finished[key] for key in sorted(record.finished)]


def wait_for(holds):
    import asyncio

    asyncio.run(until(holds))


def test_secrets_travel_as_named_variables_only(cluster, bot):
    backend = {"type": "http", "url": "http://127.0.0.1:9/", "headers": {"x-key": "${SECRET_KEY}"}}
    folder = bot(1, backend=backend, execution={"llm_timeout": 5, "max_retries": 0})
    secret = on_cluster(cluster, SECRET_KEY="abc-123-secret")

    refused = run_cli("test", "--on", "ray", cwd=folder, env=secret)
    bot(1, backend=backend, execution={"llm_timeout": 5, "ray_variables": ["SECRET_KEY"]})
    named = run_cli("test", "--on", "ray", cwd=folder, env=secret)

    assert refused.code == 2
    assert "ray_variables: [NAME]" in refused.stderr
    assert named.code == 3  # nobody listens at the URL
    assert "refused" in named.stdout


LOUD = """
import os, sys

print("imported", dict(os.environ))

async def answer(message):
    print(message, dict(os.environ), file=sys.stderr, flush=True)
    if "raise" in message:
        raise RuntimeError(f"{message} {os.environ['NAMED_KEY']}")
    return f"{message} {os.environ['NAMED_KEY']}"
"""
SECRETS = {
    "NAMED_KEY": "zZ-named-secret-1",
    "OTHER_TOKEN": "zZ-other-secret-2",
    "FROM_FILE_KEY": "zZ-env-file-secret-3",
}


def test_no_secret_stands_in_a_file_of_ray_in_a_log_or_in_what_the_run_writes(cluster, bot):
    folder = bot(1, execution={"ray_variables": ["NAMED_KEY"]})
    (folder / "bot.py").write_text(LOUD)
    (folder / ".env").write_text(f"FROM_FILE_KEY={SECRETS['FROM_FILE_KEY']}\n")
    (folder / "deep").mkdir()
    (folder / "deep" / ".env.local").write_text(f"A_KEY={SECRETS['FROM_FILE_KEY']}\n")
    agent = json.loads((folder / "agent.yaml").read_text())
    agent["test_cases"] = [case(said, said, contains="zZ") for said in ("say", "raise")]
    (folder / "agent.yaml").write_text(json.dumps(agent))
    given = set(folder.rglob("*"))
    variables = {name: SECRETS[name] for name in ("NAMED_KEY", "OTHER_TOKEN")}

    ran = run_cli(
        "test", "--on", "ray", "-vv", "-o", "r.json", "-o", "r.md", "--events", "e.jsonl",
        cwd=folder, env=on_cluster(cluster, **variables),
    )  # fmt: skip

    assert ran.code in {1, 3}, ran.stderr[-2000:]
    session = Path(cluster.head_node.get_session_dir_path())
    files = [file for file in session.rglob("*") if file.is_file()]
    files += [file for file in folder.rglob("*") if file.is_file() and file not in given]
    leaked = [
        (str(file), secret)
        for file in files
        for secret in SECRETS.values()
        if secret.encode() in file.read_bytes()
    ]
    assert leaked == [], leaked
    assert not [secret for secret in SECRETS.values() if secret in ran.stdout + ran.stderr]
    assert any("runtime_resources" in str(file) and file.name == "bot.py" for file in files)


HOSTILE = [
    "\x1b]0;PWNED\x07\x1b[2J", "x\n::error file=a.py::INJECTED", "##vso[task.setvariable]evil",
    "\u202egnp.exe", "<script>alert(1)</script>", "\x9b31m", "##teamcity[buildStop]",
]  # fmt: skip


def test_hostile_texts_of_agents_on_ray_are_inert_in_what_the_run_prints(cluster, bot):
    folder = bot(1)
    code = "import sys\n\nasync def answer(message):\n    print(message, file=sys.stderr)\n"
    code += "    if message.startswith('raise '):\n        raise RuntimeError(message)\n"
    (folder / "bot.py").write_text(code + "    return message\n")
    agent = json.loads((folder / "agent.yaml").read_text())
    texts = [*HOSTILE, *(f"raise {text}" for text in HOSTILE)]
    agent["test_cases"] = [case(f"c{at}", text, contains="no") for at, text in enumerate(texts)]
    (folder / "agent.yaml").write_text(json.dumps(agent))

    ran = run_cli("test", "--on", "ray", "-v", "-o", "r.md", cwd=folder, env=on_cluster(cluster))

    assert ran.code in {1, 3}, ran.stderr[-2000:]
    assert_plain(ran)
    assert "c13" in ran.stdout
    assert obeyed(ran.stdout + ran.stderr) == []
    report = (folder / "r.md").read_text()
    assert "\x1b" not in report


def test_what_needs_this_process_is_an_error(cluster, bot):
    folder = bot(1)
    agent = json.loads((folder / "agent.yaml").read_text())
    (folder / "agent.yaml").write_text(json.dumps(agent | {"observability": {"enabled": True}}))

    ran = run_cli("test", "--on", "ray", cwd=folder, env=on_cluster(cluster))

    assert ran.code == 2
    assert "'run_on' has no effect: telemetry is written to the console" in ran.stderr


def test_a_cluster_that_is_not_there_is_an_error(bot):
    folder = bot(1)

    ran = run_cli("test", "--on", "ray", cwd=folder, env=PLAIN | {"RAY_ADDRESS": "127.0.0.1:9"})

    assert ran.code == 3
    assert "no Ray cluster at 127.0.0.1:9" in ran.stderr


def test_a_lost_head_ends_the_run_with_a_record_that_can_be_resumed(bot):
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": MEMORY}
    own = Cluster(initialize_head=True, head_node_args=head)
    folder = bot(60)
    go = folder.parent / "go"
    code = (folder / "bot.py").read_text()
    last = f"600 if '00059' in message and not Path({str(go)!r}).exists() else 0.01"
    (folder / "bot.py").write_text(code.replace("0.01", last))
    try:
        with start_cli(
            "test", "--on", "ray", cwd=folder, env=on_cluster(own), from_nothing=True
        ) as run:
            wait_for(lambda: len(calls_of(folder)) == 60)
            for processes in own.head_node.all_processes.values():
                for one in processes:
                    one.process.kill()
            ran = run.finish(300)
    finally:
        own.shutdown()
    before = {one.result.test_name for one in record_of(folder).finished.values()}
    go.touch()
    resumed = run_cli("test", "--resume", cwd=folder)

    assert ran.code == 3, ran.stderr[-500:]
    assert "the head of the Ray cluster at" in ran.stderr
    assert "Resume with" in ran.stderr
    assert 40 < len(before) < 60
    assert resumed.code == 0, resumed.stderr[-2000:]
