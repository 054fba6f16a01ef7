"""Responses in pieces; adapters of agent frameworks use it in environments without holodeck."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any


async def pieces_of(
    run: Callable[[Callable[[str], None]], Coroutine[Any, Any, str | None]],
) -> AsyncGenerator[str, None]:
    """Yield the pieces of text that `run` hands to its argument, or else the text that it returns.

    Raises what `run` raises. It is cancelled if the generator is closed before.
    """
    pieces: asyncio.Queue[str | None] = asyncio.Queue()
    task = asyncio.create_task(run(pieces.put_nowait))
    task.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        has_pieces = False
        while (piece := await pieces.get()) is not None:
            has_pieces = True
            yield piece
        text = await task
        if text is not None and not has_pieces:
            yield text
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
