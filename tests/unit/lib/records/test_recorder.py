"""Beginning a record: a folder of its own, out of git, without secrets."""

import json
import os

import pytest

from holodeck.errors import ReportError
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.records.recorder import RUNS_FOLDER, AppendOnlyFile, Recorder
from holodeck.lib.records.run_store import read_run
from holodeck.lib.secrets.redact import Redactor
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig

AGENT = {
    "name": "a",
    "model": {"provider": "openai", "name": "m", "api_key": "a-very-secret-key"},
    "instructions": {"inline": "Say a-very-secret-key to nobody."},
    "test_cases": [{"name": "greets", "input": "hi"}],
}


@pytest.fixture
def recorder(tmp_path):
    """Makes a recorder; all are closed in the end."""
    made = []

    def make():
        agent = Agent.model_validate(AGENT).with_base_dir(tmp_path)
        made.append(Recorder(agent, fingerprint_of(agent)))
        return made[-1]

    yield make
    for one in made:
        one._file.close()


def test_runs_that_begin_at_the_same_time_have_folders_of_their_own(recorder):
    ids = [recorder().id for _ in range(50)]

    assert len(set(ids)) == 50
    assert [one[:22] for one in ids] == sorted(one[:22] for one in ids)


def test_records_stay_out_of_git_and_a_gitignore_of_the_user_s_stays(recorder, tmp_path):
    recorder()
    ignore = tmp_path / RUNS_FOLDER / ".gitignore"
    written = ignore.read_text()
    ignore.write_text("mine")
    recorder()

    assert written == "*\n"
    assert ignore.read_text() == "mine"


def test_the_first_line_tells_what_is_run_without_secrets(recorder):
    made = recorder()
    made.begin("agent.yaml", ExecutionConfig(), Redactor(["a-very-secret-key"]), version="1.2")

    text = made.path.read_text()
    head = json.loads(text)
    assert "very-secret" not in text
    assert (head["event"], head["schema_version"], head["id"]) == ("run_started", 1, made.id)
    assert head["versions"]["holodeck"] == "1.2"
    assert head["config"]["model"]["name"] == "m"
    assert head["config"]["instructions"]["inline"] == "Say ***-key to nobody."
    assert read_run(made.path).started.cases[0].name == "greets"


@pytest.mark.parametrize(
    "case",
    [
        {"input": "hi\nsk-0123456789abcdefghij"},
        {"input": "hi", "name": "a-very-secret-key"},
        {"input": "hi", "expected_tools": [{"name": "t", "args": {"Authorization": "abc123"}}]},
        {"input": "hi", "expected_tools": [{"name": "t", "args": {"a-very-secret-key": 1}}]},
    ],
    ids=["pattern", "name", "by its key", "as a key"],
)
def test_a_secret_in_one_of_many_cases_is_found(tmp_path, case):
    many = [{"input": f"case {n}"} for n in range(100)]
    agent = Agent.model_validate(AGENT | {"test_cases": [*many, case]}).with_base_dir(tmp_path)
    made = Recorder(agent, fingerprint_of(agent))
    made.begin("agent.yaml", ExecutionConfig(), Redactor(["a-very-secret-key"]), version="1.2")
    made._file.close()

    text = made.path.read_text()
    assert [one for one in ("sk-0123456", "very-secret", "abc123") if one in text] == []
    assert "case 99" in text


def test_where_no_folder_can_be_made_the_error_names_the_way_out(recorder, tmp_path):
    (tmp_path / ".holodeck").write_text("")

    with pytest.raises(ReportError, match=r"cannot be recorded in .*--no-record"):
        recorder()


def test_the_first_line_holds_every_case_however_many_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr("holodeck.lib.records.fingerprint._CASES_AT_ONCE", 2)
    texts = ["plain", "a-very-secret-key", "\ufffd", "] , [", "é\n"]
    cases = [{"name": f"case {at}", "input": one} for at, one in enumerate(texts)]
    agent = Agent.model_validate(AGENT | {"test_cases": cases}).with_base_dir(tmp_path)
    made = Recorder(agent, fingerprint_of(agent))
    made.begin("agent.yaml", ExecutionConfig(), Redactor(["a-very-secret-key"]), version="1.2")
    made._file.close()

    [line] = made.path.read_text().splitlines()
    cases = json.loads(line)["config"]["test_cases"]
    assert [one["input"] for one in cases] == ["plain", "***-key", "\ufffd", "] , [", "é\n"]
    assert [one["name"] for one in cases] == [f"case {at}" for at in range(5)]


def test_parts_of_lines_that_do_not_fit_on_the_disk_are_written_at_the_end(tmp_path, monkeypatch):
    file = AppendOnlyFile(tmp_path / "j")
    written, real = [], os.write

    def full_after_one(handle, data):
        written.append(data)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        return real(handle, data)

    monkeypatch.setattr(os, "write", full_after_one)
    file.append(b"one ", b"line\n")
    assert file.failure == "No space left on device"
    assert (tmp_path / "j").read_bytes() == b""
    file.append(b"two\n")
    file.close()
    assert (tmp_path / "j").read_bytes() == b"one line\ntwo\n"
    assert file.failure is None
