"""`trace`, through the command: spans of real instrumented agents decide, and nothing else does."""

import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from fakes import Reply, ToolCall, case
from support.checks import assert_plain, results_in
from support.ci import obeyed
from support.html_page import HtmlPage

SHOP = """
from opentelemetry import trace

tracer = trace.get_tracer("shop")

def answer(message):
    if message == "without spans":
        return "done"
    with tracer.start_as_current_span("POST /"):
        for tool in message.split():
            attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
            name = f"execute_tool {tool}"
            tracer.start_span(name, attributes=attributes).end()
    return "done"
"""
EXPORTING = """
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

import shop

provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)

def answer(message):
    response = shop.answer(message)
    provider.force_flush()
    return response
"""
CHECKS = {
    "require": {"execute_tool": 1},
    "checks": [
        {"span": "execute_tool", "where": {"gen_ai.tool.name": "refund"}, "count": 0},
        {"span": "execute_tool search", "status": "unset"},
    ],
    "settle": 30,
}
CASES = [
    case("searches", "search", trace=CHECKS),
    case("refunds", "search refund", trace=CHECKS),
]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextmanager
def serving_shop(port):
    """The shop as a service, which exports to that port before it answers; yields its URL."""
    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("shop")

    class Shop(BaseHTTPRequestHandler):
        def do_POST(self):
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
            headers = {name.lower(): value for name, value in self.headers.items()}
            with tracer.start_as_current_span("POST /", context=propagate.extract(headers)):
                for tool in message.split():
                    attributes = {
                        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool,
                    }  # fmt: skip
                    tracer.start_span(f"execute_tool {tool}", attributes=attributes).end()
            provider.force_flush()
            self.send_response(200)
            self.send_header("content-length", "20")
            self.end_headers()
            self.wfile.write(b'{"response": "done"}')

        def log_message(self, *args):
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
    provider.shutdown()


@pytest.fixture
def run_shop(agent_dir):
    """Writes an agent.yaml and the shop, runs the cases and returns the run and its results."""

    def run(backend, cases=CASES, **more):
        agent_dir.write("shop.py", SHOP)
        agent_dir.write("exporting.py", EXPORTING)
        agent_dir.write_agent(
            model=None, instructions=None, backend=backend, test_cases=cases, **more
        )
        ran = agent_dir.run("test", "-o", "r.json", "-o", "r.md", "-o", "r.html")
        assert_plain(ran)
        return ran, results_in(agent_dir.path / "r.json")

    return run


def assert_only_refunds_fails(ran, results):
    assert (ran.code, ran.stderr) == (1, "")
    searches, refunds = results["searches"], results["refunds"]
    assert (searches["outcome"], refunds["outcome"]) == ("passed", "failed")
    names = [one["name"] for one in refunds["trace"]["spans"]]
    assert names == ["POST /", "execute_tool search", "execute_tool refund"]
    assert [one["passed"] for one in refunds["tool_checks"]] == [True, False, True]
    assert "span execute_tool gen_ai.tool.name='refund': none: 1 span instead of none" in ran.stdout


def test_spans_of_python_code_in_this_process_decide(run_shop, agent_dir):
    assert_only_refunds_fails(*run_shop("shop:answer"))

    page = HtmlPage((agent_dir.path / "r.html").read_text())
    for text in ((agent_dir.path / "r.md").read_text(), json.dumps(page.cases)):
        assert "execute_tool refund" in text
        assert "1 span instead of none" in text

    scored = agent_dir.run("score", "last")
    assert (scored.code, scored.stdout.count("1 span instead of none")) == (1, 1)


def test_spans_that_a_process_exports_decide(run_shop):
    assert_only_refunds_fails(*run_shop({"type": "process", "target": "exporting:answer"}))


def test_spans_that_a_service_exports_decide(run_shop):
    port = free_port()
    with serving_shop(port) as url:
        ran = run_shop({"type": "http", "url": url}, observability={"receiver": {"port": port}})

    assert_only_refunds_fails(*ran)


def test_a_span_of_a_stranger_shows_no_secret_and_steers_nothing(run_shop, agent_dir):
    key = "sk-proj-AbCdEfGhIjKlMnOpQrStUvWx"
    tool = f"refund|{key}|\x1b[2J|\x9b2J|##[error]x|<script>alert(1)</script>|::error::x"
    forbidden = {"checks": [{"span": f"execute_tool {tool}", "count": 0}], "settle": 30}
    port = free_port()
    with serving_shop(port) as url:
        backend = {"type": "http", "url": url}
        cases = [case("refunds", tool, trace=forbidden)]
        ran, results = run_shop(backend, cases, observability={"receiver": {"port": port}})

    assert (ran.code, results["refunds"]["outcome"]) == (1, "failed")
    assert "1 span instead of none" in ran.stdout
    assert obeyed(ran.stdout + ran.stderr) == []
    reports = [(agent_dir.path / f"r.{suffix}").read_text() for suffix in ("json", "md", "html")]
    page = HtmlPage(reports[-1])
    page.require_harmless()
    assert "execute_tool refund" in json.dumps(page.cases)
    shown = [ran.stdout, ran.stderr, *reports, json.dumps(page.cases)]
    assert not [text for text in shown if key[:20] in text]


@pytest.mark.parametrize(("backend", "enabled"), [("semantic_kernel", False), ("chat", True)])
def test_the_spans_of_the_built_in_agent_decide(agent_dir, backend, enabled):
    server, prompt = agent_dir.server, "Use the tool."
    server.when(
        lambda request: len(request.body["messages"]) < 4,
        Reply(tool_calls=[ToolCall("refund", {"order": 7}, id="call_1")]),
    ).otherwise("Done.")
    agent_dir.write("tools.py", "def refund(order: int) -> str:\n    return 'ok'\n")
    tool = {"type": "function", "name": "refund", "file": "tools.py", "function": "refund"}
    required = {"require": {"execute_tool": 1, "chat": 2}}
    forbidden = {"checks": [{"span": "execute_tool refund", "count": 0}]}
    agent_dir.write_agent(
        backend=backend,
        tools=[tool],
        test_cases=[case("a", prompt, trace=required), case("b", prompt, trace=forbidden)],
        observability={"enabled": enabled, "exporters": {"console": {}}},
    )

    ran = agent_dir.run("test", "-o", "r.json")

    results = results_in(agent_dir.path / "r.json")
    assert (ran.code, results["a"]["outcome"], results["b"]["outcome"]) == (1, "passed", "failed")
    assert "execute_tool refund: none: 1 span instead of none" in ran.stdout


NO_SPANS = {
    "python": ("shop:answer", "its code made none that belong to this call"),
    "process": ({"type": "process", "target": "shop:answer"}, "it has sent nothing; its exporter"),
}


@pytest.mark.parametrize("name", NO_SPANS)
def test_without_spans_every_check_is_an_error_and_none_passes(run_shop, name):
    backend, reason = NO_SPANS[name]
    checks = {**CHECKS, "settle": 0}

    ran, results = run_shop(backend, [case("quiet", "without spans", trace=checks)])

    assert (ran.code, results["quiet"]["outcome"]) == (4, "metric_error")
    assert [one["passed"] for one in results["quiet"]["tool_checks"]] == [False] * 3
    assert all(reason in one["error"] for one in results["quiet"]["tool_checks"])


def test_turns_have_checks_of_their_own_spans_and_the_case_of_all(run_shop):
    turn = {"trace": {"checks": [{"span": "execute_tool", "count": 1}]}}
    turns = [{"input": "search", **turn}, {"input": "search refund", **turn}]
    whole = {"require": {"execute_tool": 3}, "checks": [{"span": "POST /", "count": 2}]}

    ran, results = run_shop("shop:answer", [{"name": "talk", "turns": turns, "trace": whole}])

    talk = results["talk"]
    assert [[one["passed"] for one in turn["tool_checks"]] for turn in talk["turns"]] == [
        [True], [False],
    ]  # fmt: skip
    assert [one["passed"] for one in talk["tool_checks"]] == [True, True]
    assert (ran.code, talk["outcome"]) == (1, "failed")


THREADS = """
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

from opentelemetry import trace
from opentelemetry.context import Context

tracer = trace.get_tracer("threads")
graded = threading.Event()
worker, late = None, None

def call_tool():
    tracer.start_span("execute_tool delete_order").end()

def begin_worker():
    global worker
    if worker is None:
        worker = contextvars.copy_context()

def call_tool_when_graded():
    graded.wait(30)
    call_tool()

def begin_late():
    global late
    late = threading.Thread(target=contextvars.copy_context().run, args=[call_tool_when_graded])
    late.start()

def answer(message):
    with tracer.start_as_current_span("POST /"):
        if message == "pool":
            with ThreadPoolExecutor() as pool:
                pool.submit(call_tool).result()
        elif message == "pool with context":
            with ThreadPoolExecutor() as pool:
                pool.submit(contextvars.copy_context().run, call_tool).result()
        elif message == "new trace":
            tracer.start_span("execute_tool delete_order", context=Context()).end()
        elif message == "begin worker":
            begin_worker()
        elif message == "use worker":
            worker.run(call_tool)
        elif message == "wait":
            graded.wait(30)
        elif message == "later":
            begin_late()
    return "done"

def grade(observation):
    call_tool()
    graded.set()
    if late is not None:
        late.join()
    return 1.0
"""
NO_DELETION = {"checks": [{"span": "execute_tool delete_order", "count": 0}], "settle": 0}


@pytest.fixture
def run_threads(agent_dir):
    """Writes an agent that makes spans in threads, and runs cases with it."""

    def run(*cases, **more):
        agent_dir.write("threads.py", THREADS)
        agent_dir.write_agent(
            model=None, instructions=None, backend="threads:answer", test_cases=cases, **more
        )
        ran = agent_dir.run("test", "-o", "r.json")
        assert_plain(ran)
        return ran, results_in(agent_dir.path / "r.json")

    return run


def test_a_span_in_a_thread_without_context_makes_its_absence_unknown(run_threads):
    ran, results = run_threads(case("a", "pool", trace=NO_DELETION))

    [check] = results["a"]["tool_checks"]
    assert (ran.code, results["a"]["outcome"]) == (4, "metric_error")
    assert "the span 'execute_tool delete_order' began while the agent answered" in check["error"]


@pytest.mark.parametrize("message", ["pool with context", "new trace"])
def test_a_span_that_the_call_began_in_a_thread_or_in_a_new_trace_counts(run_threads, message):
    ran, results = run_threads(case("a", message, trace=NO_DELETION))

    assert (ran.code, results["a"]["outcome"]) == (1, "failed")
    assert "none: 1 span instead of none" in ran.stdout


def test_a_span_in_the_trace_of_an_earlier_case_makes_its_absence_unknown(run_threads):
    cases = [
        case("first", "begin worker", trace=NO_DELETION),
        case("second", "use worker", trace=NO_DELETION),
    ]

    ran, results = run_threads(*cases, execution={"parallel_test_cases": 1})

    outcomes = [results[name]["outcome"] for name in ("first", "second")]
    assert (ran.code, outcomes) == (4, ["passed", "metric_error"])


def test_spans_of_graders_and_of_cases_without_trace_checks_are_not_those_of_a_call(run_threads):
    grader = {"type": "code", "grader": "threads:grade"}
    cases = [
        case("traced", "wait", trace=NO_DELETION),
        case("plain", "new trace", evaluations=[grader]),
    ]

    ran, results = run_threads(*cases, execution={"parallel_test_cases": 2})

    assert (ran.code, ran.stderr) == (0, "")
    assert [one["name"] for one in results["traced"]["trace"]["spans"]] == ["POST /"]


def test_a_span_that_begins_after_the_response_is_noted(run_threads, agent_dir):
    grader = {"type": "code", "grader": "threads:grade"}

    run_threads(case("a", "later", trace=NO_DELETION, evaluations=[grader]))

    notes = json.loads((agent_dir.path / "r.json").read_text())["notes"]
    assert notes == ["1 span of the agent began after its response, so that no check saw them"]
