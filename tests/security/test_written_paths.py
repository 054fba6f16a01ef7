"""A run writes inside the agent's folder, or where the user's own words say."""

import json
from pathlib import Path

import pytest
import yaml

from support.checks import assert_plain

WAYS_OUT = ["{outside}/x", "../x", "~/x", "linked/x", ".git/hooks/x", "sub/../../x"]
FILE_TOOL = {"type": "vectorstore", "name": "search", "source": "notes.md"}


KEYS = {
    "execution.events": lambda path: {"execution": {"events": path}},
    "execution.cache_dir": lambda path: {"execution": {"cache_dir": path}},
    "execution.recordings": lambda path: {"execution": {"recordings": path, "recording": "all"}},
    "storage_directory": lambda path: {
        "observability": {
            "exporters": {
                "azure_monitor": {
                    "enabled": True,
                    "storage_directory": path,
                    "connection_string": "none",
                }
            }
        }
    },
    "database.path": lambda path: {
        "tools": [FILE_TOOL | {"database": {"provider": "sqlite", "path": path}}]
    },
}


@pytest.fixture
def folder(agent_dir, tmp_path):
    """An agent's folder with a way out, and a home of the user beside it."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "agent-home").mkdir()
    (agent_dir.path / ".git" / "hooks").mkdir(parents=True)
    (agent_dir.path / "sub").mkdir()
    (agent_dir.path / "linked").symlink_to(tmp_path / "outside")
    agent_dir.write("notes.md", "# Notes\nnothing")
    agent_dir.write_agent()
    return agent_dir


def below(folder):
    """The files outside of the agent's folder, and those of git."""
    others = [
        folder.path.parent / "outside",
        folder.path.parent / "agent-home",
        folder.path / ".git",
    ]
    return [file for place in others for file in place.rglob("*") if file.is_file()]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("way", WAYS_OUT)
def test_no_key_of_the_agent_leads_what_a_run_writes_out_of_the_folder(folder, key, way):
    folder.write_agent(**KEYS[key](way.format(outside=folder.path.parent / "outside")))

    checked, ran = folder.run("validate"), folder.run("test")

    assert (checked.code, ran.code) == (2, 2), ran.stdout + ran.stderr
    assert key in ran.stderr
    assert "--allow-outside" in ran.stderr or ".git" in way
    assert_plain(ran)
    assert below(folder) == []
    assert folder.server.requests == []


@pytest.mark.parametrize("setting", ["events", "cache_dir"])
@pytest.mark.parametrize("way", ["{outside}/x", "../x", "~/x", "linked/x"])
@pytest.mark.parametrize("file", [".env", "config.yaml"])
def test_no_other_file_of_the_folder_leads_out_of_it(folder, setting, way, file):
    path = way.format(outside=folder.path.parent / "outside")
    as_yaml = yaml.safe_dump({"execution": {setting: path}})
    folder.write(file, as_yaml if file == "config.yaml" else f"HOLODECK_{setting.upper()}={path}\n")

    ran = folder.run("test", env={"HOLODECK_CACHE_DIR": None})

    assert ran.code == 2, ran.stdout + ran.stderr
    assert file in ran.stderr
    assert f"--{setting.replace('_', '-')} PATH" in ran.stderr
    assert below(folder) == []


def test_the_user_names_any_place(folder):
    outside = folder.path.parent / "outside"
    user = folder.path.parent / "agent-home" / ".holodeck"
    user.mkdir()

    by_flag = folder.run("test", "--events", "../outside/flag.jsonl")
    by_variable = folder.run("test", env={"HOLODECK_EVENTS": str(outside / "variable.jsonl")})
    (user / ".env").write_text(f"HOLODECK_EVENTS={outside}/users-env.jsonl\n")
    by_users_env = folder.run("test")
    (user / ".env").unlink()
    (user / "config.yaml").write_text(f"execution: {{events: {outside}/users-config.jsonl}}\n")
    by_users_config = folder.run("test")
    (user / "config.yaml").unlink()
    folder.write_agent(execution={"events": f"{outside}/allowed.jsonl"})
    allowed = folder.run("test", "--allow-outside")

    runs = [by_flag, by_variable, by_users_env, by_users_config, allowed]
    assert [ran.code for ran in runs] == [0] * 5, [ran.stderr for ran in runs]
    names = {"flag.jsonl", "variable.jsonl", "users-env.jsonl", "users-config.jsonl"}
    assert {file.name for file in outside.iterdir()} == names | {"allowed.jsonl"}


def test_a_file_of_the_folder_names_a_place_inside_of_it(folder):
    folder.write_agent(execution={"events": "sub/events.jsonl"})
    folder.write(".env", "HOLODECK_CACHE_DIR=cache\n")

    ran = folder.run("test")

    assert ran.code == 0, ran.stderr
    assert (folder.path / "sub" / "events.jsonl").stat().st_size > 0


def test_the_path_in_an_env_file_starts_from_its_folder(folder):
    folder.write(".env", "HOLODECK_EVENTS=events.jsonl\n")
    elsewhere = folder.path.parent / "outside"

    ran = type(folder)(elsewhere, folder.server).run("test", folder.path / "agent.yaml")

    assert ran.code == 0, ran.stderr
    assert (folder.path / "events.jsonl").stat().st_size > 0
    assert below(folder) == []


def test_no_record_is_written_through_a_link_out_of_the_folder(folder):
    (folder.path / ".holodeck").symlink_to(folder.path.parent / "outside")

    ran = folder.run("test")

    assert ran.code == 2, ran.stdout + ran.stderr
    assert below(folder) == []
    assert folder.run("test", "--allow-outside").code == 0
    assert folder.run("test", "--no-record").code == 0


def test_the_user_names_any_place_for_a_database(folder):
    stores = {"mine": {"provider": "sqlite", "path": "~/mine.sqlite"}}
    user = folder.path.parent / "agent-home" / ".holodeck"
    user.mkdir()
    folder.write_agent(tools=[FILE_TOOL | {"database": "mine"}])
    folder.write("config.yaml", yaml.safe_dump({"vectorstores": stores}))
    by_project = folder.run("validate")
    (folder.path / "config.yaml").rename(user / "config.yaml")

    by_user = folder.run("validate")

    assert (by_project.code, by_user.code) == (2, 0), by_user.stdout


INPUTS = ["agent.yaml", "cases.yaml", "prompt.md", ".env", "tools.py", "helper.py", "base.json"]


@pytest.mark.parametrize("name", INPUTS)
def test_no_report_replaces_a_file_that_the_run_reads(folder, name):
    folder.write("cases.yaml", "- {name: more, input: hello, "
                 "evaluations: [{metric: contains, value: hello}]}\n")  # fmt: skip
    folder.write("prompt.md", "Say hello.\n")
    folder.write(".env", "GREETING=hello\n")
    folder.write("helper.py", "WORD = 'hi'\n")
    folder.write("tools.py", "import helper\ndef f() -> str:\n    return helper.WORD\n")
    tool = {"type": "function", "name": "t", "file": "tools.py", "function": "f"}
    folder.write_agent(
        test_cases_file="cases.yaml", instructions={"file": "prompt.md"}, tools=[tool]
    )
    assert folder.run("test", "-o", "base.json").code == 0
    before, asked = (folder.path / name).read_bytes(), len(folder.server.requests)

    ran = folder.run("test", "--baseline", "base.json", "-o", name, "--format", "json")

    assert ran.code == 2, ran.stdout + ran.stderr
    assert "reads" in ran.stderr or "contradicts" in ran.stderr
    assert (folder.path / name).read_bytes() == before
    assert len(folder.server.requests) == asked


def test_no_event_is_appended_to_a_file_that_the_run_reads(folder):
    before = (folder.path / "agent.yaml").read_bytes()

    ran = folder.run("test", "--events", "agent.yaml")

    assert ran.code == 2, ran.stdout + ran.stderr
    assert (folder.path / "agent.yaml").read_bytes() == before


@pytest.mark.parametrize("key", ["execution.events", "database.path"])
@pytest.mark.parametrize("name", ["agent.yaml", "tools.py", "hard.txt"])
def test_no_key_replaces_a_file_that_the_run_reads_or_one_with_another_name(folder, key, name):
    victim = folder.path.parent / "outside" / "victim.txt"
    victim.write_text("kept")
    (folder.path / "hard.txt").hardlink_to(victim)
    folder.write("tools.py", "WORD = 'hi'\n")
    folder.write_agent(**KEYS[key](name))
    before = (folder.path / name).read_bytes()

    checked, ran = folder.run("validate"), folder.run("test")

    assert (checked.code, ran.code) == (2, 2), ran.stdout + ran.stderr
    assert "is a hard link" in ran.stderr if name == "hard.txt" else "reads" in ran.stderr
    assert (folder.path / name).read_bytes() == before
    assert victim.read_text() == "kept"
    assert folder.server.requests == []


@pytest.mark.parametrize("name", ["agent.yaml", "cases.yaml", ".env", "tools.py", "link", "record"])
@pytest.mark.parametrize("command", ["report", "bless"])
def test_neither_report_nor_baseline_replaces_configuration_code_or_the_record(
    folder, command, name
):
    folder.write("cases.yaml", "- {name: more, input: hello}\n")
    folder.write(".env", "GREETING=hello\n")
    folder.write("tools.py", "WORD = 'hi'\n")
    (folder.path / "link").symlink_to(folder.path / "agent.yaml")
    folder.run("test")
    [record] = folder.path.glob(".holodeck/runs/*/run.jsonl")
    file = record if name == "record" else folder.path / name
    before = file.read_bytes()

    ran = folder.run(command, "last", "-o", file, *(["--format", "json"] * (command == "report")))

    assert ran.code == 2, ran.stdout + ran.stderr
    assert file.read_bytes() == before


FOREIGN = {
    "prompt.md": "You are helpful.\n",
    "history.json": '[{"role": "user", "content": "hi"}]',
    "page.html": "<!DOCTYPE html>\n<html><body>mine</body></html>",
    "data.xml": "<orders><order/></orders>",
    "data.json": '{"schema": 1}',
    "empty.py": "",
    "empty.toml": "",
}
COMMANDS = {
    "test": ("test", "-o"),
    "events": ("test", "--events"),
    "report": ("report", "-o"),
    "bless": ("bless", "-o"),
    "compare": ("compare", "base.json", "last", "-o"),
    "score": ("score", "-o"),
    "schema": ("schema", "-o"),
    "judge": ("judge", "check", "--quick", "--model", "local/none", "--json"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_is_written_over_a_file_that_holodeck_did_not_write(folder, command, tally):
    folder.run("test")
    folder.run("bless", "-o", "base.json")
    for name, text in FOREIGN.items():
        folder.write(name, text)
    asked = len(folder.server.requests)
    files = dict(FOREIGN)
    if command != "bless":
        files["base.json"] = (folder.path / "base.json").read_text()

    lost = []
    for name, text in files.items():
        ran = folder.run(*COMMANDS[command], name)
        if ran.code != 2 or (folder.path / name).read_text() != text:
            lost.append((name, ran.code, ran.stderr))

    tally("files that were lost", lost, len(files))
    assert len(folder.server.requests) == asked


def test_what_holodeck_wrote_is_replaced_and_so_is_an_empty_file(folder):
    formats = ("-o", "r.md", "-o", "r.json", "-o", "r.html", "-o", "r.xml")
    commands = [
        ("test", *formats, "--events", "e.jsonl"),
        ("test", "-o", "quality.json", "--format", "codequality"),
        ("report", "-o", "again.md"),
        ("bless", "-o", "base.json"),
        ("test",),
        ("compare", "base.json", "last", "-o", "c.md", "-o", "c.json", "-o", "c.html"),
        ("schema", "-o", "schema.json"),
    ]
    folder.write("again.md", "")

    for _ in range(2):
        for command in commands:
            ran = folder.run(*command)
            assert ran.code == 0, (command, ran.stderr)


def test_a_report_that_is_an_input_of_the_run_is_not_replaced(folder):
    assert folder.run("test", "-o", "r.md").code == 0
    before = (folder.path / "r.md").read_bytes()
    file = {"path": "r.md", "type": "text"}
    folder.write_agent(test_cases=[{"name": "sums it up", "input": "hello", "files": [file]}])

    ran = folder.run("test", "-o", "r.md")

    assert ran.code == 2, ran.stdout
    assert "reads" in ran.stderr
    assert (folder.path / "r.md").read_bytes() == before


def test_no_report_of_a_record_replaces_the_record(folder):
    folder.run("test")
    [record] = folder.path.glob(".holodeck/runs/*/run.jsonl")
    before = record.read_bytes()

    ran = folder.run("report", "-o", record, "--format", "json")

    assert ran.code == 2, ran.stdout + ran.stderr
    assert record.read_bytes() == before


def test_reports_and_events_go_wherever_the_command_line_says(folder):
    outside = folder.path.parent / "outside"

    ran = folder.run("test", "-o", "results/report.md", "-o", outside / "r.json",
                     "--events", outside / "e.jsonl", "--cache-dir", outside / "cache")  # fmt: skip

    assert ran.code == 0, ran.stderr
    assert (folder.path / "results" / "report.md").is_file()
    assert json.loads((outside / "r.json").read_text())["results"]
    assert Path(outside / "e.jsonl").is_file()
    again = folder.run("test", "-o", "results/report.md", "-o", outside / "r.json")
    assert again.code == 0, again.stderr


def test_only_the_user_can_read_what_a_run_writes(folder):
    verdict = {"c1": {"reasoning": "seen", "status": "passed"}, "decision": "verdict"}
    folder.server.otherwise(json.dumps(verdict))
    criteria = {"criteria": ["is polite"]}
    judge = {"model": folder.model()}
    folder.write_agent(
        evaluations=judge,
        test_cases=[{"name": "c", "input": "hello", **criteria}],
    )
    before = set(folder.path.rglob("*"))

    outputs = ("-o", "results/r.md", "-o", "results/r.json", "--events", "e.jsonl")
    ran = folder.run("test", "--record", "all", *outputs)
    assert ran.code == 0, ran.stderr
    folder.run("report", "-o", "again.html")

    written = set(folder.path.rglob("*")) - before
    suffixes = {path.suffix for path in written if path.is_file()}
    assert suffixes >= {".md", ".json", ".jsonl", ".html"}
    assert any("recordings" in path.parts for path in written)
    readable = [str(path) for path in written if path.stat().st_mode & 0o077]
    assert readable == []
