"""Stubs of agents behind the tap: they replace the results of tools in the next request."""

import asyncio
import json
from collections import defaultdict
from typing import Any

from holodeck.lib.llm.completion import RawToolCall
from holodeck.lib.llm.formats import ReturnedResult, UnreadableBody, results_in_place
from holodeck.lib.support.stubs import TakesCalls
from holodeck.lib.support.text import json_or_none, to_text
from holodeck.lib.tap.reading import TappedExchange


class ReplacedResults:
    """What stubs make of the results of tools that have run, in the requests of a test case.

    Args:
        stubs: Those of the run of the case.
    """

    def __init__(self, stubs: TakesCalls) -> None:
        self.stubs = stubs
        self.exchanges: list[TappedExchange] = []
        """The requests of the case until now, with the tool calls in their responses."""
        self._known: dict[tuple[str, int], ReturnedResult | None] = {}
        """By the id of the call, or the name of the tool, and which of the calls with it; None for
        a result that stays. A request repeats the results of those before it."""

    async def replace_in(self, body: bytes) -> bytes:
        """Return the body of a request with the results as stubs change them.

        A result stays as it is if its call came in no response to the requests of the case.
        """
        try:
            request = json.loads(body)
            results = list(results_in_place(request))
        except (ValueError, AttributeError, UnreadableBody):  # the model's server will refuse it
            return body
        calls = defaultdict[str, list[RawToolCall]](list)
        for exchange in self.exchanges:
            for call in exchange.reader.calls:
                calls[call.id or call.name].append(call)
        counts, is_changed = defaultdict[str, int](int), False
        for result, part, key in results:
            known_as = result.call_id or result.name
            place = (known_as, counts[known_as])
            counts[known_as] += 1
            if place not in self._known and place[1] < len(calls[known_as]):
                self._known[place] = await self._take(calls[known_as][place[1]], result)
            replaced = self._known.get(place)
            if replaced is not None:
                part[key], is_changed = to_text(replaced.result), True
                if "tool_use_id" in part:
                    part["is_error"] = replaced.is_error is True
        return json.dumps(request).encode() if is_changed else body

    async def _take(self, call: RawToolCall, result: ReturnedResult) -> ReturnedResult | None:
        """Return what a stub makes of a result; None if none takes the call."""
        arguments = json_or_none(call.arguments)
        arguments = arguments if isinstance(arguments, dict) else {}
        taken = self.stubs.take(call.name, arguments, has_run=True)
        if taken is None:
            return None
        await asyncio.sleep(taken.wait_seconds)
        try:
            value = taken.result(result.result, _to_plain)
        except Exception as error:  # noqa: BLE001 - what the stub raises, whatever it is
            return ReturnedResult(call.id, call.name, f"Error: {error}", is_error=True)
        return ReturnedResult(call.id, call.name, value, result.is_error)


def _to_plain(content: Any) -> Any:
    """Return the value of a result that is JSON, else its text."""
    value = json_or_none(content) if isinstance(content, str) else None
    return content if value is None else value
