"""Servers on loopback that speak TLS with a certificate of their own, and proxies."""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def write_certificate(folder: Path) -> Path:
    """Return a file with the key and the certificate of 127.0.0.1, which nobody trusts yet."""
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
    path = folder / "loopback.pem"
    path.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return path


def tls(certificate: Path) -> ssl.SSLContext:
    """Return the context of a server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@asynccontextmanager
async def listening(talk: Talk, **options: Any) -> AsyncIterator[int]:
    """Give the port of a server that talks like this; it leaves nothing open."""
    talks: list[asyncio.Task[Any] | None] = []
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(asyncio.current_task())
        writers.append(writer)
        await talk(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
    async with server:
        yield server.sockets[0].getsockname()[1]
    for writer in writers:
        with suppress(AttributeError):  # before 3.11.4, Python cannot end a TLS connection twice
            writer.transport.abort()
    await asyncio.gather(*filter(None, talks), return_exceptions=True)
    await asyncio.sleep(0)


def forwarding(port: int) -> Talk:
    """Return a server that passes everything on to a port of loopback, as one for TLS does."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _join(reader, writer, "127.0.0.1", port)

    return talk


def proxying(heads: list[str], answer: bytes = ESTABLISHED) -> Talk:
    """Return a proxy that notes the heads of requests, and connects to where they go."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_head(reader)
        heads.append(head)
        method, target, _ = head.split(maxsplit=2)
        if method == "CONNECT":
            writer.write(answer)
            host, _, port = target.partition(":")
            await _join(reader, writer, host, int(port))
            return
        parts = urlsplit(target)
        first = head.replace(target, parts.path, 1).encode()
        await _join(reader, writer, parts.hostname or "", parts.port or 80, first)

    return talk


async def read_head(reader: asyncio.StreamReader) -> str:
    """Return the head of a request; "" at the end of the connection."""
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode()
    except (asyncio.IncompleteReadError, ConnectionError):
        return ""


async def _join(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    host: str,
    port: int,
    first: bytes = b"",
) -> None:
    """Connect to a server, send what came first, and pass on what both sides send."""
    answers, requests = await asyncio.open_connection(host, port)
    requests.write(first)
    try:
        await asyncio.gather(_copy(reader, requests), _copy(answers, writer))
    finally:
        requests.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()
