"""What exporters send to the receiver: real ones, in every form of OTLP over HTTP, and worse."""

import asyncio
import gzip
import json
import socket
from contextlib import asynccontextmanager
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Status, StatusCode

from holodeck.errors import ConfigError
from holodeck.lib.observability import propagation_headers
from holodeck.lib.spans.agent_traces import AgentTraces

LONG = 60.0
"""Seconds that no test waits for, because what it waits for has happened."""


@asynccontextmanager
async def receiving(**options):
    traces = AgentTraces("elsewhere", **options)
    await traces.start()
    try:
        yield traces
    finally:
        await traces.close()


@asynccontextmanager
async def calling(traces):
    """A call of the agent: it, its `traceparent`, and the ids of its trace and span."""
    call = traces.call()
    try:
        with call.active():
            parent = propagation_headers()["traceparent"]
            yield call, parent, *parent.split("-")[1:3]
    finally:
        call.close()


def url_of(traces):
    return traces.variables["OTEL_EXPORTER_OTLP_ENDPOINT"]


def post(url, body, path="/v1/traces", kind="application/json", **headers):
    """Post and return the status, the content type and the body of the response."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=180)
    connection.request("POST", path, body, {"content-type": kind, **headers})
    response = connection.getresponse()
    found = response.status, response.headers["content-type"], response.read()
    connection.close()
    return found


def document(trace_id, parent, *names, **more):
    """An export request in JSON, as the SDK for JavaScript writes it."""
    spans = [
        {
            "traceId": trace_id, "spanId": format(number, "016x"), "parentSpanId": parent,
            "name": name, "kind": 3, "flags": 769, "startTimeUnixNano": "1700000000000000000",
            "endTimeUnixNano": "1700000000500000000",
            "attributes": [
                {"key": "tokens", "value": {"intValue": "7"}},
                {"key": "tags", "value": {"arrayValue": {"values": [{"stringValue": "a"}]}}},
            ],
            "links": [{"traceId": trace_id, "spanId": parent}],
            "status": {"code": 2, "message": "down"}, "unknownKey": 1, **more,
        }
        for number, name in enumerate(names, 1)
    ]  # fmt: skip
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]}


def export(url, traceparent, compression):
    """What an instrumented agent does: a span inside of another, with the exporter of the SDK."""
    provider = TracerProvider(
        resource=Resource.create({"service.name": "shop"}), shutdown_on_exit=False
    )
    exporter = OTLPSpanExporter(f"{url}/v1/traces", compression=compression)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("shop")
    context = propagate.extract({"traceparent": traceparent})
    with tracer.start_as_current_span("POST /", context=context) as outer:
        inner = trace.set_span_in_context(outer)
        span = tracer.start_span("execute_tool refund", inner, attributes={"id": 7, "w": [0.5, 1]})
        span.set_status(Status(StatusCode.ERROR, "no order"))
        span.end()
    provider.shutdown()


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
async def test_the_exporter_of_the_sdk_delivers_the_spans_of_a_call(compression):
    async with receiving() as traces, calling(traces) as (call, parent, _, around):
        await asyncio.to_thread(export, url_of(traces), parent, compression)

        found = await call.wait(LONG)

    assert found.problem == ""
    outer, inner = found.spans
    assert [outer.name, inner.name, outer.service] == ["POST /", "execute_tool refund", "shop"]
    assert (outer.parent_id, inner.parent_id) == (around, outer.span_id)
    assert (inner.status, inner.status_message) == ("error", "no order")
    assert (outer.status, inner.attributes) == ("unset", {"id": 7, "w": [0.5, 1.0]})
    assert 0 <= inner.duration_ms <= outer.duration_ms


@pytest.mark.parametrize("form", ["plain", "gzip", "chunked"])
async def test_otlp_in_json_is_read_in_every_form_in_which_it_is_sent(form):
    async with receiving() as traces, calling(traces) as (call, _, trace_id, around):
        body = json.dumps(document(trace_id, around, "chat", "search")).encode()
        headers = {"content-encoding": "gzip"} if form == "gzip" else {}
        body = gzip.compress(body) if form == "gzip" else body
        pieces = iter([body[:9], body[9:]]) if form == "chunked" else body
        answer = await asyncio.to_thread(post, url_of(traces), pieces, **headers)

        found = await call.wait(LONG)

    assert answer == (200, "application/json", b"{}")
    assert [one.name for one in found.spans] == ["chat", "search"]
    assert (found.spans[0].parent_id, found.spans[0].duration_ms) == (around, 500)
    assert found.spans[0].attributes == {"tokens": 7, "tags": ["a"]}
    assert found.spans[0].status == "error"


async def test_metrics_and_logs_are_accepted_and_ignored():
    async with receiving() as traces:
        for path in ("/v1/metrics", "/v1/logs"):
            answer = await asyncio.to_thread(
                post, url_of(traces), b"x", path, "application/x-protobuf"
            )

            assert answer == (200, "application/x-protobuf", b"")


BROKEN = {
    "no JSON": (b"{", "application/json", {}, "it is no export request of OTLP"),
    "another shape": (b"[1]", "application/json", {}, "it is no export request of OTLP"),
    "spans that are text": (b'{"resourceSpans": ["x"]}', "application/json", {}, "it is no"),
    "an id that is no id": (
        json.dumps(document("xyz", "1", "a")).encode(), "application/json", {}, "it is no export",
    ),
    "nested too deeply": (b"[" * 100_000, "application/json", {}, "it is no export request"),
    "no protobuf": (b"\xff\xff\xff", "application/x-protobuf", {}, "it is no export request"),
    "a form": (b"a=b", "application/x-www-form-urlencoded", {}, "its content type is"),
    "no gzip": (b"{}", "application/json", {"content-encoding": "gzip"}, "cannot be decoded"),
    "a bomb": (
        gzip.compress(bytes(70_000_000), 1), "application/json", {"content-encoding": "gzip"},
        "too large",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
async def test_a_request_that_cannot_be_read_is_refused_and_is_the_reason_for_no_spans(name):
    body, kind, headers, reason = BROKEN[name]
    async with receiving() as traces, calling(traces) as (call, *_):
        status, _, _ = await asyncio.to_thread(post, url_of(traces), body, kind=kind, **headers)

        found = await call.wait(0)

    assert status == 400
    assert found.problem.startswith("no spans of the agent were seen: a request could not be read")
    assert reason in found.problem


async def test_an_exporter_that_speaks_grpc_is_the_reason_for_no_spans():
    async with receiving() as traces, calling(traces) as (call, *_):
        parts = urlsplit(url_of(traces))

        def speak():
            with socket.create_connection((parts.hostname, parts.port)) as connection:
                connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                while connection.recv(1000):
                    pass

        await asyncio.to_thread(speak)
        found = await call.wait(0)

    assert "an exporter speaks gRPC; set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in found.problem


async def test_an_agent_that_does_not_continue_the_trace_is_the_reason_for_no_spans():
    async with receiving() as traces, calling(traces) as (call, *_):
        body = json.dumps(document("a" * 32, "", "chat", "search")).encode()
        await asyncio.to_thread(post, url_of(traces), body)

        found = await call.wait(0)

    assert found.problem == (
        "no spans of the agent were seen: 2 spans of other traces arrived, so it does not continue"
        " the trace of the 'traceparent' that it gets"
    )


async def test_an_agent_that_sends_nothing_is_told_where_to_send():
    async with receiving() as traces, calling(traces) as (call, *_):
        found = await call.wait(0)

        assert (
            f"it has sent nothing; its exporter must send OTLP over HTTP to {url_of(traces)}"
            in (found.problem)
        )


async def test_calls_at_the_same_time_get_their_own_spans():
    async with receiving() as traces, calling(traces) as first, calling(traces) as second:
        for (_, _, trace_id, around), name in ((second, "b"), (first, "a")):
            body = json.dumps(document(trace_id, around, name)).encode()
            await asyncio.to_thread(post, url_of(traces), body)

        found = [await call.wait(LONG) for call in (first[0], second[0])]

    assert [[one.name for one in each.spans] for each in found] == [["a"], ["b"]]


async def test_a_span_that_is_sent_twice_counts_once():
    async with receiving() as traces, calling(traces) as (call, _, trace_id, around):
        body = json.dumps(document(trace_id, around, "chat")).encode()
        for _ in range(2):
            await asyncio.to_thread(post, url_of(traces), body)

        found = await call.wait(LONG)

    assert [one.name for one in found.spans] == ["chat"]


async def test_a_span_whose_surrounding_span_is_missing_may_have_others_beside_it():
    async with receiving() as traces, calling(traces) as (call, _, trace_id, _):
        body = json.dumps(document(trace_id, "b" * 16, "chat")).encode()
        await asyncio.to_thread(post, url_of(traces), body)

        found = await call.wait(0)

    assert [one.name for one in found.spans] == ["chat"]
    assert found.problem.startswith("the span around 'chat' had not arrived 0 s after the response")


async def test_waiting_ends_when_the_surrounding_span_arrives():
    async with receiving() as traces, calling(traces) as (call, _, trace_id, around):
        early, late = document(trace_id, "b" * 16, "chat"), document(trace_id, around, "POST /")
        late["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["spanId"] = "b" * 16
        waiting = asyncio.create_task(call.wait(LONG))
        for one in (early, late):
            await asyncio.to_thread(post, url_of(traces), json.dumps(one).encode())

        found = await waiting

    assert (found.problem, len(found.spans)) == ("", 2)


async def test_what_arrives_after_the_checks_is_a_note():
    async with receiving() as traces:
        async with calling(traces) as (_, _, trace_id, around):
            pass
        await asyncio.to_thread(
            post, url_of(traces), json.dumps(document(trace_id, around, "chat")).encode()
        )

        assert traces.notes == [
            "1 span of the agent arrived after the checks; raise 'settle' in 'trace'"
        ]


async def test_two_agents_may_export_to_the_same_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with receiving(port=port) as one:
        async with receiving(port=port) as other, calling(other) as (call, _, trace_id, around):
            body = json.dumps(document(trace_id, around, "chat")).encode()
            await asyncio.to_thread(post, url_of(one), body)

            found = await call.wait(LONG)

        still = await asyncio.to_thread(post, url_of(one), b"{}")

    assert [one.name for one in found.spans] == ["chat"]
    assert still[0] == 200
    with pytest.raises(OSError, match="refused"):
        post(f"http://127.0.0.1:{port}", b"{}")


async def test_a_port_in_use_is_an_error_that_names_the_setting():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            async with receiving(port=port):
                pass

    assert f"observability.receiver.port: port {port} of 127.0.0.1 cannot be used" in str(
        caught.value
    )


async def test_long_values_and_too_many_spans_are_cut_and_said_to_be():
    names = [f"n{number}" for number in range(2_001)]
    text = {"key": "prompt", "value": {"stringValue": "x" * 5_000}}
    async with receiving() as traces, calling(traces) as (call, _, trace_id, around):
        body = json.dumps(document(trace_id, around, *names, attributes=[text])).encode()
        await asyncio.to_thread(post, url_of(traces), body)

        found = await call.wait(LONG)

    assert found.problem == "the agent made 2,001 spans, and only 2,000 are kept"
    assert len(found.spans) == 2_000
    assert (len(found.spans[0].attributes["prompt"]), found.spans[0].cut) == (4_000, ["prompt"])
    assert sum(len(one.attributes["prompt"]) for one in found.spans) <= 1_000_000


async def test_texts_are_masked_as_for_exported_spans():
    async with (
        receiving(mask=lambda text: text.replace("refund", "***")) as traces,
        calling(traces) as (call, parent, *_),
    ):
        await asyncio.to_thread(export, url_of(traces), parent, Compression.NoCompression)

        found = await call.wait(LONG)

    assert [one.name for one in found.spans] == ["POST /", "execute_tool ***"]
