"""Slots of an endpoint: growth, cuts, pauses, order, and clocks that stand still."""

import asyncio
import time
from itertools import pairwise

import pytest

from holodeck.lib.llm.limiter import Limiter, Limiters, time_limit
from holodeck.lib.ui.activity import Activities, current_case, displayed
from support.clock import simulated


async def hold(limiter, released, *, begun=None):
    async with limiter.slot() as slot:
        if begun is not None:
            begun.append(slot)
        await released.wait()
        return slot


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_are_let_in_than_there_are_slots():
    limiter, released = Limiter("x", max_slots=3, initial_slots=3), asyncio.Event()
    tasks = [asyncio.create_task(hold(limiter, released)) for _ in range(10)]
    await settle()

    assert limiter.in_flight == 3
    released.set()
    await asyncio.gather(*tasks)
    assert (limiter.in_flight, limiter.peak) == (0, 3)


async def test_they_are_let_in_in_the_order_of_asking():
    limiter, order = Limiter("x", max_slots=1, initial_slots=1), []

    async def use(number):
        async with limiter.slot():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*[use(number) for number in range(20)])

    assert order == list(range(20))


async def test_slots_double_with_each_clean_round_up_to_the_most():
    limiter, seen = Limiter("x", max_slots=20, initial_slots=2), []

    async def use():
        async with limiter.slot():
            seen.append(limiter.slots)
            await asyncio.sleep(0)

    await asyncio.gather(*[use() for _ in range(100)])

    assert sorted(set(seen)) == [2, 4, 8, 16, 20]


@pytest.mark.parametrize(("answers_at_once", "peak"), [(1000, 200), (30, 100), (4, 100)])
def test_there_are_more_than_100_slots_only_while_responses_do_not_get_slower(
    answers_at_once, peak
):
    async def main(clock):
        limiter, busy = Limiter("x", clock=clock), asyncio.Semaphore(answers_at_once)

        async def use():
            async with limiter.slot(), busy:
                await asyncio.sleep(1)

        await asyncio.gather(*[use() for _ in range(2000)])
        return limiter.peak

    assert simulated(main) == peak


def test_a_number_of_slots_that_the_user_named_is_reached_though_responses_get_slower():
    async def main(clock):
        limiter = Limiter("x", max_slots=150, growth_interval_s=0.05, clock=clock)
        busy = asyncio.Semaphore(50)

        async def use():
            async with limiter.slot(), busy:
                await asyncio.sleep(1)

        await asyncio.gather(*[use() for _ in range(1000)])
        return limiter.peak

    assert simulated(main) == 150


@pytest.mark.parametrize(
    ("quiet_s", "complaints", "peak"), [(None, False, 4), (0.001, False, 20), (0.001, True, 4)]
)
async def test_silence_is_enough_to_grow_where_so_many_were_asked_for(quiet_s, complaints, peak):
    limiter, released = (
        Limiter("x", max_slots=20, initial_slots=4, growth_interval_s=quiet_s),
        asyncio.Event(),
    )
    begun = []
    tasks = [asyncio.create_task(hold(limiter, released, begun=begun)) for _ in range(30)]
    await settle()
    if complaints:
        limiter.note_overload(begun[0])

    async with asyncio.timeout(60):
        while limiter.peak < peak:  # noqa: ASYNC110 - only time makes it grow
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)

    assert limiter.peak == peak
    released.set()
    await asyncio.gather(*tasks)


async def test_a_wave_of_complaints_halves_once_and_growth_is_slow_from_there():
    limiter, released, begun = Limiter("x", max_slots=100, initial_slots=8), asyncio.Event(), []
    tasks = [asyncio.create_task(hold(limiter, released, begun=begun)) for _ in range(30)]
    await settle()

    for slot in begun[:]:
        limiter.note_overload(slot)
    released.set()
    await asyncio.gather(*tasks)

    assert limiter.peak == 8
    assert 4 < limiter.slots <= 8


async def test_as_many_are_kept_as_got_through_a_wave():
    limiter, released, begun = Limiter("x", max_slots=100, initial_slots=32), asyncio.Event(), []
    tasks = [asyncio.create_task(hold(limiter, released, begun=begun)) for _ in range(32)]
    await settle()

    for slot in begun[10:]:
        limiter.note_overload(slot)
    released.set()
    await asyncio.gather(*tasks)

    assert limiter.slots == 10


async def test_what_was_too_much_is_tried_again_less_and_less_often():
    """An endpoint that takes four at once hears of a fifth after 8 clean rounds, 16, 32, …"""
    limiter, tries = Limiter("x", max_slots=100, initial_slots=4), []

    async def use(number):
        async with limiter.slot() as slot:
            is_too_much = limiter.in_flight > 4
            await asyncio.sleep(0)
            if is_too_much and slot.era == len(tries):
                tries.append(number)
                limiter.note_overload(slot)

    await asyncio.gather(*[use(number) for number in range(1000)])

    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert 5 <= len(tries) <= 6
    assert all(later > 1.6 * earlier for earlier, later in pairwise(gaps[1:]))


async def test_a_pause_that_the_endpoint_asks_for_is_kept():
    limiter = Limiter("x", max_slots=2, initial_slots=2)
    loop = asyncio.get_running_loop()
    async with limiter.slot() as slot:
        started = loop.time()
        limiter.note_overload(slot, 0.1)
    asked = loop.time()

    async with limiter.slot() as after:
        entered = loop.time()

    assert entered - started >= 0.09
    assert 0.09 - (asked - started) <= after.waited_s <= entered - asked


async def test_a_cancelled_wait_leaves_no_trace():
    limiter, released = Limiter("x", max_slots=1, initial_slots=1), asyncio.Event()
    holder = asyncio.create_task(hold(limiter, released))
    await settle()
    waiting = asyncio.create_task(hold(limiter, released))
    await settle()

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    released.set()
    await holder

    assert limiter.in_flight == 0
    async with limiter.slot():
        assert limiter.in_flight == 1


async def test_one_that_is_let_in_and_cancelled_in_the_same_moment_gives_its_slot_back():
    limiter, released = Limiter("x", max_slots=1, initial_slots=1), asyncio.Event()
    holder = asyncio.create_task(hold(limiter, released))
    await settle()
    waiting = asyncio.create_task(hold(limiter, released))
    await settle()

    released.set()
    await holder
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    assert limiter.in_flight == 0


async def test_an_error_in_the_block_frees_the_slot():
    limiter = Limiter("x", max_slots=1, initial_slots=1)

    with pytest.raises(ValueError, match="mine"):
        async with limiter.slot():
            raise ValueError("mine")

    assert limiter.in_flight == 0


def test_waiting_for_a_slot_does_not_count_into_a_time_limit():
    async def main(clock):
        limiter = Limiter("x", max_slots=1, initial_slots=1, clock=clock)

        async def use():
            async with time_limit(1000), limiter.slot() as slot:
                await asyncio.sleep(100)
                return slot.waited_s

        return await asyncio.gather(*[use() for _ in range(12)])

    assert simulated(main)[-1] > 1000


async def test_work_in_a_slot_counts_into_a_time_limit():
    limiter = Limiter("x", max_slots=1, initial_slots=1)

    with pytest.raises(TimeoutError):
        async with time_limit(0.05), limiter.slot():
            await asyncio.sleep(5)

    assert limiter.in_flight == 0


async def test_a_block_that_holds_the_loop_for_longer_than_it_may_is_too_late():
    with pytest.raises(TimeoutError):
        async with time_limit(0.001) as limit:
            time.sleep(0.01)  # noqa: ASYNC251 - agents do

    assert limit.expired()


async def test_each_endpoint_and_kind_of_work_has_slots_of_its_own():
    limiters = Limiters(max_slots=5)

    assert limiters.of("a") is limiters.of("a")
    assert limiters.of("a") is not limiters.of("b")
    assert limiters.of("a", "judge") is not limiters.of("a")


async def test_a_wait_is_shown_with_its_cause():
    limiter, released, activities = Limiter("x", 1, 1), asyncio.Event(), Activities()
    displayed.set(activities)
    first = asyncio.create_task(hold(limiter, released))
    await settle()
    second = asyncio.create_task(hold(limiter, released))
    await settle()
    assert activities.of(current_case()).text == "waiting for other requests"

    limiter.pause(30, "test")
    third = asyncio.create_task(hold(limiter, released))
    await settle()
    wait = activities.of(current_case())
    assert wait.describe(wait.ends_at - 12) == "waiting 12 s for the rate limit"

    for task in (first, second, third):
        task.cancel()
    await asyncio.gather(first, second, third, return_exceptions=True)
    assert activities.of(current_case()) is None
