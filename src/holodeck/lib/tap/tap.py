"""The tap: a proxy on 127.0.0.1 in a thread of its own, and the channels through it."""

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from hmac import compare_digest

from holodeck.lib.llm.endpoint import ProxyFor
from holodeck.lib.tap.channel import Channel, Exchange
from holodeck.lib.tap.exchange import Handler, Request, Response
from holodeck.lib.tap.forwarder import Forwarder
from holodeck.lib.tap.handlers import Recorder, error_response
from holodeck.lib.tap.loopback import LoopbackServer
from holodeck.lib.tap.server import ReceivedRequest
from holodeck.lib.tap.upstreams import Upstream, tap_variables

_NOT_FOUND = "nothing is here"


class Tap:
    """A proxy between agents and the servers of their models.

    It has an event loop in a thread of its own: an agent that blocks the runner's loop while it
    waits for its model waits for the tap.

    Args:
        upstreams: The server of each route, by the route's segment in URLs.
        proxy_for: Returns the proxy for a URL; without it, there is none.
    """

    def __init__(
        self, upstreams: Mapping[str, Upstream], proxy_for: ProxyFor = lambda _: None
    ) -> None:
        self._upstreams = upstreams
        self._token = secrets.token_urlsafe(24)
        self._channels: dict[str, Channel] = {}
        self._forwarder = Forwarder(proxy_for)
        self._answer: Handler = Recorder(self._forwarder, self._open_exchange)
        self._server = LoopbackServer(self._respond, "holodeck-tap", on_close=self._forwarder.close)

    async def start(self) -> None:
        """Listen on a free port. Raises OSError."""
        await self._server.start()

    async def close(self) -> None:
        """Close all connections; may be called twice."""
        await self._server.close()

    def open_channel(self, unused: str) -> Channel:
        """Return a new channel; `unused` says what it means if no request comes through it."""
        channel_id = secrets.token_hex(8)
        url = f"http://127.0.0.1:{self._server.port}/{self._token}/{channel_id}"
        self._channels[channel_id] = Channel(channel_id, url, unused)
        return self._channels[channel_id]

    def variables(self, channel: Channel, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that lead an agent in that environment to the channel."""
        return tap_variables(channel.url, self._upstreams, environment)

    def close_channel(self, channel: Channel) -> None:
        """Refuse further requests through the channel."""
        self._channels.pop(channel.id, None)

    @asynccontextmanager
    async def _respond(self, received: ReceivedRequest) -> AsyncIterator[Response]:
        """Yield the response to a request; 404 without detail for all but the tap's own URLs."""
        request = self._find_request(received)
        if request is None:
            yield error_response(404, "not_found", _NOT_FOUND)
        elif any(name.lower() == b"upgrade" for name, _ in received.headers):
            yield error_response(501, "not_supported", "the tap passes no WebSockets on")
        else:
            async with self._answer(request) as response:
                yield response

    def _find_request(self, received: ReceivedRequest) -> Request | None:
        parts = received.target.split("/", 4)
        if len(parts) < 4 or not compare_digest(parts[1].encode(), self._token.encode()):
            return None
        channel, segment = parts[2], parts[3].partition("?")[0]
        if channel not in self._channels or segment not in self._upstreams:
            return None
        path = received.target.removeprefix("/".join(parts[:3]) + f"/{segment}")
        upstream = self._upstreams[segment]
        return Request(channel, upstream, received.method, path, received.headers, received.body)

    def _open_exchange(self, request: Request) -> Exchange:
        return self._channels[request.channel].open_exchange(request)
