"""What every case would meet ends the run soon, with one message; what one case meets does not."""

import errno
import socket
import socketserver
import ssl
import threading
from contextlib import contextmanager
from itertools import pairwise

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.lib.backends.process.messages import answer_error
from holodeck.lib.llm.errors import unreachable_reason
from holodeck.lib.llm.retry import retry
from holodeck.lib.ui.activity import Activities, current_case, displayed
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_result import Outcome
from support.cli import start_in_pty
from support.faults import agent_for, completion, run_cases, settings
from support.folder import case

MODEL_WAYS = ("Semantic Kernel", "chat")
WAYS = (*MODEL_WAYS, "http")
on_every_way = pytest.mark.parametrize("way", WAYS)


def fields(way, url):
    """What an agent.yaml says to go that way to that URL."""
    if way == "http":
        answer = {"text": "choices[0].message.content"}
        return {
            "model": None,
            "instructions": None,
            "backend": {"type": "http", "url": url, "answer": answer},
        }
    model = {"provider": "openai", "name": "fake", "endpoint": url, "api_key": "not-a-real-key"}
    return {"model": model} | ({"backend": "chat"} if way == "chat" else {})


def cases(count, **more):
    return [case(f"case {n}", f"say {n}", contains="OK", **more) for n in range(count)]


async def report_of(way, url, folder, test_cases, **execution):
    """The report of cases that run one after the other."""
    with FakeOpenAI() as server:
        agent = agent_for(server, folder, 0, test_cases=test_cases, **fields(way, url))
    limits = {"parallel_test_cases": 1, "retry_delay": 0} | execution
    return await run_cases(agent, folder, settings(ExecutionConfig(), **limits))


def a_closed_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@on_every_way
def test_a_server_that_is_down_ends_the_run_after_three_tries_with_one_message(agent_dir, way):
    url = f"http://127.0.0.1:{a_closed_port()}/v1"
    execution = {"parallel_test_cases": 1, "retry_delay": 0}
    agent_dir.write_agent(**fields(way, url), test_cases=cases(4), execution=execution)

    ran = agent_dir.run("test", "-v")

    said = ran.stdout + ran.stderr
    where = "backend.url (agent.yaml:" if way == "http" else "model.endpoint (agent.yaml:"
    assert ran.code == 3
    assert (
        "connection refused (after 3 attempts); check that the server is running, and "
        in ran.stderr
    )
    assert where in ran.stderr
    assert "so the other 3 cases are not run" in ran.stderr
    assert "ERROR case 0" in said
    assert not [n for n in range(1, 4) if f"ERROR case {n}" in said]
    assert "connection refused, retry 1 of 2 in 0.0 s" in ran.stderr
    assert "timed out" not in said


@on_every_way
async def test_a_server_that_is_down_is_tried_three_times_and_only_for_one_case(way, tmp_path):
    url = f"http://127.0.0.1:{a_closed_port()}/v1"

    report = await report_of(way, url, tmp_path, cases(4))

    first, *others = report.results
    assert len(first.attempts) == 3
    assert f"no connection to {url.removesuffix('/v1')}" in first.errors[0]
    assert [one.skipped_by for one in others] == ["refused"] * 3


async def test_fewer_tries_than_three_are_made_for_so_many_more_cases(tmp_path):
    url = f"http://127.0.0.1:{a_closed_port()}/v1"

    report = await report_of("chat", url, tmp_path, cases(5), max_retries=0)

    assert [len(one.attempts) for one in report.results] == [1, 1, 1, 0, 0]
    assert "3 calls in a row were refused" in report.stopped


async def test_a_host_that_does_not_exist_ends_the_run_as_well(tmp_path):
    report = await report_of("chat", "http://holodeck-tests.invalid/v1", tmp_path, cases(4))

    assert "the host name cannot be resolved" in report.results[0].errors[0]
    assert len(report.results[0].attempts) == 3
    assert report.stopped_by == "refused"


class _PlainText(socketserver.BaseRequestHandler):
    """Answers whatever comes without TLS."""

    def handle(self):
        self.request.recv(4096)
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@on_every_way
async def test_a_server_without_tls_behind_https_ends_the_run_as_well(way, tmp_path):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _PlainText) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        url = f"https://127.0.0.1:{server.server_address[1]}/v1"
        try:
            report = await report_of(way, url, tmp_path, cases(4))
        finally:
            server.shutdown()

    assert "TLS failed: " in report.results[0].errors[0]
    assert "check that the server is running, and " in report.stopped
    assert [one.skipped_by for one in report.results[1:]] == ["refused"] * 3


CODE = """
import socket

class Unauthorized(Exception):
    status_code = 401

def unreachable(message):
    try:
        socket.create_connection(("127.0.0.1", {port}), timeout=60)
    except OSError as error:
        raise RuntimeError("no weather") from error

def refused(message):
    raise Unauthorized("a wrong key")

def broken(message):
    raise ValueError("no")

def sometimes(message):
    return "OK" if message == "say 0" else unreachable(message)
"""


def run_code(folder, function, *args):
    folder.write("bot.py", CODE.replace("{port}", str(a_closed_port())))
    agent = {"model": None, "instructions": None, "backend": f"bot:{function}"}
    folder.write_agent(**agent, test_cases=cases(6), execution={"parallel_test_cases": 1})
    return folder.run("test", *args)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            "unreachable",
            "RuntimeError: no weather; 3 calls in a row were refused; check that the server",
        ),
        (
            "refused",
            "Unauthorized: a wrong key; 3 calls in a row were refused; check the API key that",
        ),
    ],
)
def test_code_that_no_server_answers_ends_the_run_with_one_message(agent_dir, function, message):
    ran = run_code(agent_dir, function)

    assert ran.code == 3
    assert ran.stderr.count(message) == 1
    assert "so the other 3 cases are not run" in ran.stderr
    assert "  Errors: 3\n  Not run: 3\n" in ran.stdout


@pytest.mark.parametrize("function", ["broken", "sometimes"])
def test_code_that_breaks_for_another_reason_or_has_answered_runs_to_the_end(agent_dir, function):
    ran = run_code(agent_dir, function)

    assert ran.code == 3
    assert "Not run" not in ran.stdout


def test_every_case_runs_if_the_run_shall_not_give_up(agent_dir):
    ran = run_code(agent_dir, "unreachable", "--no-give-up")

    assert ran.code == 3
    assert "  Errors: 6\n" in ran.stdout


def test_a_provider_that_refuses_every_case_is_asked_for_each_if_the_run_shall_not_give_up(
    agent_dir,
):
    agent_dir.server.otherwise(refusing(401, "wrong key"))
    agent_dir.write_agent(backend="chat", test_cases=cases(6), execution={"give_up": False})

    ran = agent_dir.run("test")

    assert len(agent_dir.server.requests) == 6
    assert "Not run" not in ran.stdout


@pytest.mark.parametrize(
    ("name", "message", "refusal"),
    [("ConnectionRefusedError", "no", "unreachable"), ("openai.AuthenticationError", "no", "key"),
     ("NotFoundError", "no", "request"), ("ValueError", "no", None),
     ("URLError", f"<urlopen error [Errno {errno.ECONNREFUSED}] refused>", "unreachable")],
)  # fmt: skip
def test_what_a_process_was_refused_is_read_from_its_error(name, message, refusal):
    error = answer_error({"message": message, "data": {"type": name}})

    assert (error.refusal, error.permanent) == (refusal, False)


@contextmanager
def answering_once():
    """A server that answers one request, and is gone then."""
    body = str(completion()).replace("'", '"').encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        taken, _ = listener.accept()
        listener.close()
        with taken, taken.makefile("rb") as lines:
            length = 0
            while (line := lines.readline().strip().lower()) != b"":
                if line.startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            lines.read(length)
            taken.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    thread.join()


@on_every_way
async def test_a_server_that_goes_down_in_the_middle_is_waited_for_with_every_try(way, tmp_path):
    with answering_once() as url:
        report = await report_of(way, url, tmp_path, cases(4), max_retries=4)

    assert [one.outcome for one in report.results] == [Outcome.PASSED] + [Outcome.AGENT_ERROR] * 3
    assert [len(one.attempts) for one in report.results[1:]] == [5, 5, 5]
    assert report.stopped is None


def test_the_cause_of_a_lost_connection_is_found_in_the_chain():
    def chained(*errors):
        for outer, inner in pairwise(errors):
            outer.__cause__ = inner
        return errors[0]

    refused = ConnectionRefusedError(111, "Connect call failed")
    several = "Multiple exceptions: [Errno 99] no address, [Errno 111] Connect call failed"

    assert unreachable_reason(chained(RuntimeError("Request timed out."), refused)) == (
        "connection refused"
    )
    assert unreachable_reason(OSError(several)) == "connection refused"
    assert unreachable_reason(ExceptionGroup("all failed", [refused])) == "connection refused"
    assert "cannot be resolved" in unreachable_reason(socket.gaierror(-2, "unknown name"))
    assert unreachable_reason(ConnectionResetError(104, "Connection reset by peer")) is None
    assert unreachable_reason(TimeoutError()) is None
    untrusted = ssl.SSLCertVerificationError(1, "certificate verify failed")
    untrusted.verify_message = "self-signed certificate"
    assert unreachable_reason(chained(RuntimeError("Connection error."), untrusted)) == (
        "its certificate is not trusted: self-signed certificate"
    )


async def test_every_wait_for_another_try_is_shown_with_its_number():
    waits, activities = [], Activities()
    token = displayed.set(activities)
    errors = [ConnectionRefusedError("refused")] * 2

    async def call():
        if errors:
            raise errors.pop()
        return "answer"

    async def sleep(_):
        waits.append(activities.of(current_case()))

    try:
        answer = await retry(
            call,
            attempts=6,
            is_transient=lambda _: True,
            delay_for=lambda _, attempt: 2.0 * attempt,
            sleep=sleep,
            describe=str,
        )
    finally:
        displayed.reset(token)

    assert answer == "answer"
    assert [one.text for one in waits] == ["retry 1 of 5", "retry 2 of 5"]
    assert waits[1].describe(waits[1].ends_at - 4) == "retry 2 of 5 in 4 s: refused"
    assert waits[1].describe(waits[1].ends_at) == "retry 2 of 5: refused"
    assert activities.of(current_case()) is None


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_live_line_tells_of_the_wait_for_another_try(agent_dir, workers):
    agent_dir.server.otherwise(status=429, headers={"retry-after": "50"})
    agent_dir.write_agent(backend="chat", execution={"max_retries": 3})

    with start_in_pty("test", "--workers", workers, cwd=agent_dir.path, cols=100) as run:
        run.read_until("retry 1 of 3 in 5")
        run.interrupt()
        run.finish()


def refusing(status, message, code=None):
    return Reply(status=status, json={"error": {"message": message, "code": code}})


@pytest.mark.parametrize("way", MODEL_WAYS)
def test_a_wrong_model_name_is_said_once_with_its_line(agent_dir, way):
    agent_dir.server.otherwise(refusing(404, "The model 'fake' does not exist"))
    url = agent_dir.server.url
    agent_dir.write_agent(
        **fields(way, url), test_cases=cases(60), execution={"parallel_test_cases": 1}
    )

    ran = agent_dir.run("test")

    assert ran.code == 3
    assert len(agent_dir.server.requests) == 3
    assert ran.stderr.count("does not exist") == 1
    assert "3 calls in a row were refused; check model.name (agent.yaml:4:9)" in ran.stderr
    assert "so the other 57 cases are not run" in ran.stderr
    assert "Not run: 57" in ran.stdout


@pytest.mark.parametrize("status", [401, 402, 404])
@pytest.mark.parametrize("way", MODEL_WAYS)
async def test_a_single_case_says_what_to_check(tmp_path, way, status):
    hints = {
        401: "check model.api_key or OPENAI_API_KEY",
        402: "check the account of model.api_key or OPENAI_API_KEY",
        404: "check model.name and model.endpoint",
    }
    with FakeOpenAI(refusing(status, "not today")) as server:
        report = await report_of(way, server.url, tmp_path, cases(1))

    [error] = report.results[0].errors
    assert error.endswith(f"not today; {hints[status]}")


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "check model.api_key or OPENAI_API_KEY"),
        (402, "check the account of model.api_key or OPENAI_API_KEY"),
        (403, "check model.api_key or OPENAI_API_KEY"),
        (404, "check model.name and model.endpoint"),
        (400, "check model"),
        (422, "check model"),
    ],
)
@pytest.mark.parametrize("way", MODEL_WAYS)
async def test_a_refusal_that_every_case_gets_ends_the_run(tmp_path, way, status, hint):
    with FakeOpenAI(refusing(status, "not today")) as server:
        report = await report_of(way, server.url, tmp_path, cases(6))

        assert len(server.requests) == 3
    assert report.stopped_by == "refused"
    assert f"not today; 3 calls in a row were refused; {hint}" in report.stopped
    assert [one.skipped_by for one in report.results[3:]] == ["refused"] * 3


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "check backend.headers"),
        (402, "check the account of backend.headers"),
        (404, "check backend"),
        (422, "check backend"),
    ],
)
async def test_a_refusal_that_every_case_gets_from_a_url_ends_the_run(tmp_path, status, hint):
    with FakeOpenAI(refusing(status, "not today")) as server:
        report = await report_of("http", server.url, tmp_path, cases(6))

        assert len(server.requests) == 3
    assert hint in report.stopped


def by_prompt(**answers):
    """A server's script: these answers to the prompts that hold a text, else OK."""

    def answer(request):
        held = [said for text, said in answers.items() if text in request.raw.decode()]
        return held[0] if held else Reply(json=completion())

    return answer


@on_every_way
async def test_a_400_that_tells_of_each_case_something_else_does_not_end_the_run(way, tmp_path):
    def too_long(request):
        return refusing(400, f"{len(request.raw) + request.number} tokens are too many")

    with FakeOpenAI(too_long) as server:
        report = await report_of(way, server.url, tmp_path, cases(6))

        assert len(server.requests) == 6
    assert report.stopped is None


@pytest.mark.parametrize("way", MODEL_WAYS)
@pytest.mark.parametrize("code", ["content_filter", "context_length_exceeded"])
async def test_a_400_about_the_content_does_not_end_the_run(way, code, tmp_path):
    with FakeOpenAI(refusing(400, "filtered by a policy", code)) as server:
        report = await report_of(way, server.url, tmp_path, cases(6))

        assert len(server.requests) == 6
    assert report.stopped is None


@on_every_way
@pytest.mark.parametrize("status", [400, 404, 422])
async def test_the_same_refusal_after_an_answer_does_not_end_the_run(way, status, tmp_path):
    no = refusing(status, "no")
    script = by_prompt(**{"say 1": no, "say 2": no, "say 3": no, "say 4": no})

    with FakeOpenAI(script) as server:
        report = await report_of(way, server.url, tmp_path, cases(6))

        assert len(server.requests) == 6
    assert report.stopped is None


async def test_the_same_400_in_a_later_turn_does_not_end_the_run(tmp_path):
    turns = [{"input": "hello"}, {"input": "too much"}]
    talks = [
        {"name": f"case {n}", "turns": turns, "evaluations": [{"metric": "contains", "value": "x"}]}
        for n in range(5)
    ]

    with FakeOpenAI(by_prompt(**{"too much": refusing(400, "no more")})) as server:
        report = await report_of("chat", server.url, tmp_path, talks)

        assert len(server.requests) == 10
    assert report.stopped is None


def test_a_run_of_the_cases_that_a_provider_refused_asks_for_every_one_again(agent_dir):
    """The others had answers: what is left may be refused for what it says."""
    bad = {f"say {n}": refusing(400, "no") for n in range(1, 6)}
    agent_dir.server.otherwise(by_prompt(**bad))
    execution = {"parallel_test_cases": 1}
    agent_dir.write_agent(
        **fields("chat", agent_dir.server.url), test_cases=cases(6), execution=execution
    )
    agent_dir.run("test")
    before = len(agent_dir.server.requests)

    ran = agent_dir.run("test", "--resume", "--retry-errors")

    assert before == 6
    assert len(agent_dir.server.requests) == 11
    assert "Not run" not in ran.stdout
