"""Locks of files, between processes and between the threads of one."""

import threading

from holodeck.lib.file_lock import exclusive_lock


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
