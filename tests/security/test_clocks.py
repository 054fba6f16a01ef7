"""A clock that is put back or forward loses no run and misnames none."""

from datetime import UTC, datetime, timedelta

import pytest

from holodeck.lib.records import recorder
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.records.recorder import Recorder
from holodeck.lib.records.run_store import RunStore
from holodeck.models.agent import Agent

NOW = datetime(2030, 5, 6, 7, 8, 9, 10, tzinfo=UTC)


@pytest.fixture
def record_at(tmp_path, monkeypatch):
    """Makes the record of a run at a time, and returns its id."""
    agent = Agent.model_validate({"name": "a", "backend": "b:c", "test_cases": [{"input": "x"}]})
    agent = agent.with_base_dir(tmp_path)

    def record(time):
        class Clock(datetime):
            @classmethod
            def now(cls, tz=None):  # noqa: ARG003 - the signature of datetime
                return time

        monkeypatch.setattr(recorder, "datetime", Clock)
        made = Recorder(agent, fingerprint_of(agent))
        made._file.close()
        return made.id

    return record


@pytest.mark.parametrize(
    "times",
    [
        [NOW, NOW - timedelta(hours=1), NOW - timedelta(days=400)],
        [NOW, NOW + timedelta(days=9_999), NOW],
        [NOW, NOW, NOW],
    ],
    ids=["back", "forward and back", "frozen"],
)
def test_the_last_run_is_the_one_that_began_last(record_at, tmp_path, times):
    ids = [record_at(time) for time in times]

    assert RunStore(tmp_path).ids() == ids[::-1]


def test_a_folder_with_another_name_is_no_run(record_at, tmp_path):
    (tmp_path / recorder.RUNS_FOLDER / "99991231-235959-999999-x").mkdir(parents=True)

    assert record_at(NOW).startswith("20300506-070809-000010-")


def test_a_run_after_the_clock_was_put_back_is_compared_with_the_one_before(agent_dir):
    agent_dir.write_agent()
    agent_dir.run("test")
    [record] = agent_dir.path.glob(".holodeck/runs/*/run.jsonl")
    today, later = datetime.now(UTC), datetime.now(UTC) + timedelta(days=400)
    text = record.read_text().replace(today.strftime("%Y-%m-%d"), later.strftime("%Y-%m-%d"))
    record.write_text(text.replace(today.strftime("%Y%m%d"), later.strftime("%Y%m%d")))
    record.parent.rename(record.parent.parent / later.strftime("%Y%m%d-%H%M%S-%f-abc123"))
    agent_dir.run("test")

    in_order = agent_dir.run("compare", "previous", "last")
    reversed_order = agent_dir.run("compare", "last", "previous")

    assert later.strftime("%Y-%m-%d") in text
    assert (in_order.code, reversed_order.code) == (0, 2), in_order.stderr
    assert "is older than BASE" in reversed_order.stderr
