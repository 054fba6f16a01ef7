import asyncio
import subprocess
import sys

import pytest

from holodeck.lib.observability import get_tracer, names, set_content, span
from holodeck.lib.observability.tracing import Content, Tracing, activate, deactivate, record_error


@pytest.fixture
def traced():
    """Collects the spans of a run, with or without content."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, active = InMemorySpanExporter(), []

    def started(content=None):
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        active.append(Tracing(provider.get_tracer("test"), content))
        activate(active[-1])
        return exporter.get_finished_spans

    yield started
    for tracing in active:
        deactivate(tracing)


def test_spans_nest_and_hold_attributes_and_events(traced):
    finished = traced()

    with span(names.RUN, {names.SUITE_NAME: "s", names.AGENT_NAME: None}) as run:
        with span(names.check("bleu"), kind="client") as check:
            check.event(names.EVALUATION_RESULT, {names.EVALUATION_SCORE: 0.5})
        run.set({names.SUITE_STATUS: "success"})

    inner, outer = finished()
    assert (outer.name, inner.name) == ("holodeck.run", "holodeck.check bleu")
    assert inner.parent.span_id == outer.context.span_id
    assert dict(outer.attributes) == {"test.suite.name": "s", "test.suite.run.status": "success"}
    assert inner.events[0].name == "gen_ai.evaluation.result"
    assert dict(inner.events[0].attributes) == {"gen_ai.evaluation.score.value": 0.5}
    assert (inner.kind.name, outer.kind.name) == ("CLIENT", "INTERNAL")


@pytest.mark.parametrize(
    ("content", "said"), [(None, None), (Content(["sk-.*"]), "key ***")], ids=["off", "on"]
)
def test_what_raises_fails_and_tells_its_message_only_with_content(traced, content, said):
    finished = traced(content)

    with pytest.raises(ValueError, match="key"), span("x"):
        raise ValueError("key sk-123")

    (ended,) = finished()
    assert ended.attributes["error.type"] == "ValueError"
    assert (ended.status.status_code.name, ended.status.description) == ("ERROR", said)
    assert ended.events == ()


def test_what_is_cancelled_did_not_fail(traced):
    finished = traced()

    with pytest.raises(asyncio.CancelledError), span("x"):
        raise asyncio.CancelledError

    assert finished()[0].attributes["error.type"] == "cancelled"
    assert finished()[0].status.status_code.name == "UNSET"


def test_content_is_left_out_unless_asked_for(traced):
    finished = traced()

    with span("x") as current:
        set_content(current, names.TOOL_RESULT, "secret")

    assert dict(finished()[0].attributes) == {}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("my card is 1234-5678", "my card is ***"),
        ({"card": "1234-5678"}, '{"card": "***"}'),
        ("x" * 30_000, "x" * 20_000 + "… (cut)"),
        ("x" * 19_999 + "1234-5678", "x" * 19_999 + "*… (cut)"),
    ],
    ids=["text", "json", "long", "secret across the cut"],
)
def test_content_is_masked_and_cut(traced, value, shown):
    finished = traced(Content([r"\d{4}-\d{4}"]))

    with span("x") as current:
        set_content(current, names.TOOL_RESULT, value)

    assert finished()[0].attributes[names.TOOL_RESULT] == shown


async def test_spans_of_tasks_at_the_same_time_do_not_mix(traced):
    finished = traced()

    async def case(name):
        with span(name):
            await asyncio.sleep(0)
            with span(f"{name}.inner"):
                await asyncio.sleep(0)

    await asyncio.gather(case("a"), case("b"))

    by_name = {ended.name: ended for ended in finished()}
    for name in "ab":
        assert by_name[f"{name}.inner"].parent.span_id == by_name[name].context.span_id


def test_without_anybody_listening_nothing_is_loaded_and_nothing_recorded():
    code = (
        "import sys\n"
        "from holodeck.lib.observability.tracing import span, set_content, record_error\n"
        "with span('x', {'a': 1}, kind='client') as s:\n"
        "    s.set({'b': 2}); s.event('e', {}); set_content(s, 'c', 'd')\n"
        "    record_error(s, ValueError())\n"
        "    print(s.is_recorded)\n"
        "print(any(name.startswith('opentelemetry.') for name in sys.modules))\n"
        "import opentelemetry.trace\n"
        "with span('x', kind='client') as s: print(s.is_recorded)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.split() == ["False", "False", "False"]


def test_spans_go_to_the_users_own_provider_when_there_is_one():
    code = (
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor\n"
        "provider = TracerProvider()\n"
        "provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))\n"
        "trace.set_tracer_provider(provider)\n"
        "from holodeck.lib.observability import span\n"
        "with span('mine'): pass\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert '"name": "mine"' in ran.stdout


def test_an_error_may_be_recorded_without_being_raised(traced):
    finished = traced()

    with span("x") as current:
        record_error(current, KeyError("k"))

    assert finished()[0].attributes["error.type"] == "KeyError"


def test_a_tracer_by_name_always_makes_spans():
    with get_tracer(__name__).start_as_current_span("mine") as current:
        assert not current.is_recording()
