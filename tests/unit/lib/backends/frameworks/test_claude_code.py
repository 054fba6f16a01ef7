"""The guard of Claude Code's process groups, which needs no SDK."""

import os

from holodeck.lib.processes.process_guard import Guard
from support.processes import descendants


def test_a_guard_runs_while_there_is_a_group_to_watch():
    guard, before = Guard(), set(descendants(os.getpid()))

    guard.release(987_654_321)  # that of a program that could not be started
    guard.watch(987_654_321)
    watching = set(descendants(os.getpid())) - before
    guard.watch(987_654_322)
    guard.release(987_654_321)
    still_watching = set(descendants(os.getpid())) - before
    guard.release(987_654_322)
    guard.release(987_654_322)

    assert len(watching) == 1
    assert still_watching == watching
    assert set(descendants(os.getpid())) <= before
