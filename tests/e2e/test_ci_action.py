"""`action.yml` and the pipelines of the guide, run as the services run them."""

import json
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import yaml

from support.actions_runner import ROOT, Runner

GUIDE = (ROOT / "docs/guide/ci.md").read_text()
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
SCRIPTS = [step for step in ACTION["runs"]["steps"] if "run" in step]


def guide_files():
    """The files that the guide shows, by name."""
    block = re.compile(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return dict(block.findall(GUIDE))


@pytest.fixture
def machine(bot_dir, tmp_path):
    """A checkout with the files of the guide, whose agent has a baseline."""
    for name, text in guide_files().items():
        bot_dir.write(name, text)
    bot_dir.run("test")
    bot_dir.run("bless")
    shutil.rmtree(bot_dir.path / ".holodeck")  # or measured durations decide about the shards
    return Runner(bot_dir.path, tmp_path / "machine")


def test_no_script_contains_an_expression_and_every_action_is_pinned():
    assert [step["name"] for step in SCRIPTS if "${{" in step["run"]] == []
    assert all(step["shell"] == "bash" for step in SCRIPTS)
    files = {"action.yml": (ROOT / "action.yml").read_text(), "guide": GUIDE}
    used = re.findall(r"uses: (\S+)", "\n".join(files.values()))
    assert len(used) == 9
    own = [one for one in used if one.startswith("OWNER/")]
    assert len(own) == 3
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", one) for one in {*used} - {*own})


def test_the_table_of_the_guide_has_every_input():
    rows = re.findall(r"^\| (`.*?`) \|", GUIDE, re.MULTILINE)
    inputs = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}

    assert ACTION["inputs"].keys() <= inputs


def test_the_workflow_of_the_guide_gates_merges_and_comments_once(machine):
    workflow = yaml.safe_load(guide_files()[".github/workflows/agent.yml"])
    jobs = workflow["jobs"]
    assert set(jobs) == {"test", "report"}

    shards = machine.run_job(jobs["test"], number=12)
    merged = machine.run_job(jobs["report"], number=12)
    [comment] = json.loads((machine.calls / "comments.json").read_text())
    shutil.rmtree(machine.workspace / "shards" / "holodeck-report-2-of-2")
    partial = machine.run_action({"merge": "shards", "comment": "true"}, number=12)
    [updated] = json.loads((machine.calls / "comments.json").read_text())

    assert [one.code for one in shards + merged] == [0] * len(shards + merged), merged
    assert set(machine.artifacts) == {
        "holodeck-report-1-of-2",
        "holodeck-report-2-of-2",
        "holodeck-report",
    }
    kept = {file.name for file in machine.artifacts["holodeck-report"].iterdir()}
    assert kept == {"report.json", "report.md", "report.html", "report.xml", "quality.json"}
    lines = comment["body"].splitlines()
    assert lines[:2] == [
        "<!-- holodeck report -->",
        "[The run and its reports](https://github.test/us/shop/actions/runs/7)",
    ]
    assert "says goodbye" in comment["body"]
    summary = (machine.home / "summary.md").read_text()
    assert summary.count("# Test Report: echo\n\n❌ ") == 3  # of a shard, and of the merges
    assert [one.code for one in partial] == [0, 5, 0]
    assert "shard 2/2 is missing" in updated["body"]


HOSTILE = '$(touch hacked); `touch hacked`\n"; touch hacked; echo "'


def test_no_input_is_run_and_mistakes_are_loud(machine):
    agents = machine.run_action({"agents": HOSTILE, "title": HOSTILE, "cache": "false"})
    released = {"version": "0.2.0", "extras": "nlp,local"}
    both = machine.run_action({"merge": "nowhere", "baseline": "true"} | released)
    none = machine.run_action({"merge": "."})

    assert not list(machine.workspace.rglob("hacked"))
    assert [steps[1].code for steps in (agents, both, none)] == [2, 2, 2]
    assert "touch hacked" in agents[1].output
    assert "give 'baseline' to the jobs that run tests" in both[1].output
    assert "--merge needs the runs to join" in none[1].output
    installed = (machine.calls / "pip").read_text().splitlines()
    wanted = [line.rpartition(" ")[2] for line in installed]
    assert wanted == [str(ROOT), "holodeck-harness[nlp,local]==0.2.0", str(ROOT)]


@pytest.fixture
def empty_machine(tmp_path):
    """A checkout without an agent."""
    (tmp_path / "checkout").mkdir()
    return Runner(tmp_path / "checkout", tmp_path / "machine")


def test_a_comment_that_may_not_be_written_is_a_warning(empty_machine):
    (empty_machine.calls / "read_only").touch()

    comment = empty_machine.run_action({"merge": ".", "comment": "true"}, number=12)[-1]

    assert (comment.name, comment.code) == ("Comment on the pull request", 0)
    [warning] = comment.output.splitlines()
    assert warning.startswith("::warning::holodeck: the comment was not written")
    assert warning.endswith("(HTTP 403)%0A100%25 refused")


def test_the_packages_of_the_project_are_installed_into_its_python(empty_machine):
    environment = empty_machine.workspace / ".venv" / "bin"
    environment.mkdir(parents=True)
    shutil.copy(empty_machine.bin / "python", environment)
    (empty_machine.workspace / "app").mkdir()
    given = {"python": ".venv/bin/python", "requirements": "dev.lock\napp[dev]\n\n.\n-e x"}

    run = empty_machine.run_action({"merge": ".", **given})[-1]
    strange = empty_machine.run_action({"merge": ".", **given, "untrusted": "true"})
    unreadable = empty_machine.run_action({"requirements": "sub/uv.lock"})
    missing = empty_machine.run_action({"python": "nowhere/python"})

    assert "--merge needs the runs to join" in run.output  # by the Python of the project
    first, second = (empty_machine.calls / "pip").read_text().splitlines()
    assert first.endswith(f" {ROOT} -r ./dev.lock ./app[dev] . -r ./-e x")
    assert second.endswith(f" {ROOT}")
    assert "::notice::holodeck: with 'untrusted'" in strange[0].output
    assert [unreadable[0].code, missing[0].code] == [2, 2]
    assert "pip reads no uv.lock" in unreadable[0].output
    assert "'python' names no interpreter" in missing[0].output


def test_a_cache_is_saved_again_after_a_change_of_code_or_data():
    [cache] = [step for step in ACTION["runs"]["steps"] if "actions/cache@" in step.get("uses", "")]
    hashed = set(re.findall(r"'\*\*/\*\.(\w+)'", cache["with"]["key"]))

    assert {"yaml", "yml", "py", "md", "txt", "json", "jsonl", "csv", "lock"} <= hashed


def test_the_action_runs_nothing_of_a_fork_that_is_untrusted(machine):
    code = [machine.run_action({"untrusted": untrusted})[1].code for untrusted in ("true", "false")]

    assert code == [2, 1]


class GitLab(BaseHTTPRequestHandler):
    """The notes of one merge request."""

    notes: list = []

    def do_GET(self):
        self.answer(self.notes)

    def do_POST(self):
        self.notes.append({"id": len(self.notes) + 1, **self.body()})
        self.answer(self.notes[-1])

    def do_PUT(self):
        note = self.notes[int(self.path.rpartition("/")[2]) - 1]
        note.update(self.body())
        self.answer(note)

    def body(self):
        assert self.headers["PRIVATE-TOKEN"] == "a-token"
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, document):
        text = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args):
        pass


@pytest.fixture
def gitlab():
    server = HTTPServer(("127.0.0.1", 0), type("Project", (GitLab,), {"notes": []}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_pipeline_of_the_guide_gates_merges_and_comments_once(machine, gitlab):
    pipeline = yaml.safe_load(guide_files()[".gitlab-ci.yml"])
    assert pipeline[".holodeck"]["before_script"] == ['pip install "$HOLODECK"']
    variables = {
        "CI_NODE_TOTAL": "2",
        "CI_PROJECT_ID": "3",
        "CI_MERGE_REQUEST_IID": "4",
        "CI_API_V4_URL": f"http://127.0.0.1:{gitlab.server_port}/api/v4",
        "HOLODECK_GITLAB_TOKEN": "a-token",
        "NO_PROXY": "127.0.0.1",
    }

    def run(job, node="1"):
        script = "\n".join(pipeline[job]["script"])
        more = variables | {"CI_NODE_INDEX": node}
        return machine.bash(script, machine.workspace, more)

    codes = [run("agent", node).code for node in ("1", "2")]
    merged = run("report")
    (machine.workspace / "report.md").write_text("another report")
    again = machine.bash("python comment.py report.md", machine.workspace, variables)

    assert (codes, merged.code, again.code) == ([0, 0], 0, 0), merged.output + again.output
    [note] = gitlab.RequestHandlerClass.notes
    assert note["body"] == "<!-- holodeck -->\nanother report"
    assert {file.name for file in machine.workspace.glob("report*")} == {
        "report-1.xml",
        "report-2.xml",
        "report.html",
        "report.json",
        "report.md",
    }
    [row] = json.loads((machine.workspace / "quality.json").read_text())
    assert row["description"].startswith("says goodbye: contains")
    assert row["location"]["path"] == "agent.yaml"
