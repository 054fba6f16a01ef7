import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holodeck.lib.llm.retry import RetryConfig, backoff_delay, parse_retry_after, retry

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class Flaky:
    """Fails with the given errors one after the other, then answers."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


class Sleeper:
    """A clock that notes waits instead of waiting."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)


def is_connection(error: Exception) -> bool:
    return isinstance(error, ConnectionError)


async def test_a_transient_error_is_tried_again_after_the_delay():
    call, sleep = Flaky(ConnectionError("a"), ConnectionError("b")), Sleeper()

    answer = await retry(
        call,
        attempts=3,
        is_transient=is_connection,
        delay_for=lambda _, attempt: attempt * 10,
        sleep=sleep,
    )

    assert (answer, call.calls, sleep.waits) == ("answer", 3, [10, 20])


async def test_the_error_of_the_last_try_is_raised_without_a_wait_after_it():
    call, sleep = Flaky(ConnectionError("a"), ConnectionError("b")), Sleeper()

    with pytest.raises(ConnectionError, match="b"):
        await retry(
            call,
            attempts=2,
            is_transient=is_connection,
            delay_for=lambda *_: 1,
            sleep=sleep,
        )

    assert sleep.waits == [1]


async def test_an_error_that_will_not_pass_is_raised_at_once():
    call, sleep = Flaky(ValueError("bad key")), Sleeper()

    with pytest.raises(ValueError, match="bad key"):
        await retry(
            call, attempts=5, is_transient=is_connection, delay_for=lambda *_: 1, sleep=sleep
        )

    assert (call.calls, sleep.waits) == (1, [])


async def test_each_wait_is_announced_with_its_error_try_and_length():
    told: list[tuple[str, int, float]] = []

    await retry(
        Flaky(ConnectionError("a")),
        attempts=2,
        is_transient=is_connection,
        delay_for=lambda *_: 4.0,
        sleep=Sleeper(),
        on_retry=lambda error, attempt, delay: told.append((str(error), attempt, delay)),
    )

    assert told == [("a", 1, 4.0)]


async def test_a_delay_that_raises_ends_the_tries():
    call = Flaky(ConnectionError("slow down"))

    def too_long(error: Exception, attempt: int) -> float:
        raise RuntimeError("the server asks for 3600 s") from error

    with pytest.raises(RuntimeError, match="3600"):
        await retry(call, attempts=3, is_transient=is_connection, delay_for=too_long)

    assert call.calls == 1


async def test_cancellation_is_never_tried_again():
    call = Flaky(asyncio.CancelledError())

    with pytest.raises(asyncio.CancelledError):
        await retry(call, attempts=3, is_transient=lambda _: True, delay_for=lambda *_: 0)

    assert call.calls == 1


async def test_zero_attempts_is_refused_instead_of_failing_without_a_try():
    with pytest.raises(ValueError, match="at least 1"):
        await retry(Flaky(), attempts=0, is_transient=is_connection, delay_for=lambda *_: 0)


@given(attempt=st.integers(1, 5000), luck=st.floats(0, 1))
@settings(max_examples=100)
def test_a_delay_lies_between_zero_and_the_growing_and_capped_limit(attempt, luck):
    config = RetryConfig(base_delay=2, max_delay=60, exponential_base=2)

    delay = backoff_delay(attempt, config, lambda: luck)

    assert 0 <= delay <= min(60, 2.0 ** min(attempt, 10))


@pytest.mark.parametrize(("attempt", "longest"), [(1, 2), (2, 4), (5, 32), (6, 60), (9999, 60)])
def test_the_longest_wait_doubles_up_to_the_cap(attempt, longest):
    assert backoff_delay(attempt, RetryConfig(), lambda: 1.0) == longest


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"RETRY-AFTER-MS": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"Retry-After": "0"}, 0.0),
        ({"Retry-After": format_datetime(NOW + timedelta(seconds=30), usegmt=True)}, 30.0),
        ({"Retry-After": "Sun, 01 Mar 2026 12:00:05 -0000"}, 5.0),
        ({"Retry-After": format_datetime(NOW - timedelta(seconds=30), usegmt=True)}, None),
        ({"Retry-After": "-5"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "1_0"}, None),
        ({"Retry-After": "9" * 400}, None),
        ({"Retry-After": "tomorrow"}, None),
        ({"Retry-After": ""}, None),
        ({}, None),
    ],
)
def test_what_a_server_asks_to_wait_is_read(headers, seconds):
    assert parse_retry_after(headers, lambda: NOW) == seconds


@given(text=st.text(max_size=40))
@settings(max_examples=200)
def test_no_header_can_break_the_reading(text):
    seconds = parse_retry_after({"Retry-After": text, "retry-after-ms": text}, lambda: NOW)

    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(
    "wrong",
    [{"max_retries": -1}, {"base_delay": -1}, {"max_delay": float("inf")}, {"exponential_base": 1}],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(pydantic.ValidationError):
        RetryConfig(**wrong)
