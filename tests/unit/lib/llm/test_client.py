"""The time limit of a request: for its attempts together, not for the waits between them."""

import asyncio

import pytest

from holodeck.lib.llm.client import RequestSender, RequestStats
from holodeck.lib.llm.errors import RequestError
from holodeck.lib.llm.limiter import Limiters
from holodeck.lib.llm.limits import RequestOptions, call_limits
from holodeck.lib.llm.retry import RetryConfig
from support.clock import simulated

CONFIG = RetryConfig(max_retries=5, base_delay=0)


def send(attempt, timeout=60):
    """What comes of a request with these attempts, the seconds it took, and the attempts made."""
    made = []

    async def request(_):
        made.append(1)
        return await attempt(len(made))

    async def main(clock):
        sender = RequestSender("x", Limiters(), "judge", jitter=0, timeout=timeout)
        try:
            result = await sender.send(request, CONFIG, RequestStats())
        except RequestError as error:
            result = error
        return result, clock(), len(made)

    return simulated(main)


async def busy(number):
    """Asks to wait 50 seconds, twice; each attempt takes five."""
    await asyncio.sleep(5)
    if number < 3:
        raise RequestError("busy", is_transient=True, retry_after=50)
    return "answer"


async def slow(number):
    """Fails after 25 seconds, with an error that may pass."""
    await asyncio.sleep(25)
    raise RequestError("broken", is_transient=True)


async def silent(number):
    await asyncio.sleep(1e6)


def test_waits_that_the_server_asks_for_do_not_count():
    result, seconds, attempts = send(busy)

    assert (result, attempts) == ("answer", 3)
    assert seconds == pytest.approx(115)


@pytest.mark.parametrize(("attempt", "attempts"), [(silent, 1), (slow, 3)])
def test_the_attempts_together_end_at_the_limit(attempt, attempts):
    result, seconds, made = send(attempt)

    assert str(result) == "no answer within 60 s (execution.llm_timeout)"
    assert result.is_transient
    assert (seconds, made) == (pytest.approx(60), attempts)


def test_a_timeout_of_the_request_itself_is_no_time_limit():
    async def refused(_):
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        send(refused)


def test_a_request_with_a_limit_of_its_own_may_take_it_in_each_attempt():
    usual = call_limits(None)

    assert RequestOptions(timeout=300).limits(usual).attempt_timeout == 300
    assert RequestOptions(timeout=300).limits(usual).timeout is None
    assert RequestOptions().limits(usual).timeout == 60
