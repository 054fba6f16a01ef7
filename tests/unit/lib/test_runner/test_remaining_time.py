"""How long the rest of a run will take, on a clock that the test turns."""

import pytest

from holodeck.lib.ui.activity import RemainingTime


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def run_wave(remaining, clock, size, seconds, runs=1):
    """Cases that begin and end together."""
    cases = [object() for _ in range(size)]
    for case in cases:
        remaining.start(case, runs)
    clock.now += seconds
    for case in cases:
        remaining.finish(case)


def test_nothing_is_said_before_three_cases_have_finished(clock):
    remaining = RemainingTime(clock)
    run_wave(remaining, clock, 1, 1)
    run_wave(remaining, clock, 1, 1)
    assert remaining.estimate(10) is None

    run_wave(remaining, clock, 1, 1)
    assert remaining.estimate(10) == pytest.approx(10)


def test_nothing_is_said_before_as_many_cases_have_finished_as_ran_at_a_time(clock):
    """The first to finish are the fast ones."""
    remaining = RemainingTime(clock)
    cases = [object() for _ in range(8)]
    for case in cases:
        remaining.start(case)
    clock.now = 1
    for case in cases[:7]:
        remaining.finish(case)
    assert remaining.estimate(10) is None

    remaining.finish(cases[7])
    assert remaining.estimate(10) == pytest.approx(10 / 8)


def test_concurrency_and_half_done_cases_count(clock):
    remaining = RemainingTime(clock)
    run_wave(remaining, clock, 4, 10)
    for _ in range(4):
        remaining.start(object())
    clock.now += 5

    assert remaining.estimate(12) == pytest.approx(35)  # half of these four, then three waves


def test_repetitions_count_as_runs_of_their_own(clock):
    remaining = RemainingTime(clock)
    for _ in range(3):
        run_wave(remaining, clock, 1, 10, runs=5)

    assert remaining.estimate(5) == pytest.approx(10)


def test_the_last_case_is_waited_for_however_fast_the_others_were(clock):
    remaining = RemainingTime(clock)
    for _ in range(3):
        run_wave(remaining, clock, 10, 10)
    remaining.start(object())

    assert remaining.estimate(0) == pytest.approx(10)


def test_nothing_is_said_of_a_last_case_that_takes_longer_than_the_others(clock):
    remaining = RemainingTime(clock)
    for _ in range(3):
        run_wave(remaining, clock, 1, 1)
    remaining.start(object())
    clock.now += 5

    assert remaining.estimate(0) is None


def test_a_stall_makes_the_estimate_grow(clock):
    remaining = RemainingTime(clock)
    for _ in range(3):
        run_wave(remaining, clock, 1, 1)
    remaining.start(object())
    clock.now += 1
    before = remaining.estimate(10)
    clock.now += 60

    assert remaining.estimate(10) > 10 * before
