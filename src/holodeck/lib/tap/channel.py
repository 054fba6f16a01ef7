"""Channels: which turn of which conversation a request belongs to, and what its stubs change."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from holodeck.lib.llm.completion import RawToolCall
from holodeck.lib.llm.formats import ReturnedResult, UnreadableBody, results_in_place
from holodeck.lib.llm.request_handler import RequestHandler, request_handler
from holodeck.lib.support.stubs import TakesCalls, current_stubs
from holodeck.lib.support.text import json_or_none, to_text
from holodeck.lib.tap.exchange import Request
from holodeck.lib.tap.reading import TappedExchange
from holodeck.models.results.outcome import ModelRequest

UNFINISHED = "a request of the agent to its model had not ended when the agent answered"
OUT_OF_TURN = (
    "the agent sent requests to its model while no turn was under way, so that its requests cannot"
    " be told apart"
)
AMBIGUOUS = "several turns were under way, so that their requests cannot be told apart"
EARLIER_WORK = "work of an earlier turn was not over, so that the requests cannot be told apart"
BROKEN_OFF = "a response of the model broke off"
NO_CONVERSATION = "of the requests through the tap, none asked a model for an answer"


@dataclass(eq=False)
class TappedTurn:
    """What the tap saw of a turn; what it requested is known once the turn is over."""

    exchanges: list[TappedExchange] = field(default_factory=list)
    handler: RequestHandler | None = field(default_factory=request_handler)
    """What answers the requests of the running case; None leaves them to the model alone."""
    stubs: TakesCalls | None = field(default_factory=current_stubs)
    """What takes the calls of tools in the running case; None if they all run."""
    requests: Sequence[ModelRequest] = ()
    """The requests to models."""
    calls: Sequence[tuple[RawToolCall, ReturnedResult | None]] = ()
    """The tool calls that models requested, in order, each with its result if that came back;
    none if there is a `problem`."""
    problem: str | None = None
    """Why it is not known whether these are all requests of the turn, and no others."""

    def end(self, unused: str) -> None:
        """Read what the requests tell; `unused` says what it means if there was none."""
        if self.problem is not None:  # the requests may be those of another turn
            return
        self.requests = [
            exchange.model_request for exchange in self.exchanges if exchange.calls_model
        ]
        self.problem = self._find_problem(unused)
        if self.problem is None:
            results = self._results()
            calls = [call for exchange in self.exchanges for call in exchange.reader.calls]
            self.calls = [(call, results.get(id(call))) for call in calls]

    def _find_problem(self, unused: str) -> str | None:
        if not self.exchanges:
            return unused
        for exchange in self.exchanges:
            if exchange.problem is not None:
                return exchange.problem
            if exchange.is_under_way:
                return UNFINISHED
            if not exchange.is_readable and exchange.status is not None:
                return BROKEN_OFF
        if not any(exchange.may_request_tools for exchange in self.exchanges):
            return NO_CONVERSATION
        return None

    def _results(self) -> dict[int, ReturnedResult]:
        """Return the results of the calls of this turn, by the identity of the call.

        A request repeats all results of the conversation, so each is taken once. Where ids repeat,
        the latest results belong to the latest calls.
        """
        calls = defaultdict[str, list[RawToolCall]](list)
        found = dict[int, ReturnedResult]()
        for exchange in self.exchanges:
            told = defaultdict[str, list[ReturnedResult]](list)
            for result in exchange.results:
                told[result.call_id or result.name].append(result)
            for key, results in told.items():
                for call, result in zip(reversed(calls[key]), reversed(results), strict=False):
                    found.setdefault(id(call), result)
            for call in exchange.reader.calls:
                calls[call.id or call.name].append(call)
            for result in exchange.reader.results:
                for call in calls[result.call_id][-1:]:
                    found.setdefault(id(call), result)
        return found


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


class Channel:
    """A path of the tap; its requests belong to the turn that is under way.

    Args:
        channel_id: Its segment in the tap's URLs.
        url: The tap's URL with that segment.
        unused: What it means if no request came in a turn.
        replaces_results: Whether stubs replace the results of tools in requests, because the tools
            run where nothing else can take their calls.
    """

    def __init__(
        self, channel_id: str, url: str, unused: str, *, replaces_results: bool = False
    ) -> None:
        self.id = channel_id
        self.url = url
        self._unused = unused
        self._replaces_results = replaces_results
        self._replaced: ReplacedResults | None = None
        """Of the case that had the last turn; None if it has no stubs."""
        self._lock = Lock()
        self._turns: list[TappedTurn] = []
        self._left_over: list[TappedExchange] = []
        """Requests that were not over when their turns ended."""
        self._has_begun = False
        self._is_out_of_turn = False

    async def with_stubs(self, request: Request) -> Request:
        """Return a request with the results of tools as the stubs of the running case have them."""
        with self._lock:
            stubs = self._turns[-1].stubs if self._turns and self._replaces_results else None
            if stubs is None:
                self._replaced = None
                return request
            if self._replaced is None or self._replaced.stubs is not stubs:
                self._replaced = ReplacedResults(stubs)
        return replace(request, body=await self._replaced.replace_in(request.body))

    def open_exchange(self, request: Request) -> tuple[TappedExchange, RequestHandler | None]:
        """Return the exchange that a request begins, and what answers it.

        It belongs to the turn under way.
        """
        exchange = TappedExchange(request, self._lock)
        with self._lock:
            handler = self._turns[-1].handler if self._turns else None
            if self._replaced is not None:
                self._replaced.exchanges.append(exchange)
            for turn in self._turns:
                turn.exchanges.append(exchange)
            is_stray = self._has_begun and not self._turns
            self._is_out_of_turn |= is_stray and exchange.may_request_tools
        return exchange, handler

    @contextmanager
    def turn(self) -> Iterator[TappedTurn]:
        """Collect the requests of a turn; what they tell is known after the block."""
        turn = TappedTurn()
        with self._lock:
            self._has_begun = True
            self._turns.append(turn)
            if len(self._turns) > 1:
                for open_turn in self._turns:
                    open_turn.problem = AMBIGUOUS
            elif any(exchange.is_under_way for exchange in self._left_over):
                turn.problem = EARLIER_WORK
        try:
            yield turn
        finally:
            with self._lock:
                self._turns.remove(turn)
                seen = (*self._left_over, *turn.exchanges)
                self._left_over = [exchange for exchange in seen if exchange.is_under_way]
                if self._is_out_of_turn:
                    turn.problem = turn.problem or OUT_OF_TURN
                turn.end(self._unused)
