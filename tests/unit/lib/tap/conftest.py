"""A tap in front of the fake server, and clients of providers that know nothing of it."""

from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from fakes import FakeOpenAI
from holodeck.lib.tap.channel import Channel
from holodeck.lib.tap.exchange import find_upstreams
from holodeck.lib.tap.tap import Tap

UNUSED = "no request came"


@dataclass
class Tapped:
    """A tap, its upstream, and one channel."""

    tap: Tap
    server: FakeOpenAI
    channel: Channel

    @property
    def variables(self):
        return self.tap.variables(self.channel, {})


@asynccontextmanager
async def tapping(server, **environment):
    """A tap whose upstreams are the server."""
    of_server = {
        "OPENAI_BASE_URL": server.url,
        "AZURE_OPENAI_ENDPOINT": server.root,
        "ANTHROPIC_BASE_URL": server.root,
        "OLLAMA_HOST": server.root,
    }
    tap = Tap(find_upstreams(of_server | environment))
    await tap.start()
    try:
        yield Tapped(tap, server, tap.open_channel(UNUSED))
    finally:
        await tap.close()


@pytest.fixture
async def tapped(fake_openai):
    async with tapping(fake_openai) as found:
        yield found
