"""The limiter under any interleaving: never too many, in order, nobody forgotten.

Time is simulated: a loop whose clock jumps to the next timer as soon as nothing else is to do.
"""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from holodeck.lib.llm.limiter import GROWTH_INTERVAL_S, Limiter, Limiters
from support.clock import simulated

REQUESTS = st.lists(
    st.tuples(
        st.floats(0, 2),  # comes
        st.floats(0, 3),  # takes
        st.sampled_from(["ok", "ok", "ok", "overload", "pause", "error", "cancel", "day"]),
        st.floats(0, 5),  # asks to wait, or is cancelled after
    ),
    max_size=60,
)


class _Seen:
    """Asks a limiter for slots and keeps what came of it."""

    def __init__(self, limiter):
        self.limiter = limiter
        self.asked, self.served, self.ended = [], [], set()
        self.under_way = 0

    async def request(self, number, comes, takes, ends, more):
        await asyncio.sleep(comes)
        self.asked.append(number)
        try:
            async with self.limiter.slot() as slot:
                self.served.append(number)
                self.under_way += 1
                assert self.under_way <= self.limiter.in_flight <= self.limiter.max_slots
                try:
                    await asyncio.sleep(takes)
                finally:
                    self.under_way -= 1
                self.end(slot, ends, more)
        except RuntimeError:
            assert ends == "error"
        self.ended.add(number)

    def end(self, slot, ends, more):
        waits = {"overload": None, "pause": more, "day": 86_400.0}
        if ends in waits:
            self.limiter.note_overload(slot, waits[ends])
        elif ends == "error":
            raise RuntimeError


@given(
    REQUESTS,
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from([None, GROWTH_INTERVAL_S, 1.0]),
)
def test_never_too_many_in_order_and_nobody_forgotten(requests, most, first, quiet):
    async def run(clock):
        limiter = Limiter(
            "test", max_slots=most, initial_slots=first, growth_interval_s=quiet, clock=clock
        )
        seen = _Seen(limiter)
        tasks = [asyncio.create_task(seen.request(n, *one)) for n, one in enumerate(requests)]
        for task, (comes, _, ends, more) in zip(tasks, requests, strict=True):
            if ends == "cancel":
                asyncio.get_running_loop().call_later(comes + more, task.cancel)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)

        assert not [one for one in outcomes if isinstance(one, Exception)]
        uncancelled = {n for n, one in enumerate(requests) if one[2] != "cancel"}
        assert uncancelled <= seen.ended
        assert [n for n in seen.asked if n in set(seen.served)] == seen.served
        assert (limiter.in_flight, seen.under_way) == (0, 0)
        assert 1 <= limiter.slots <= most
        # One after the other is the worst there is, and no wait of a day is among it.
        assert clock() <= 2 + sum(takes + more for _, takes, _, more in requests) + 0.1

    simulated(run)


@given(st.integers(1, 100), st.integers(1, 100), st.integers(1, 400))
def test_without_complaints_the_limiter_grows_to_the_most_it_may(most, first, requests):
    async def run(clock):
        limiter = Limiter("test", max_slots=most, initial_slots=first, clock=clock)

        async def one():
            async with limiter.slot():
                await asyncio.sleep(1)

        await asyncio.gather(*(one() for _ in range(requests)))
        assert limiter.peak <= min(most, requests)
        assert limiter.peak >= min(first, most, requests)

    simulated(run)


@given(st.floats(0.1, 50), st.integers(1, 20))
def test_while_an_endpoint_asks_to_wait_nothing_starts(pause, requests):
    async def run(clock):
        limiter = Limiter("test", clock=clock)
        async with limiter.slot() as slot:
            limiter.note_overload(slot, pause)
        ends = clock() + pause
        starts = []

        async def one():
            async with limiter.slot():
                starts.append(clock())

        await asyncio.gather(*(one() for _ in range(requests)))
        assert all(start >= ends for start in starts)

    simulated(run)


@given(st.integers(1, 20), st.integers(1, 40), st.floats(1, 1000))
def test_a_slow_kind_of_work_holds_up_no_other(most, slow_ones, takes):
    async def run(clock):
        limiters = Limiters(most, most)

        async def work(kind, seconds):
            async with limiters.of("https://host", kind).slot():
                await asyncio.sleep(seconds)
            return clock()

        slow = [asyncio.create_task(work("judge", takes)) for _ in range(slow_ones)]
        await asyncio.sleep(0)
        ended = await asyncio.gather(*(work("agent", 0.01) for _ in range(most)))
        assert max(ended) < 0.1
        assert max(await asyncio.gather(*slow)) >= takes

    simulated(run)
