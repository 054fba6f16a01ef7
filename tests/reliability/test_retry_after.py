"""Between two tries is waited as long as the provider asks, and no longer than need be."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.models.config import ExecutionConfig
from support.faults import CASES, TRANSIENT, WAYS, agent_for, outcome_of, run_cases, settings

BACKOFF_S = 0.05
MARGIN = 1.25
"""How much longer than asked is waited at most, so that not all come back at once."""

ASKED = {
    "seconds": ({"retry-after": "1"}, 1.0),
    "half a second": ({"retry-after": "0.5"}, 0.5),
    "milliseconds": ({"retry-after-ms": "300"}, 0.3),
    "milliseconds before seconds": ({"retry-after-ms": "300", "retry-after": "9"}, 0.3),
    "nothing to wait": ({"retry-after": "0"}, 0.0),
}
SENSELESS = {
    "negative": {"retry-after": "-5"},
    "a date that is over": {"retry-after": "Sun, 01 Mar 2020 12:00:00 GMT"},
    "too many digits": {"retry-after": "9" * 400},
    "infinite": {"retry-after": "inf"},
    "no number": {"retry-after": "soon", "retry-after-ms": "a while"},
    "empty": {"retry-after": ""},
}
TOO_LONG = {
    "just too long": ({"retry-after": "61"}, "61 s"),
    "a day": ({"retry-after": "86400"}, "86400 s"),
    "ages": ({"retry-after": "999999999999"}, "999999999999 s"),
    "milliseconds": ({"retry-after-ms": "61000"}, "61 s"),
}
on_both_ways = pytest.mark.parametrize("way", WAYS)


async def asked_to_wait(folder, way, headers):
    """The seconds between the requests, and the result, where the first answer is a 429."""
    seen = []

    def answer(request):
        seen.append(time.monotonic())
        given = headers() if callable(headers) else headers
        return Reply("OK") if len(seen) > 1 else Reply(status=429, headers=given)

    config = settings(ExecutionConfig(), retry_delay=BACKOFF_S)
    with FakeOpenAI(answer) as server:
        report = await run_cases(agent_for(server, folder, 1, **WAYS[way]), folder, config)
    return [later - earlier for earlier, later in pairwise(seen)], report


def planned_s(report):
    """The wait before the second request, as it was decided; the clock can only add to it."""
    return report.results[0].attempts[0].retry_after_ms / 1000


@on_both_ways
async def test_the_wait_is_what_the_provider_asks_and_little_more(way, tmp_path):
    found = await asyncio.gather(
        *(asked_to_wait(tmp_path, way, headers) for headers, _ in ASKED.values())
    )

    for (gaps, report), (_, asked) in zip(found, ASKED.values(), strict=True):
        assert report.summary.passed == 1
        assert gaps[0] >= asked
        assert asked <= planned_s(report) <= asked * MARGIN


@on_both_ways
async def test_a_date_is_waited_for(way, tmp_path):
    """A date has whole seconds only, so one that is two seconds away may be one of them."""
    dates = []

    def headers():
        dates.append(datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2))
        return {"retry-after": format_datetime(dates[0], usegmt=True)}

    _, report = await asked_to_wait(tmp_path, way, headers)

    assert report.summary.passed == 1
    assert datetime.now(UTC) >= dates[0]
    assert planned_s(report) <= 2 * MARGIN


@on_both_ways
async def test_what_makes_no_sense_is_as_if_nothing_was_asked(way, tmp_path):
    found = await asyncio.gather(
        *(asked_to_wait(tmp_path, way, headers) for headers in SENSELESS.values())
    )

    assert [report.summary.passed for _, report in found] == [1] * len(SENSELESS)
    assert max(planned_s(report) for _, report in found) <= BACKOFF_S


@on_both_ways
async def test_more_than_a_minute_is_not_waited_for_and_the_number_told(way, tmp_path):
    found = await asyncio.gather(
        *(asked_to_wait(tmp_path, way, headers) for headers, _ in TOO_LONG.values())
    )

    for (gaps, report), (_, said) in zip(found, TOO_LONG.values(), strict=True):
        assert gaps == []
        assert f"asks to wait {said}" in report.results[0].errors[0]


@on_both_ways
@pytest.mark.parametrize("name", ["429 five times in a row", "500 five times in a row"])
async def test_five_bad_answers_in_a_row_cost_no_more_than_their_waits(way, name):
    """The retries are those of the default settings; only the waits are shorter."""
    [kind] = [kind for kind in TRANSIENT if kind.name == name]

    outcome = await outcome_of(kind, **WAYS[way])

    most_ms = sum(10 * 2**doubled for doubled in range(5))
    waits = [[tried.retry_after_ms for tried in one.attempts] for one in outcome.report.results]
    assert outcome.passed == CASES
    assert {len(wait) for wait in waits} == {5}
    assert max(sum(wait) for wait in waits) <= most_ms
