import json
import logging
import subprocess
import sys
import time

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.observability import (
    initialize_observability,
    names,
    set_content,
    shutdown_observability,
    span,
)
from holodeck.lib.tools.base import Tool, run_tool
from holodeck.models.observability import ObservabilityConfig
from support.collector import collector


async def echoed(arguments):
    return f"got {arguments['q']}"


async def a_traced_run(config):
    context = initialize_observability(config, "greeter")
    with span(names.RUN, {names.SUITE_NAME: "s"}), span(names.CASE, {names.CASE_NAME: "c"}) as case:
        await run_tool(Tool("search", "", {}, echoed), {"q": "token-42"}, call_id="x1")
        set_content(case, names.INPUT_MESSAGES, "my token-42")
    shutdown_observability(context, timeout=60)
    shutdown_observability(context, timeout=60)


@pytest.mark.parametrize("compression", [None, "gzip"])
async def test_spans_reach_a_collector(compression):
    with collector() as got:
        exporter = {"endpoint": got.url, "headers": {"X-Key": "k"}, "compression": compression}
        config = ObservabilityConfig(
            enabled=True, exporters={"otlp": exporter}, resource_attributes={"team": "a"}
        )

        await a_traced_run(config)

    assert {path for path, _ in got.requests} == {"/v1/traces", "/v1/metrics"}
    assert all(headers["x-key"] == "k" for _, headers in got.requests)
    assert (got.resource["service.name"], got.resource["team"]) == ("holodeck-greeter", "a")
    assert got.parent("execute_tool search") == "holodeck.case"
    assert got.parent("holodeck.case") == "holodeck.run"
    assert got.attributes("execute_tool search") == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "x1",
    }


async def test_content_is_sent_only_on_request_and_masked():
    with collector() as got:
        config = ObservabilityConfig(
            enabled=True,
            service_name="mine",
            traces={"capture_content": True, "redaction_patterns": [r"token-\d+"]},
            exporters={"otlp": {"endpoint": f"{got.url}/v1/traces/"}},
        )

        await a_traced_run(config)

    assert got.resource["service.name"] == "mine"
    tool = got.attributes("execute_tool search")
    assert tool["gen_ai.tool.call.arguments"] == '{"q": "***"}'
    assert tool["gen_ai.tool.call.result"] == "got ***"
    assert got.attributes("holodeck.case")["gen_ai.input.messages"] == "my ***"
    assert "token-42" not in f"{got.spans}{got.metrics}{got.logs}"


async def test_a_failed_tool_is_a_failed_span():
    async def fails(arguments):
        raise ValueError("no such city")

    with collector() as got:
        config = ObservabilityConfig(enabled=True, exporters={"otlp": {"endpoint": got.url}})
        context = initialize_observability(config, "a")
        await run_tool(Tool("search", "", {}, fails), {})
        shutdown_observability(context)

    ended = got.span("execute_tool search")
    assert got.attributes("execute_tool search")["error.type"] == "ValueError"
    assert (ended.status.code, ended.status.message) == (2, "")


async def test_no_runs_are_traced_at_a_rate_of_zero():
    with collector() as got:
        await a_traced_run(
            ObservabilityConfig(
                enabled=True, traces={"sample_rate": 0}, exporters={"otlp": {"endpoint": got.url}}
            )
        )

    assert got.spans == []
    assert got.points("gen_ai.execute_tool.duration")[0][1].count == 1


@pytest.mark.parametrize(
    "config",
    [
        {},
        {
            "enabled": True,
            "traces": {"enabled": False},
            "metrics": {"enabled": False},
            "logs": {"enabled": False},
        },
    ],
)
def test_nothing_is_traced_unless_enabled(config):
    context = initialize_observability(ObservabilityConfig(**config), "a")

    with span("x") as current:
        assert not current.is_recorded
    shutdown_observability(context)


async def test_one_run_after_the_other_can_be_traced():
    for _ in range(2):
        with collector() as got:
            await a_traced_run(
                ObservabilityConfig(enabled=True, exporters={"otlp": {"endpoint": got.url}})
            )
        assert "holodeck.run" in got.names


async def test_a_collector_that_is_not_there_does_not_hold_up_the_end(caplog):
    config = ObservabilityConfig(
        enabled=True, exporters={"otlp": {"endpoint": "http://127.0.0.1:9", "timeout_ms": 30_000}}
    )
    context = initialize_observability(config, "a")
    with span("x"):
        pass
    started = time.monotonic()

    shutdown_observability(context, timeout=0.2)

    assert time.monotonic() - started < 20  # it would try for 30 s
    assert "traces could not be delivered within 0.2 s" in caplog.text


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_collector_that_is_down_is_given_up_after_a_second_and_said_once(caplog, protocol):
    otlp = {"endpoint": "http://127.0.0.1:9", "protocol": protocol, "timeout_ms": 600_000}
    config = ObservabilityConfig(enabled=True, exporters={"otlp": otlp}, logs={"enabled": True})
    context = initialize_observability(config, "a")
    with span("holodeck.run"):
        logging.getLogger("holodeck.x").warning("hello")
    caplog.clear()

    shutdown_observability(context, timeout=600)

    [record] = caplog.records
    said = "traces and logs could not be delivered within 1 s; the rest is dropped (the OTLP"
    assert record.getMessage().startswith(said)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"exporters": {"otlp": {"endpoint": "localhost:4318"}}}, "is not a URL; write one such"),
        ({"exporters": {"console": {"enabled": False}}}, "every exporter is disabled"),
        ({"traces": {"redaction_patterns": ["("]}}, r"redaction_patterns\[0\]: '\(' is not a reg"),
    ],
)
def test_what_cannot_work_is_a_configuration_error(config, said):
    with pytest.raises(ConfigError, match=said):
        initialize_observability(ObservabilityConfig(enabled=True, **config), "a")

    with span("x") as current:
        assert not current.is_recorded


CHILD = """
import sys
from holodeck.lib.observability import *
from holodeck.models.observability import ObservabilityConfig
config = ObservabilityConfig.model_validate_json(sys.argv[1])
context = initialize_observability(config, "greeter")
with span("holodeck.run", {"test.suite.name": "é"}) as run:
    run.event("e", {})
shutdown_observability(context)
"""


def console_of(config):
    child = [sys.executable, "-c", CHILD, json.dumps({"enabled": True} | config)]
    ran = subprocess.run(child, capture_output=True, text=True, check=True)
    assert ran.stdout == ""
    return ran.stderr


def test_the_console_gets_json_on_stderr():
    written = console_of({})

    document = json.loads(written)
    assert document["name"] == "holodeck.run"
    assert document["attributes"] == {"test.suite.name": "é"}
    assert document["resource"]["attributes"]["service.name"] == "holodeck-greeter"
    assert document["start_time"] < document["end_time"]
    assert len(written.splitlines()) > 10


def test_the_console_can_be_terse():
    terse = {"console": {"pretty_print": False, "include_timestamps": False}}

    written = console_of({"exporters": terse})

    assert len(written.splitlines()) == 1
    assert "time" not in written
