"""Metrics, log records and spans of a run, as real receivers get them."""

import gzip
import json
import logging
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.observability import (
    initialize_observability,
    names,
    shutdown_observability,
    span,
)
from holodeck.lib.observability.exporters import otlp_target
from holodeck.lib.observability.tracing import record_error
from holodeck.models.observability import ObservabilityConfig, OTLPExporterConfig
from support.collector import collector, grpc_collector, plain

KEY = "00000000-0000-0000-0000-000000000001"
CHAT = {
    names.OPERATION: names.CHAT,
    names.PROVIDER: "openai",
    names.REQUEST_MODEL: "gpt-4o",
    names.CONVERSATION_ID: "not a label",
}


def begin(config, clean=str, **options):
    return initialize_observability(
        ObservabilityConfig(enabled=True, **config), "greeter", clean, **options
    )


def send_to(url, **config):
    """Run a case with an agent that asks its model twice and calls a tool."""
    context = begin({"exporters": {"otlp": {"endpoint": url, **config.pop("otlp", {})}}, **config})
    a_run()
    shutdown_observability(context, timeout=60)


def a_run():
    agent = {names.OPERATION: names.INVOKE_AGENT, names.AGENT_NAME: "greeter"}
    tool = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: "search"}
    with span(names.CASE) as case:
        with span("invoke_agent greeter", agent, kind="client") as call:
            for tokens in (10, 20):
                with span("chat gpt-4o", CHAT, kind="client") as request:
                    request.set({names.INPUT_TOKENS: tokens, names.OUTPUT_TOKENS: 1})
            with span("execute_tool search", tool) as current:
                record_error(current, ValueError("no"))
            call.set({names.INPUT_TOKENS: 30, names.OUTPUT_TOKENS: 2})
        case.set({names.CASE_STATUS: "fail", names.CASE_OUTCOME: "agent_error"})


def test_durations_tokens_and_outcomes_are_metrics_of_the_conventions():
    with collector() as got:
        send_to(got.url)

    (chat, requests), (_, agents) = sorted(
        got.points("gen_ai.client.operation.duration"),
        key=lambda one: one[0]["gen_ai.operation.name"],
    )
    assert chat == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
    }
    assert (requests.count, agents.count) == (2, 1)
    assert list(requests.explicit_bounds)[:3] == [0.01, 0.02, 0.04]
    assert list(requests.explicit_bounds)[-1] == 81.92
    usage = {
        point[0]["gen_ai.token.type"]: point[1] for point in got.points("gen_ai.client.token.usage")
    }
    assert (usage["input"].sum, usage["input"].count, usage["output"].sum) == (30, 2, 2)
    assert list(usage["input"].explicit_bounds) == [4**power for power in range(14)]
    [(labels, _)] = got.points("gen_ai.execute_tool.duration")
    assert (labels["gen_ai.tool.name"], labels["error.type"]) == ("search", "ValueError")
    [(labels, _)] = got.points("semantic_kernel.function.invocation.duration")
    assert labels == {"semantic_kernel.function.name": "search"}
    [(labels, cases)] = got.points("holodeck.case.outcomes")
    assert (labels, cases.as_int) == ({"holodeck.case.outcome": "agent_error"}, 1)


def test_tokens_of_an_agent_whose_requests_are_not_seen_are_its_own():
    with collector() as got:
        context = begin({"exporters": {"otlp": {"endpoint": got.url}}})
        with span("invoke_agent", {names.OPERATION: names.INVOKE_AGENT}) as call:
            call.set({names.INPUT_TOKENS: 30})
        shutdown_observability(context, timeout=60)

    [(labels, usage)] = got.points("gen_ai.client.token.usage")
    assert (labels["gen_ai.operation.name"], usage.sum) == ("invoke_agent", 30)


@pytest.mark.parametrize(
    ("config", "spans", "metrics"),
    [
        ({"traces": {"enabled": False}}, False, True),
        ({"traces": {"sample_rate": 0}}, False, True),
        ({"metrics": {"enabled": False}}, True, False),
        ({"metrics": {"include_semantic_kernel_metrics": False}}, True, True),
    ],
)
def test_each_signal_can_be_left_out(config, spans, metrics):
    with collector() as got:
        send_to(got.url, **config)

    assert (got.spans != [], "holodeck.case.outcomes" in got.metrics) == (spans, metrics)
    kernel = config.get("metrics", {}).get("include_semantic_kernel_metrics", metrics)
    assert ("semantic_kernel.function.invocation.duration" in got.metrics) == kernel


@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
@pytest.mark.parametrize("serve", [collector, grpc_collector], ids=["http", "grpc"])
def test_all_signals_arrive_over_both_protocols(serve, compression):
    protocol = "http" if serve is collector else "grpc"
    if protocol == "grpc":
        pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc", reason="the extra otlp-grpc")
    otlp = {"protocol": protocol, "headers": {"X-Key": "k"}, "compression": compression}
    with serve() as got:
        send_to(got.url, otlp=otlp)

    assert got.names == [
        "chat gpt-4o",
        "chat gpt-4o",
        "execute_tool search",
        "holodeck.case",
        "invoke_agent greeter",
    ]
    assert got.points("holodeck.case.outcomes")[0][1].as_int == 1
    assert got.resource["service.name"] == "holodeck-greeter"
    assert {headers["x-key"] for _, headers in got.requests} == {"k"}


@pytest.mark.parametrize(
    ("given", "protocol", "endpoint", "insecure"),
    [
        ({}, "http", "http://localhost:4318", True),
        ({"protocol": "grpc"}, "grpc", "http://localhost:4317", True),
        ({"protocol": "http"}, "http", "http://localhost:4318", True),
        ({"endpoint": "http://localhost:4317"}, "grpc", "http://localhost:4317", True),
        (
            {"endpoint": "http://localhost:4317", "insecure": True},
            "grpc",
            "http://localhost:4317",
            True,
        ),
        ({"endpoint": "http://otel:4318/v1/traces"}, "http", "http://otel:4318", True),
        ({"endpoint": "https://otel/otlp/"}, "http", "https://otel/otlp", False),
        ({"endpoint": "http://otel:4317", "protocol": "http"}, "http", "http://otel:4317", True),
        ({"endpoint": "otel:4317"}, "grpc", "http://otel:4317", True),
        ({"endpoint": "otel:4317", "insecure": False}, "grpc", "https://otel:4317", False),
        ({"endpoint": "https://otel:4317", "insecure": True}, "grpc", "https://otel:4317", False),
    ],
)
def test_the_protocol_follows_the_port_unless_it_is_given(given, protocol, endpoint, insecure):
    assert otlp_target(OTLPExporterConfig(**given)) == (protocol, endpoint, insecure)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"endpoint": "ftp://otel:4317"},
            "is not a URL; write one such as 'http://localhost:4317'",
        ),
        ({"endpoint": "http://otel:4317", "insecure": False}, "write 'https://' in it"),
        ({"endpoint": "http://otel:port"}, "is not a URL"),
        ({"endpoint": "otel:4318"}, "is not a URL; write one such as 'http://localhost:4318'"),
    ],
)
def test_an_endpoint_that_cannot_work_is_an_error(given, said):
    with pytest.raises(ConfigError, match=said):
        otlp_target(OTLPExporterConfig(**given))


WITHOUT_EXTRAS = """
import sys
from importlib.abc import MetaPathFinder
from holodeck.cli.main import run

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {"azure", "opentelemetry.exporter.otlp.proto.grpc"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
sys.exit(run(["test", "agent.yaml"]))
"""


def test_without_the_libraries_of_exporters_a_run_says_so_and_takes_place(tmp_path):
    (tmp_path / "bot.py").write_text("def answer(message):\n    return message\n")
    (tmp_path / "agent.yaml").write_text(
        "name: a\n"
        "backend: 'bot:answer'\n"
        "evaluations: {metrics: [{metric: contains, value: hi}]}\n"
        "test_cases: [{input: hi}]\n"
        "observability:\n"
        "  enabled: true\n"
        "  exporters:\n"
        "    otlp: {endpoint: 'http://localhost:4317', protocol: grpc, insecure: true}\n"
        f"    azure_monitor: {{enabled: true, connection_string: 'InstrumentationKey={KEY}'}}\n"
    )
    command = [sys.executable, "-c", WITHOUT_EXTRAS]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    for extra in ("otlp-grpc", "azure-monitor"):
        assert ran.stderr.count(f"install {extra}") == 1


LOGS = ("holodeck.lib.fetch", "semantic_kernel.kernel", "my_app")


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        ({}, ["holodeck.lib.fetch key ***"]),
        ({"filter_namespaces": ["my_app"]}, ["holodeck.lib.fetch key ***", "my_app key ***"]),
        ({"filter_namespaces": []}, ["holodeck.lib.fetch key ***", "my_app key ***"]),
        ({"level": "WARNING"}, []),
        ({"enabled": False}, []),
    ],
)
def test_log_records_are_sent_masked_and_only_those_asked_for(logs, expected):
    traces = {"redaction_patterns": [r"sk-\d+"]}
    with collector() as got:
        context = begin(
            {"exporters": {"otlp": {"endpoint": got.url}}, "logs": logs, "traces": traces}
        )
        with span("x"):
            for name in LOGS:
                logging.getLogger(name).info("%s key %s", name, "sk-123")
                logging.getLogger(name).debug("not this")
        shutdown_observability(context, timeout=60)

    assert got.log_lines() == expected


def test_records_that_quote_arguments_are_content():
    traces = {"capture_content": True, "redaction_patterns": ["hunter2"]}
    with collector() as got:
        config = {"level": "DEBUG"}
        otlp = {"otlp": {"endpoint": got.url}}
        context = begin({"exporters": otlp, "logs": config, "traces": traces})
        logging.getLogger("semantic_kernel.kernel").info("arguments: hunter2")
        logging.getLogger("holodeck.x").debug("response: hunter2")
        shutdown_observability(context, timeout=60)

    assert got.log_lines() == ["arguments: ***", "response: ***"]


@pytest.mark.parametrize("include", [True, False])
def test_a_log_record_names_its_span_and_the_error_that_was_caught(include):
    with collector() as got:
        config = {"include_trace_context": include}
        context = begin({"exporters": {"otlp": {"endpoint": got.url}}, "logs": config})
        with span("x"):
            try:
                int("hunter2")
            except ValueError:
                logging.getLogger("holodeck.x").exception("broke")
        shutdown_observability(context, timeout=60)

    [record] = got.logs
    assert (record.span_id == got.span("x").span_id) == include
    assert (record.severity_text, record.body.string_value) == ("ERROR", "broke")
    assert plain(record.attributes)["exception.type"] == "ValueError"
    assert 'int("hunter2")' in plain(record.attributes)["exception.stacktrace"]


class Lines(logging.Handler):
    """What would be on stderr."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.fixture
def usual():
    """The logger of an application and what it shows."""
    log, handler = logging.getLogger("holodeck"), Lines()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.WARNING)
    yield log, handler
    log.removeHandler(handler)
    log.setLevel(before)


def test_the_usual_lines_stay_as_they_are_and_so_do_the_loggers_afterwards(usual):
    log, shown = usual
    chatty = logging.getLogger("holodeck.chatty")
    chatty.setLevel(logging.INFO)

    with collector() as got:
        context = begin({"exporters": {"otlp": {"endpoint": got.url}}})
        log.warning("one")
        log.info("hidden")
        chatty.info("two")
        shutdown_observability(context, timeout=60)
    log.info("hidden, too")
    chatty.setLevel(logging.NOTSET)

    assert shown.lines == ["one", "two"]
    assert got.log_lines() == ["one", "hidden", "two"]
    assert (log.level, shown.filters, log.handlers) == (logging.WARNING, [], [shown])


def test_events_of_metrics_are_log_records_with_a_name_too():
    with collector() as got:
        context = begin(
            {"exporters": {"otlp": {"endpoint": got.url}}},
            lambda text: text.replace("hunter2", "***"),
        )
        with span("holodeck.check bleu") as check:
            check.event(names.EVALUATION_RESULT, {names.EVALUATION_NAME: "bleu hunter2"})
        shutdown_observability(context, timeout=60)

    expected = {"gen_ai.evaluation.name": "bleu ***"}
    assert got.events("holodeck.check bleu") == [("gen_ai.evaluation.result", expected)]
    [record] = got.logs
    assert (record.event_name, plain(record.attributes)) == ("gen_ai.evaluation.result", expected)
    assert record.span_id == got.span("holodeck.check bleu").span_id


def test_signals_that_a_collector_refuses_are_said_once_with_what_to_write(caplog):
    with collector(refused=("/v1/metrics", "/v1/logs")) as got:
        context = begin({"exporters": {"otlp": {"endpoint": got.url}}})
        a_run()
        logging.getLogger("holodeck.x").warning("hello")
        shutdown_observability(context, timeout=60)

    [line] = [one.getMessage() for one in caplog.records if one.name.endswith("tracing")]
    assert line.startswith(
        f"metrics and logs could not be delivered to the OTLP endpoint {got.url}"
    )
    assert "404" in line
    assert "'observability.metrics.enabled: false' and 'observability.logs.enabled: false'" in line
    assert not [one for one in caplog.records if one.name.startswith("opentelemetry")]
    assert got.spans


@pytest.fixture
def ingestion():
    """An ingestion endpoint of Azure Monitor; its URL, and the items that it got."""
    items = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            packed = self.headers.get("content-encoding") == "gzip"
            batch = json.loads(gzip.decompress(body) if packed else body)
            items.extend(batch)
            answer = {"itemsReceived": len(batch), "itemsAccepted": len(batch), "errors": []}
            written = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", items
    server.shutdown()
    thread.join()
    server.server_close()


def test_azure_monitor_gets_spans_metrics_and_log_records(ingestion, tmp_path):
    pytest.importorskip("azure.monitor.opentelemetry.exporter", reason="the extra azure-monitor")
    url, items = ingestion
    azure = {
        "enabled": True,
        "connection_string": f"InstrumentationKey={KEY};IngestionEndpoint={url}",
        "storage_directory": "kept",
    }
    context = begin({"exporters": {"azure_monitor": azure}}, base_dir=tmp_path)
    a_run()
    logging.getLogger("holodeck.x").warning("hello")
    shutdown_observability(context, timeout=60)

    kinds = {item["data"]["baseType"] for item in items}
    assert {"RemoteDependencyData", "MetricData", "MessageData"} <= kinds
    assert {item["iKey"] for item in items} == {KEY}
    assert (tmp_path / "kept").is_dir()


@pytest.mark.parametrize(
    ("text", "said"), [("nonsense", "Invalid connection string"), ("InstrumentationKey=1", "UUID")]
)
def test_a_wrong_connection_string_is_an_error_that_does_not_show_it(text, said):
    pytest.importorskip("azure.monitor.opentelemetry.exporter", reason="the extra azure-monitor")

    with pytest.raises(ConfigError, match=f"azure_monitor.connection_string.*{said}") as raised:
        begin({"exporters": {"azure_monitor": {"enabled": True, "connection_string": text}}})

    assert text not in str(raised.value)
