"""ConnectionPool through TLS and proxies, to real servers on loopback."""

import ssl

import pytest

from holodeck.lib.llm.http_connection import ConnectionPool, ProxyRefused, Server
from support.tunnels import listening, proxying, read_head, tls, write_certificate

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def certificate(tmp_path):
    return write_certificate(tmp_path)


def answering(heads):
    """A server that notes the heads of requests and answers every one."""

    async def talk(reader, writer):
        while head := await read_head(reader):
            heads.append(head)
            writer.write(ANSWER)
        writer.close()

    return talk


async def bodies(server, times=2):
    connections = ConnectionPool(server, 1_000_000)
    request = f"POST {server.target} HTTP/1.1\r\nHost: {server.authority}\r\n\r\n".encode()
    try:
        return [(await connections.exchange(request)).body for _ in range(times)]
    finally:
        await connections.close()


async def test_tls_is_spoken_with_whoever_is_trusted(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    heads = []

    async with listening(answering(heads), ssl=tls(certificate)) as port:
        assert await bodies(Server(f"https://127.0.0.1:{port}/v1?a=b")) == [b"ok", b"ok"]

    assert [head.splitlines()[0] for head in heads] == ["POST /v1?a=b HTTP/1.1"] * 2


async def test_a_certificate_that_nobody_trusts_is_refused(certificate):
    async with listening(answering([]), ssl=tls(certificate)) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await bodies(Server(f"https://127.0.0.1:{port}/v1"))


async def test_tls_goes_through_a_tunnel_of_the_proxy(certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    asked, heads = [], []

    async with (
        listening(answering(heads), ssl=tls(certificate)) as port,
        listening(proxying(asked)) as proxy,
    ):
        server = Server(f"https://127.0.0.1:{port}/v1", f"http://me:p%40ss@127.0.0.1:{proxy}")
        assert await bodies(server) == [b"ok", b"ok"]

    assert len(asked) == 1
    assert f"CONNECT 127.0.0.1:{port} HTTP/1.1" in asked[0]
    assert "Proxy-Authorization: Basic bWU6cEBzcw==" in asked[0]
    assert len(heads) == 2


async def test_a_proxy_that_refuses_is_named(certificate):
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"

    async with listening(answering([])) as port, listening(proxying([], refusal)) as proxy:
        with pytest.raises(ProxyRefused, match="the proxy answered HTTP 407"):
            await bodies(Server(f"https://127.0.0.1:{port}/v1", f"http://127.0.0.1:{proxy}"))


async def test_a_proxy_learns_the_whole_url_of_a_plain_request():
    heads = []

    async with listening(answering(heads)) as proxy:
        await bodies(Server("http://models.example:81/v1", f"http://127.0.0.1:{proxy}"), times=1)

    assert heads[0].splitlines()[0] == "POST http://models.example:81/v1 HTTP/1.1"
