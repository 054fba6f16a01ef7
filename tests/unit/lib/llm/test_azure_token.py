"""Tokens of Entra ID, from a managed identity that a server on loopback stands in for."""

import json
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.lib.llm.client import ChatClient, RequestStats
from holodeck.lib.llm.endpoint import REFRESH_BEFORE_S, Endpoint
from holodeck.lib.llm.errors import RequestError
from holodeck.lib.llm.limiter import Limiters
from holodeck.lib.llm.limits import CallLimits
from holodeck.models.llm import LLMProvider
from support.server import PATIENT_S

LIMITS = CallLimits(PATIENT_S, PATIENT_S, retries=0, retry_delay=0.01, answer_bytes=10**6)
BODY = {"model": "d", "messages": [{"role": "user", "content": "hi"}]}


@contextmanager
def identity_server(lifetime_s, status=200):
    """Give the URL of a server that hands out tokens, and the paths that it was asked for."""
    paths = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            token = {
                "access_token": f"token-{len(paths)}",
                "expires_on": str(int(time.time() + lifetime_s)),
                "resource": "https://cognitiveservices.azure.com",
                "token_type": "Bearer",
            }
            body = json.dumps(token if status == 200 else {"error": "no identity"}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token", paths
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def as_managed_identity(monkeypatch):
    """Let the machine have the identity of an app, and no other credentials."""

    def use(url):
        for name in ("AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET", "AZURE_TENANT_ID"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
        monkeypatch.setenv("IDENTITY_ENDPOINT", url)
        monkeypatch.setenv("IDENTITY_HEADER", "not-a-real-secret")

    return use


def client_of(server):
    llm = LLMProvider(provider="azure_openai", name="d", endpoint=server.root)
    return ChatClient(Endpoint.of(llm), llm.name, LIMITS, Limiters())


async def test_requests_carry_a_token_that_is_kept_until_it_expires(as_managed_identity):
    with identity_server(3600) as (url, paths), FakeOpenAI(lambda _: Reply("Hello.")) as server:
        as_managed_identity(url)
        client = client_of(server)
        for _ in range(3):
            await client.complete_body(BODY, RequestStats())
        await client.close()
        headers = [request.headers for request in server.requests]

    assert [header["authorization"] for header in headers] == ["Bearer token-1"] * 3
    assert not any("api-key" in header for header in headers)
    [path] = paths
    assert "resource=https://cognitiveservices.azure.com" in path


async def test_a_token_is_replaced_before_it_expires(as_managed_identity):
    lifetime_s = REFRESH_BEFORE_S - 10
    with identity_server(lifetime_s) as (url, _), FakeOpenAI(lambda _: Reply("Hello.")) as server:
        as_managed_identity(url)
        client = client_of(server)
        for _ in range(2):
            await client.complete_body(BODY, RequestStats())
        await client.close()
        headers = [request.headers for request in server.requests]

    assert [header["authorization"] for header in headers] == ["Bearer token-1", "Bearer token-2"]


async def test_a_stream_carries_a_token_too(as_managed_identity):
    with identity_server(3600) as (url, _), FakeOpenAI(lambda _: Reply("Hello.")) as server:
        as_managed_identity(url)
        client = client_of(server)
        pieces = [piece async for piece in client.stream_body(BODY, RequestStats())]
        await client.close()
        [request] = server.requests

    assert pieces[-1].text == "Hello."
    assert request.headers["authorization"] == "Bearer token-1"


async def test_without_a_token_nothing_is_sent_and_both_ways_are_named(as_managed_identity):
    with identity_server(0, status=400) as (url, _), FakeOpenAI() as server:
        as_managed_identity(url)
        client = client_of(server)
        with pytest.raises(RequestError, match=r"AZURE_OPENAI_API_KEY.*az login") as caught:
            await client.complete_body(BODY, RequestStats())
        await client.close()

    assert caught.value.refusal == "key"
    assert server.requests == []
