"""The fake server of the benchmark: what it refuses, what it counts, when it calls a tool."""

import json
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from loopback import configure, server, stats

TOOL = {
    "type": "function",
    "function": {"name": "note", "parameters": {"properties": {"text": {"type": "string"}}}},
}


@pytest.fixture(scope="module")
def url():
    with server(0) as found:
        yield found


def ask(url, messages, **more):
    body = json.dumps({"model": "m", "messages": messages, **more}).encode()
    with urllib.request.urlopen(f"{url}/chat/completions", body) as answer:
        return json.load(answer)["choices"][0]


def test_a_request_with_tools_gets_a_call_first_and_then_the_answer(url):
    messages = [{"role": "user", "content": "Say case-00001"}]

    call = ask(url, messages, tools=[TOOL])
    messages += [call["message"], {"role": "tool", "content": "noted", "tool_call_id": "1"}]
    answer = ask(url, messages, tools=[TOOL])

    asked = call["message"]["tool_calls"][0]["function"]
    assert (call["finish_reason"], asked["name"]) == ("tool_calls", "note")
    assert json.loads(asked["arguments"]) == {"text": "Say case-00001"}
    assert (answer["finish_reason"], answer["message"]["content"]) == ("stop", "OK: Say case-00001")


def test_what_is_above_the_limit_is_refused_and_counted(url):
    configure(url, latency_ms=1000, most_at_once=2)

    def status(_):
        try:
            ask(url, [{"role": "user", "content": "hello"}])
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["Retry-After"]
        return 200, None

    with ThreadPoolExecutor(5) as pool:
        seen = sorted(pool.map(status, range(5)))

    assert seen == [(200, None)] * 2 + [(429, "1")] * 3
    counted = stats(url)
    assert (counted["requests"], counted["refused"], counted["peak"]) == (5, 3, 2)


def test_what_is_configured_counts_from_zero_and_forgets_the_last_mode(url):
    configure(url, latency_ms=60_000, most_at_once=1)
    configure(url)

    started = time.monotonic()
    ask(url, [{"role": "user", "content": "hello"}])

    assert time.monotonic() - started < 30
    assert (stats(url)["requests"], stats(url)["bleed"]) == (1, 0)
