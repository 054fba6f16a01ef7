"""Records of every version that was ever written can be read, reported on and graded again."""

from pathlib import Path

import pytest

from fakes import run_cli
from holodeck.lib.records.run_store import read_run
from holodeck.lib.test_runner.grading.recorded import report_of

RECORDS = sorted((Path(__file__).parent / "data").glob("run-v*.jsonl"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_an_old_record_is_read_and_reported(path, tmp_path):
    run = read_run(path)
    ran = run_cli("report", path, cwd=tmp_path)

    assert run.warnings == ()
    assert report_of(run).summary.outcomes == {"passed": 1, "failed": 1, "agent_error": 1}
    written = run.ended.summary.model_dump(exclude_unset=True)  # later versions may add to it
    assert report_of(run).summary.model_dump(include=set(written)) == written
    assert ran.code == 0
    assert ran.stdout.startswith("# Test Report: old\n")
    assert not (tmp_path / ".holodeck").exists()


def test_every_version_has_its_record():
    from holodeck.models.records.record import SCHEMA_VERSION

    assert [path.stem for path in RECORDS] == [f"run-v{n}" for n in range(1, SCHEMA_VERSION + 1)]
