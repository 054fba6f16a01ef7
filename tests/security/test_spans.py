"""Spans that a stranger sends to the OTLP receiver end in an answer, and cost little memory."""

import asyncio
import json

import pytest

from holodeck.lib.observability import names
from unit.lib.spans.test_receiver import calling, document, post, receiving, url_of


@pytest.mark.parametrize("code", [-1, 3, 99])
async def test_a_span_with_an_unknown_status_is_taken(code):
    async with receiving() as traces, calling(traces) as (call, _, trace, around):
        body = json.dumps(document(trace, around, "a", status={"code": code}))
        status, _, _ = await asyncio.to_thread(post, url_of(traces), body)

        found = await call.wait(60)

    assert status == 200
    assert [span.name for span in found.spans] == ["a"]


async def test_a_fault_of_the_receiver_does_not_leave_an_exporter_waiting(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    async with receiving() as traces, calling(traces) as (_, _, trace, around):
        monkeypatch.setattr("holodeck.lib.spans.receiver.spans_in", fail)
        with pytest.raises(ConnectionError):
            await asyncio.to_thread(post, url_of(traces), json.dumps(document(trace, around, "a")))


@pytest.mark.parametrize("scope", ["shop", names.TRACER, names.SCENARIO_TRACER])
async def test_no_more_spans_are_kept_whoever_they_claim_to_be_of(scope):
    async with receiving() as traces, calling(traces) as (call, _, trace, around):
        request = document(trace, around, *["a"] * 2_500)
        request["resourceSpans"][0]["scopeSpans"][0]["scope"] = {"name": scope}
        await asyncio.to_thread(post, url_of(traces), json.dumps(request))

        found = await call.wait(60)

    assert found.problem == "the agent made 2,500 spans, and only 2,000 are kept"
