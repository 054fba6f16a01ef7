"""ConnectionPool through TLS and proxies, to real servers on loopback."""

import asyncio
import ipaddress
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holodeck.lib.llm.http_connection import ConnectionPool, ProxyRefused, Server

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def certificate(tmp_path):
    """A file with key and certificate of 127.0.0.1, which nobody trusts yet."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    host = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([host]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = tmp_path / "loopback.pem"
    path.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return path


@asynccontextmanager
async def listening(talk, **options):
    """The port of a server that talks like this; it leaves nothing open."""
    talks, writers = [], []

    async def serve(reader, writer):
        talks.append(asyncio.current_task())
        writers.append(writer)
        await talk(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
    async with server:
        yield server.sockets[0].getsockname()[1]
    for writer in writers:
        writer.transport.abort()
    await asyncio.gather(*talks, return_exceptions=True)
    await asyncio.sleep(0)


def answering(heads):
    """A server that notes the heads of requests and answers every one."""

    async def talk(reader, writer):
        while head := await _head(reader):
            heads.append(head)
            writer.write(ANSWER)
        writer.close()

    return talk


def tunnelling(heads, answer=b"HTTP/1.1 200 Connection established\r\n\r\n"):
    """A proxy that notes what it is asked and joins both sides."""

    async def talk(reader, writer):
        heads.append(await _head(reader))
        writer.write(answer)
        host, _, port = heads[-1].split()[1].partition(":")
        there = await asyncio.open_connection(host, int(port))
        try:
            await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))
        finally:
            there[1].transport.abort()

    return talk


async def _head(reader):
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return ""


async def _copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()


def tls(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


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
        listening(tunnelling(asked)) as proxy,
    ):
        server = Server(f"https://127.0.0.1:{port}/v1", f"http://me:p%40ss@127.0.0.1:{proxy}")
        assert await bodies(server) == [b"ok", b"ok"]

    assert len(asked) == 1
    assert f"CONNECT 127.0.0.1:{port} HTTP/1.1" in asked[0]
    assert "Proxy-Authorization: Basic bWU6cEBzcw==" in asked[0]
    assert len(heads) == 2


async def test_a_proxy_that_refuses_is_named(certificate):
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"

    async with listening(answering([])) as port, listening(tunnelling([], refusal)) as proxy:
        with pytest.raises(ProxyRefused, match="the proxy answered HTTP 407"):
            await bodies(Server(f"https://127.0.0.1:{port}/v1", f"http://127.0.0.1:{proxy}"))


async def test_a_proxy_learns_the_whole_url_of_a_plain_request():
    heads = []

    async with listening(answering(heads)) as proxy:
        await bodies(Server("http://models.example:81/v1", f"http://127.0.0.1:{proxy}"), times=1)

    assert heads[0].splitlines()[0] == "POST http://models.example:81/v1 HTTP/1.1"
