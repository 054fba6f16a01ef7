"""A replay reaches nothing beyond this machine."""

import asyncio
import socket
import threading
import urllib.request

import httpx
import pytest
import requests

from holodeck.lib.recordings.loopback import only_loopback
from support.server import FakeOpenAI

ELSEWHERE = "192.0.2.1"
"""An address for documentation, which nobody has."""


async def connect_async(host):
    _, writer = await asyncio.open_connection(host, 9)
    writer.close()


def send_datagram(host):
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        sender.sendto(b"", (host, 9))


WAYS = {
    "socket": lambda host: socket.create_connection((host, 9), timeout=5),
    "datagram": send_datagram,
    "asyncio": lambda host: asyncio.run(connect_async(host)),
    "httpx": lambda host: httpx.get(f"http://{host}:9"),
    "requests": lambda host: requests.get(f"http://{host}:9", timeout=5),
    "urllib": lambda host: urllib.request.urlopen(f"http://{host}:9", timeout=5),
    "name": socket.gethostbyname,
}


CONNECTIONS = [
    *((way, ELSEWHERE) for way in WAYS),
    *((way, "models.example") for way in WAYS if way != "datagram"),
    *((way, "2001:db8::1") for way in ("socket", "asyncio")),
    *((way, "[2001:db8::1]") for way in ("httpx", "requests", "urllib")),
]


@pytest.mark.parametrize(("way", "host"), CONNECTIONS)
def test_no_connection_leaves_the_machine(way, host):
    with only_loopback(), pytest.raises(Exception, match="recordings are replayed"):
        WAYS[way](host)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_this_machine_is_reached(host):
    with FakeOpenAI() as server, only_loopback():
        url = server.url.replace("127.0.0.1", host)
        assert httpx.post(f"{url}/chat/completions", json={"messages": []}).status_code == 200


def test_it_holds_in_every_thread_and_ends_with_the_block():
    errors = []

    def connect():
        try:
            WAYS["socket"](ELSEWHERE)
        except OSError as error:
            errors.append(str(error))

    with only_loopback():
        thread = threading.Thread(target=connect)
        thread.start()
        thread.join()
    assert "recordings are replayed" in errors[0]

    with pytest.raises(OSError) as after:  # noqa: PT011 - the machine itself says why
        socket.create_connection((ELSEWHERE, 9), timeout=0.1)
    assert "recordings" not in str(after.value)


def test_a_proxy_on_this_machine_is_not_used(monkeypatch):
    with FakeOpenAI() as server:
        monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
        monkeypatch.setenv("http_proxy", server.url.removesuffix("/v1"))
        with only_loopback(), pytest.raises(httpx.HTTPError, match="recordings are replayed"):
            httpx.get("http://models.example/v1/models")
        assert server.requests == []
