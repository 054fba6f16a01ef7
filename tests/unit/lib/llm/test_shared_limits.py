"""Slots that the parent gives to a worker together with a run."""

import pytest

from holodeck.lib.llm.limiter import Limiters
from holodeck.lib.llm.shared_limits import SharedLimiters, SlotsOfWorker

URL = "http://a"


class Ends:
    """Both ends of the messages about slots; what a side sends, the other handles at once."""

    def __init__(self, slots: int) -> None:
        self.limiters = Limiters(slots)
        self.asked: list[str] = []
        self.run = 1
        self.parent = SlotsOfWorker(
            self.limiters, lambda message: self.worker.give_slot(message[1])
        )
        self.worker = SharedLimiters(self._to_parent, lambda: self.run)

    def _to_parent(self, message):
        self.asked.append(message[0])
        self.parent.handle(message)

    async def request(self, kind="agent"):
        async with self.worker.of(URL, kind).slot():
            pass

    def begin_run(self):
        granted = self.parent.grant()
        if granted is not None:
            self.worker.grant(self.run, *granted)
        return granted

    @property
    def in_flight(self):
        return self.limiters.of(URL).in_flight


@pytest.fixture
async def ends():
    """A worker whose first run has asked for a slot."""
    ends = Ends(slots=2)
    assert ends.begin_run() is None, "what runs ask for is not known yet"
    await ends.request()
    assert (ends.asked, ends.in_flight) == (["enter", "leave"], 0)
    ends.asked.clear()
    ends.run = 2
    return ends


async def test_a_run_with_a_slot_does_not_ask_for_its_first_request(ends):
    ends.begin_run()
    held = ends.in_flight

    await ends.request()
    await ends.request()

    assert held == 1
    assert ends.asked == ["leave", "enter", "leave"]
    assert ends.in_flight == 0


async def test_a_slot_goes_back_if_the_run_makes_no_request_or_another_one(ends):
    ends.begin_run()
    ends.worker.return_unused(2)
    after_none = ends.in_flight
    ends.begin_run()
    await ends.request("judge")

    assert after_none == 0
    assert ends.asked == ["return", "return", "enter", "leave"]
    assert ends.in_flight == 0


async def test_no_run_gets_a_slot_that_nobody_else_could_have(ends):
    limiter = ends.limiters.of(URL)
    taken = [await limiter.enter(), await limiter.enter()]

    assert ends.begin_run() is None
    for slot in taken:
        limiter.leave(slot, failed=False)
    assert ends.begin_run() is not None


async def test_slots_of_runs_are_free_again_once_the_worker_has_ended(ends):
    ends.begin_run()

    await ends.parent.close()

    assert ends.in_flight == 0
