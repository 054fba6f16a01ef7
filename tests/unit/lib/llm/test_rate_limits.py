"""Headers that tell of a limit before it is reached."""

import asyncio
import logging
from datetime import UTC, datetime

import pytest

from holodeck.lib.llm.limiter import Limiter, apply_rate_limits, seconds_until


def noon():
    return datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("1s", 1.0),
        ("1.25s", 1.25),
        ("20ms", 0.02),
        ("6m0s", 360.0),
        ("1h2m3.5s", 3723.5),
        ("1d2h", 93_600.0),
        ("2", 2.0),
        (" 0.5 ", 0.5),
        ("0s", 0.0),
        ("2026-11-21T12:00:07Z", 7.0),
        ("2026-11-21T13:00:07.500+01:00", 7.5),
        ("2026-11-21T12:00:07", 7.0),
        ("2026-11-21T11:00:00Z", 0.0),
    ],
)
def test_a_reset_is_a_duration_a_number_or_a_date(reset, seconds):
    assert seconds_until(reset, noon) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "reset",
    ["", "soon", "-1s", "-5", "1x", "s", "nan", "inf", "1e9", "9" * 50, "1s2", "2026-13-01"],
)
def test_a_reset_that_makes_no_sense_is_none(reset):
    assert seconds_until(reset, noon) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "200ms"},
        {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "0.2"},
        {
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": "2026-11-21T12:00:00.200Z",
        },
        {"ratelimit-remaining": "0", "ratelimit-reset": "0.2"},
    ],
    ids=lambda headers: next(iter(headers)),
)
async def test_nothing_starts_while_none_is_left(headers, caplog):
    caplog.set_level(logging.INFO, "holodeck.lib.llm.limiter")
    limiter, loop = Limiter("agent somewhere"), asyncio.get_running_loop()
    started = loop.time()

    apply_rate_limits(limiter, headers, noon)
    async with limiter.slot():
        waited = loop.time() - started

    assert waited >= 0.19
    said = f"agent somewhere: no new requests for 0.20 s: {next(iter(headers))} is 0"
    assert caplog.messages == [said]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": "30s"},
        {"x-ratelimit-remaining-requests": "0"},
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "soon"},
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "8h"},
    ],
    ids=["nothing", "one is left", "no reset", "nonsense", "too long to wait"],
)
async def test_anything_else_holds_up_nobody(headers):
    limiter, loop = Limiter("agent somewhere"), asyncio.get_running_loop()
    started = loop.time()

    apply_rate_limits(limiter, headers, noon)
    async with limiter.slot() as slot:
        assert slot.waited_s < 20

    assert loop.time() - started < 20


async def test_the_same_pause_is_logged_once(caplog):
    caplog.set_level(logging.INFO, "holodeck.lib.llm.limiter")
    limiter = Limiter("agent somewhere")
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20s"}

    for _ in range(50):
        apply_rate_limits(limiter, headers, noon)

    assert len(caplog.messages) == 1
