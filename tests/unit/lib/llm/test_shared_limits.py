"""Slots that a worker asks its parent for."""

import asyncio

from holodeck.lib.llm.limiter import Limiters
from holodeck.lib.llm.shared_limits import SharedLimiters, SlotsOfWorker

URL = "http://a"


class Ends:
    """Both ends of the messages about slots; what a side sends, the other handles at once."""

    def __init__(self, slots: int) -> None:
        self.limiters = Limiters(slots)
        self.asked: list[str] = []
        self.parent = SlotsOfWorker(
            self.limiters, lambda message: self.worker.give_slot(message[1])
        )
        self.worker = SharedLimiters(self._to_parent, lambda: 1)

    def _to_parent(self, message):
        self.asked.append(message[0])
        self.parent.handle(message)

    @property
    def in_flight(self):
        return self.limiters.of(URL).in_flight


async def test_a_request_has_a_slot_of_the_parent_while_it_is_in_flight():
    ends = Ends(slots=2)

    async with ends.worker.of(URL).slot():
        held = ends.in_flight

    assert held == 1
    assert (ends.asked, ends.in_flight) == (["enter", "leave"], 0)


async def test_slots_are_free_again_once_the_worker_has_ended():
    ends = Ends(slots=1)
    requests = [asyncio.create_task(ends.worker.of(URL).enter()) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    held = ends.in_flight

    await ends.parent.close()

    assert (held, ends.in_flight) == (1, 0)
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)
