"""Finding a run by what a person writes."""

import pytest

from holodeck.errors import ConfigError
from holodeck.errors import FileNotFoundError as MissingFileError
from holodeck.lib.records.run_store import RunStore

IDS = ("20260101-000000-000000-aaaaaa", "20260102-000000-000000-bbbbbb")


@pytest.fixture
def run_store(tmp_path):
    for one in IDS:
        folder = tmp_path / ".holodeck" / "runs" / one
        folder.mkdir(parents=True)
        (folder / "run.jsonl").write_text("")
    return RunStore(tmp_path)


@pytest.mark.parametrize(
    ("said", "index"),
    [(None, 1), ("last", 1), (IDS[0], 0), ("20260102", 1), ("20260101-0", 0)],
)
def test_an_id_a_beginning_or_last_names_a_run(run_store, said, index):
    assert run_store.path(said).parent.name == IDS[index]


def test_a_path_names_a_run_wherever_it_lies(run_store, tmp_path):
    file = run_store.folder / IDS[0] / "run.jsonl"
    copy = tmp_path / "copy.jsonl"
    copy.write_text("")

    assert run_store.path(str(file)) == file
    assert run_store.path(str(file.parent)) == file
    assert run_store.path(str(copy)) == copy


def test_a_beginning_of_several_is_refused_with_their_names(run_store):
    with pytest.raises(ConfigError, match=f"'2026' is ambiguous: {IDS[1]}, {IDS[0]}"):
        run_store.path("2026")


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("20260101-000000-000000-aaaaab", f"did you mean '{IDS[0]}'"),
        ("zzz", "see `holodeck runs list`"),
        ("agent.yaml", "write 'last agent.yaml'"),
    ],
)
def test_what_names_no_run_is_told_with_a_hint(run_store, said, hint):
    with pytest.raises(MissingFileError, match=hint):
        run_store.path(said)


def test_no_run_at_all_is_told(tmp_path):
    with pytest.raises(MissingFileError, match="no run is recorded there"):
        RunStore(tmp_path).path("last")


def test_a_tag_names_one_run_wherever_a_run_is_named(run_store):
    assert run_store.tag(IDS[0], "v1.0") is None
    run_store.tag(IDS[0], "good")
    assert run_store.path("v1.0").parent.name == IDS[0]

    assert run_store.tag(IDS[1], "v1.0") == IDS[0]

    assert run_store.path("v1.0").parent.name == IDS[1]
    assert (run_store.tags(IDS[0]), run_store.tags(IDS[1])) == (["good"], ["v1.0"])
    run_store.remove([IDS[1]])
    with pytest.raises(MissingFileError):
        run_store.path("v1.0")


@pytest.mark.parametrize("tag", ["last", "main", "2026", "a b", "", "run.json", "../x", "x\ny"])
def test_what_would_mean_something_else_is_no_tag(run_store, tag):
    with pytest.raises(ConfigError, match="expected a letter"):
        run_store.tag(IDS[0], tag)
