"""Locks of files, between processes and between the threads of one."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from holodeck.lib.support.files import exclusive_lock, try_lock


def test_a_thread_that_waits_for_another_does_not_speak_of_a_process(tmp_path, caplog):
    path = tmp_path / "terms.lock"
    has_it = threading.Event()

    def take() -> None:
        with exclusive_lock(path, "it opens terms"):
            has_it.set()

    with exclusive_lock(path, "it opens terms"):
        other = threading.Thread(target=take)
        other.start()
        waited = not has_it.wait(0.2)
    other.join()

    assert waited
    assert has_it.is_set()
    assert caplog.text == ""


def test_a_lock_that_a_thread_keeps_is_waited_for_only_so_long(tmp_path):
    path = tmp_path / "terms.lock"
    with ThreadPoolExecutor(1) as pool, exclusive_lock(path, "it opens terms"):
        waiting = pool.submit(lambda: exclusive_lock(path, "terms", limit_s=0.05).__enter__())

        with pytest.raises(TimeoutError, match=r"terms\.lock was locked for 0\.05 s"):
            waiting.result()


def test_a_lock_that_another_process_keeps_is_waited_for_only_so_long(tmp_path):
    path = tmp_path / "terms.lock"
    with path.open("w") as other:  # another opening of the file is like another process
        assert try_lock(other.fileno())

        with (
            pytest.raises(TimeoutError, match=r"locked for 0\.05 s \(terms\)"),
            exclusive_lock(path, "terms", limit_s=0.05),
        ):
            pass

    with exclusive_lock(path, "terms", limit_s=60):
        pass
