"""What is too much is stopped at its limit: answers without end, keys that nobody takes."""

import gzip
import json
import socketserver
import threading
import zlib
from contextlib import contextmanager
from functools import cache

import pytest

from fakes import Reply
from support.bounded import run_bounded
from support.checks import assert_plain
from support.folder import AgentFolder, case

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
CHUNK = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
WAYS = {
    "Semantic Kernel": lambda url: {"model": model(url, "openai")},
    "anthropic": lambda url: {"model": model(url, "anthropic")},
    "ollama": lambda url: {"model": model(url, "ollama")},
    "chat": lambda url: {"model": model(url, "openai"), "backend": "chat"},
    "http": lambda url: {
        "model": None,
        "instructions": None,
        "backend": {
            "type": "http",
            "url": url,
            "request": {"q": "{input}"},
            "answer": {"text": "a"},
        },
    },
}


def model(url, provider):
    return {"provider": provider, "name": "fake", "endpoint": url, "api_key": "not-a-real-key"}


class Endless(socketserver.StreamRequestHandler):
    """Answers anything with chunks until nobody listens any more."""

    def handle(self):
        length = 0
        while (line := self.rfile.readline().strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        self.rfile.read(length)
        with self.server.counting:
            self.server.requests += 1
        try:
            self.wfile.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(16_000):  # a gigabyte
                self.wfile.write(CHUNK)
        except OSError:
            return


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    requests = 0

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Endless)
        self.counting = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


@contextmanager
def endless():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


MEASURED = ["Semantic Kernel", "chat", "http"]


@pytest.fixture(scope="module")
def megabytes_without_answer(tmp_path_factory):
    """Returns what a run of a way takes that gets no answer."""

    @cache
    def measure(way):
        folder = AgentFolder(tmp_path_factory.mktemp("silent") / "agent", None)
        nobody = WAYS[way]("http://127.0.0.1:1/v1")
        cases = [case("says-hello", "Say hello please", contains="hello")]
        agent = {"name": "greeter", "instructions": {"inline": "Do what the user says."}}
        keys = agent | nobody | {"test_cases": cases, "execution": {"max_retries": 0}}
        folder.write("agent.yaml", json.dumps({k: v for k, v in keys.items() if v is not None}))
        return run_bounded("test", cwd=folder.path).megabytes

    return measure


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_without_end_is_read_up_to_the_limit(agent_dir, megabytes_without_answer, way):
    with endless() as server:
        agent_dir.write_agent(**WAYS[way](server.url))
        ran = run_bounded("test", "-o", "out.json", cwd=agent_dir.path)

    assert_plain(ran)
    assert ran.code == 3
    report = json.loads((agent_dir.path / "out.json").read_text())
    assert "the answer is too large: more than 8 MB" in report["results"][0]["errors"][0]
    assert server.requests == 1
    if way in MEASURED:
        assert ran.megabytes - megabytes_without_answer(way) < 40


@pytest.mark.parametrize("way", ["Semantic Kernel", "chat"])
@pytest.mark.parametrize(("limit", "code"), [(1.5, 0), (0.5, 3)])
def test_the_limit_of_an_answer_can_be_set(agent_dir, way, limit, code):
    agent_dir.server.otherwise("hello " + "x" * 1_000_000)
    agent_dir.write_agent(**WAYS[way](agent_dir.server.url), execution={"max_answer_mb": limit})

    ran = agent_dir.run("test")

    assert ran.code == code, ran.stdout
    assert ("more than 0.5 MB" in ran.stdout) == (code == 3)
    assert len(agent_dir.server.requests) == 1


ANSWER = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "fake",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "hello"},
            }
        ],
        "a": "hello",
    }
).encode()
"""A chat completion, and an answer for `backend: http`."""


@cache
def a_bomb():
    """300 MB of blanks, packed into 300 kB."""
    packer = zlib.compressobj(1, wbits=31)
    packed = [packer.compress(b" " * 1_000_000) for _ in range(300)]
    return b"".join([*packed, packer.flush()])


@pytest.mark.parametrize("way", ["Semantic Kernel", "chat", "http"])
@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("gzip", gzip.compress(ANSWER)),
        ("deflate", zlib.compress(ANSWER)),
        ("deflate", zlib.compress(ANSWER)[2:-4]),
    ],
    ids=["gzip", "deflate", "bare deflate"],
)
def test_an_answer_that_a_gateway_compressed_unasked_is_read(agent_dir, way, coding, packed):
    agent_dir.server.otherwise(body=packed, headers={"content-encoding": coding})
    agent_dir.write_agent(**WAYS[way](agent_dir.server.url), execution={"max_retries": 0})

    ran = agent_dir.run("test")

    assert_plain(ran)
    assert ran.code == 0, ran.stdout
    assert agent_dir.server.requests[0].headers["accept-encoding"] == "identity"


def test_an_answer_of_a_judge_that_a_gateway_compressed_is_read(agent_dir):
    said = json.loads(ANSWER)
    said["choices"][0]["message"]["content"] = '{"reason": "it does", "answer": "yes"}'
    packed = gzip.compress(json.dumps(said).encode())
    agent_dir.write("agent.py", "def answer(said):\n    return 'hello'\n")
    agent_dir.server.otherwise(body=packed, headers={"content-encoding": "gzip"})
    checks = [{"type": "judge", "name": "greets", "criteria": ["Does it say hello?"]}]
    agent_dir.write_agent(
        backend="agent:answer",
        test_cases=[{"input": "hi", "evaluations": checks}],
        execution={"max_retries": 0},
    )

    ran = agent_dir.run("test")

    assert ran.code == 0, ran.stdout


@pytest.mark.parametrize("way", MEASURED)
def test_a_compressed_answer_is_unpacked_up_to_the_limit(agent_dir, megabytes_without_answer, way):
    agent_dir.server.otherwise(body=a_bomb(), headers={"content-encoding": "gzip"})
    agent_dir.write_agent(**WAYS[way](agent_dir.server.url))

    ran = run_bounded("test", cwd=agent_dir.path)

    assert ran.code == 3
    assert "the answer is too large: more than 8 MB" in ran.stdout
    assert len(agent_dir.server.requests) == 1
    assert ran.megabytes - megabytes_without_answer(way) < 40


@pytest.mark.parametrize("way", ["Semantic Kernel", "chat", "http"])
def test_an_answer_that_is_not_compressed_as_it_says_is_an_error(agent_dir, way):
    agent_dir.server.otherwise(body=ANSWER, headers={"content-encoding": "gzip"})
    settings = {"max_retries": 1, "retry_delay": 0}
    agent_dir.write_agent(**WAYS[way](agent_dir.server.url), execution=settings)

    ran = agent_dir.run("test")

    assert_plain(ran)
    assert ran.code == 3
    assert "its gzip data cannot be decoded" in ran.stdout


class Window:
    """Takes three requests in 0.4 seconds, and tells with each how many are left."""

    def __init__(self):
        self.opened = 0.0
        self.taken = 0
        self.refused = 0

    def __call__(self, request):
        if request.received_at > self.opened + 0.4:
            self.opened, self.taken = request.received_at, 0
        self.taken += 1
        rest = self.opened + 0.4 - request.received_at
        headers = {
            "x-ratelimit-remaining-requests": str(max(0, 3 - self.taken)),
            "x-ratelimit-reset-requests": f"{rest * 1000 + 20:.0f}ms",
        }
        if self.taken > 3:
            self.refused += 1
            return Reply(status=429, content="too many", headers=headers)
        return Reply("hello", headers=headers)


@pytest.mark.parametrize("way", ["Semantic Kernel", "chat"])
def test_a_limit_that_is_told_is_never_run_into(agent_dir, way):
    window = Window()
    agent_dir.server.otherwise(window)
    cases = [case(f"case {n}", f"say {n}", contains="hello") for n in range(10)]
    agent_dir.write_agent(**WAYS[way](agent_dir.server.url), test_cases=cases)

    ran = agent_dir.run("test", "--parallel", "1", "-v")

    assert ran.code == 0, ran.stdout
    assert window.refused == 0
    assert len(agent_dir.server.requests) == 10
    assert "x-ratelimit-remaining-requests is 0" in ran.stderr


REFUSALS = {
    "a wrong key": (401, "invalid_api_key", "Incorrect API key provided"),
    "a spent quota": (429, "insufficient_quota", "You exceeded your current quota"),
}


@pytest.mark.parametrize("way", ["Semantic Kernel", "chat"])
@pytest.mark.parametrize("refusal", REFUSALS)
def test_what_is_refused_three_times_ends_the_run_with_one_message(agent_dir, way, refusal):
    status, code, words = REFUSALS[refusal]
    error = {"message": words, "type": code, "code": code}
    agent_dir.server.otherwise(status=status, json={"error": error})
    cases = [case(f"case {n}", f"say {n}", contains="hello") for n in range(20)]
    agent_dir.write_agent(**WAYS[way](agent_dir.server.url), test_cases=cases)

    ran = agent_dir.run("test", "--parallel", "1", "-o", "out.json", "-o", "out.md")

    assert_plain(ran)
    assert ran.code == 3
    assert len(agent_dir.server.requests) == 3
    told = f"{words}; 3 calls in a row were refused; check "
    assert (ran.stdout + ran.stderr).count(told) == 1
    assert (ran.stdout + ran.stderr).count("so the other 17 cases are not run") == 1
    assert words in ran.stdout + ran.stderr
    report = json.loads((agent_dir.path / "out.json").read_text())
    assert report["summary"]["outcomes"] == {"agent_error": 3, "skipped": 17}
    assert "3 calls in a row were refused" in (agent_dir.path / "out.md").read_text()


@pytest.mark.parametrize("way", ["Semantic Kernel", "chat"])
def test_a_wrong_key_costs_no_more_than_the_requests_under_way(agent_dir, way):
    error = {"message": "Incorrect API key provided", "code": "invalid_api_key"}
    agent_dir.server.otherwise(status=401, json={"error": error}, latency_s=0.2)
    cases = [case(f"case {n}", f"say {n}", contains="hello") for n in range(300)]
    agent_dir.write_agent(**WAYS[way](agent_dir.server.url), test_cases=cases)

    ran = agent_dir.run("test")

    assert ran.code == 3
    assert len(agent_dir.server.requests) <= 100
    assert ran.stdout.count("calls in a row were refused") <= 1
