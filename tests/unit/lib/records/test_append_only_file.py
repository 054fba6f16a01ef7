"""The journal: whole lines or nothing, and trouble told once."""

import errno
import os
import resource
import threading
from pathlib import Path

import pytest

from holodeck.lib.records.recorder import AppendOnlyFile
from holodeck.lib.support.files import try_lock


@pytest.fixture
def size_limit():
    """Lets no file of this process grow beyond a size, as a full disk would not."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_line_is_in_the_file_when_append_returns(tmp_path):
    journal = AppendOnlyFile(tmp_path / "j")

    journal.append(b"one\n")

    assert (tmp_path / "j").read_bytes() == b"one\n"
    journal.close()


def test_an_existing_file_is_never_taken_over(tmp_path):
    (tmp_path / "j").write_bytes(b"mine")

    with pytest.raises(FileExistsError):
        AppendOnlyFile(tmp_path / "j")

    assert (tmp_path / "j").read_bytes() == b"mine"


def test_the_file_is_locked_as_long_as_it_is_written(tmp_path):
    journal = AppendOnlyFile(tmp_path / "j")
    with (tmp_path / "j").open("rb") as file:
        assert not try_lock(file.fileno())
        journal.close()
        assert try_lock(file.fileno())


def test_many_lines_share_a_trip_to_the_disk_and_none_is_left_behind(tmp_path):
    trips = []
    journal = AppendOnlyFile(tmp_path / "j", lambda handle: trips.append(os.fstat(handle).st_size))

    for _ in range(1000):
        journal.append(b"line\n")
    journal.close()

    assert trips[-1] == 5000
    assert len(trips) < 50


def test_what_does_not_fit_is_told_once_kept_and_written_at_the_end(tmp_path, size_limit, caplog):
    journal = AppendOnlyFile(tmp_path / "j")
    size_limit(20)
    for _ in range(5):
        journal.append(b"12345678\n")
    broken = (tmp_path / "j").read_bytes(), journal.failure
    size_limit(1000)
    journal.close()

    assert broken == (b"12345678\n" * 2, "File too large")
    assert (tmp_path / "j").read_bytes() == b"12345678\n" * 5
    assert journal.failure is None
    assert [one.levelname for one in caplog.records] == ["ERROR", "WARNING"]


def test_what_never_fits_stays_trouble(tmp_path, size_limit):
    journal = AppendOnlyFile(tmp_path / "j")
    size_limit(20)
    journal.append(b"x" * 30 + b"\n")
    journal.close()

    assert (tmp_path / "j").read_bytes() == b""
    assert journal.failure == "File too large"


def test_a_file_that_is_removed_meanwhile_is_trouble(tmp_path):
    journal = AppendOnlyFile(tmp_path / "j")
    (tmp_path / "j").unlink()
    journal.append(b"line\n")
    journal.close()

    assert journal.failure == "it was removed during the run"


@pytest.mark.parametrize(
    ("code", "trouble"), [(errno.EIO, "Input/output error"), (errno.EINVAL, None)]
)
def test_a_disk_that_fails_is_trouble_and_one_that_cannot_sync_is_not(tmp_path, code, trouble):
    def sync(_):
        raise OSError(code, os.strerror(code))

    journal = AppendOnlyFile(tmp_path / "j", sync)
    journal.append(b"line\n")
    journal.close()

    assert journal.failure == trouble


def test_closing_leaves_no_thread_and_no_file(tmp_path):
    before = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    AppendOnlyFile(tmp_path / "j").close()

    assert (threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))) == before
