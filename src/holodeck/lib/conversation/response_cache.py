"""The response cache: cached calls, what identifies them, and cached users and judges."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from inspect import isclass
from pathlib import PurePath
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from pydantic import BaseModel, SecretStr

from holodeck.errors import ConfigError
from holodeck.lib.conversation.criteria_judge import PROMPTS as JUDGE_PROMPTS
from holodeck.lib.conversation.criteria_judge import CriteriaJudge, require_same_criteria
from holodeck.lib.conversation.messages import AgentRole, Message
from holodeck.lib.conversation.recordings import Recordings, UnreadableRecording
from holodeck.lib.conversation.simulated_user import PROMPTS as USER_PROMPTS
from holodeck.lib.conversation.simulated_user import SimulatedUser
from holodeck.lib.conversation.state import ScenarioState
from holodeck.lib.conversation.types import AgentInput, CriterionResult, EndConversation
from holodeck.lib.conversation.usage import record_cache_hit
from holodeck.lib.judging.judge import Judge
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.spans.evidence import mentions_spans
from holodeck.models.llm import LLMProvider

logger = logging.getLogger(__name__)

Json = Any
_POLL_S = 0.05
"""How often a call checks whether another process has recorded the same response."""
SHARE_S = 300.0
"""How long it waits for that; then it is made, too."""
_SECRET = re.compile(r"(api_?key|token|secret|password|authorization)$", re.IGNORECASE)
_AS_TEXT = (date, time_of_day, timedelta, Decimal, Fraction, UUID, PurePath)
"""Types whose text identifies their values."""
_AGENT_ROLE = "holodeck.lib.conversation.roles.AgentRole"
"""The name of AgentRole in recordings: where it was before it moved, as keys must not change."""


@runtime_checkable
class HasCacheFacts(Protocol):
    """An object that says what its responses depend on."""

    def cache_facts(self) -> Mapping[str, Any]:
        """Return these values by name."""
        ...


class UncacheableValue(ConfigError):
    """A value that cannot be recognized in another run."""


class CacheKey:
    """Converts the values of one call to JSON that is the same in every process.

    Args:
        ids: Ids that are new in every run, with what replaces them.
        ignored: Locations that are left out, such as `client` or `self.calls`.
    """

    def __init__(self, ids: Mapping[str, str], ignored: Iterable[str] = ()) -> None:
        self._ids = dict(ids)
        self._ignored = frozenset(ignored)
        self._tool_calls: dict[str, str] = {}

    def of_values(self, values: Mapping[str, Any], location: str = "") -> dict[str, Json]:
        """Return the JSON of values by name, without secrets and what is ignored."""
        return {
            name: self.of(value, at) for name, at, value in self._cacheable_items(values, location)
        }

    def of_owner(self, owner: Any, location: str) -> Json:
        """Return the JSON of the object that a method belongs to: class and plain attributes."""
        known = {"class": _name(type(owner))}
        if isinstance(owner, HasCacheFacts):
            return {**known, **self.of_values(owner.cache_facts(), location)}
        for name, at, value in self._cacheable_items(getattr(owner, "__dict__", {}), location):
            try:
                known[name] = self.of(value, at)
            except UncacheableValue:
                known[name] = _name(type(value))
        return known

    def of(self, value: Any, location: str) -> Json:  # noqa: PLR0911 - one line for each kind
        """Return the JSON of a value. Raises UncacheableValue if there is none."""
        if isinstance(value, Enum):
            return f"{_name(type(value))}.{value.name}"
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return self._ids.get(value, value)
        if isinstance(value, Mapping):
            # With its type, so that 1 is not "1".
            items = {
                key if isinstance(key, str) else f"{type(key).__name__} {key!r}": item
                for key, item in value.items()
            }
            is_message = isinstance(value.get("role"), str)
            return self.of_values(self._without_ids(items) if is_message else items, location)
        if isinstance(value, list | tuple):
            return [self.of(item, f"{location}.{index}") for index, item in enumerate(value)]
        if isinstance(value, AbstractSet):
            return sorted((self.of(item, location) for item in value), key=json.dumps)
        if isinstance(value, SecretStr):
            return "(secret)"
        return self._of_object(value, location)

    def _of_object(self, value: Any, location: str) -> Json:
        if isinstance(value, HasCacheFacts):
            return {"class": _name(type(value)), **self.of_values(value.cache_facts(), location)}
        if isinstance(value, bytes | bytearray):
            return f"sha256 {hashlib.sha256(value).hexdigest()}"
        if isinstance(value, _AS_TEXT):
            return f"{type(value).__name__} {value}"
        if isclass(value) or "<" not in getattr(value, "__qualname__", "<"):
            return _name(value)
        parts = _parts(value)
        if parts is None:
            raise UncacheableValue(
                location,
                f"a {_name(type(value))} cannot be recognized in the next run; leave it out:"
                f" @scenario.cache(ignore=[{location!r}]), or give it a method cache_facts()",
            )
        return {"class": _name(type(value)), **self.of_values(parts, location)}

    def _without_ids(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return a message without its id, with its tool calls numbered."""
        plain = {key: item for key, item in message.items() if key != "id"}
        answered_call = plain.get("tool_call_id")
        if isinstance(answered_call, str):
            plain["tool_call_id"] = self._number(answered_call)
        calls = plain.get("tool_calls")
        if isinstance(calls, list):
            plain["tool_calls"] = [
                {**call, "id": self._number(call["id"])}
                if isinstance(call, Mapping) and isinstance(call.get("id"), str)
                else call
                for call in calls
            ]
        return plain

    def _number(self, call_id: str) -> str:
        return self._tool_calls.setdefault(call_id, f"call {len(self._tool_calls) + 1}")

    def _cacheable_items(
        self, values: Mapping[str, Any], location: str
    ) -> Iterator[tuple[str, str, Any]]:
        for name, value in values.items():
            at = f"{location}.{name}" if location else name
            if at not in self._ignored and not (location and _SECRET.search(name)):
                yield name, at, value


def _parts(value: Any) -> dict[str, Any] | None:
    """Return what an object is made of; None if that is unknown."""
    if isinstance(value, AgentInput):
        state = value.scenario_state
        parts = {name: getattr(value, name) for name in type(value).model_fields}
        del parts["thread_id"], parts["scenario_state"], parts["propagation_headers"]
        # In this form since the first recordings, whose keys must not change.
        parts["judgment_request"] = value.judgment_request is not None
        parts["judgment_criteria"] = value.judgment_criteria
        if value.judgment_request is not None and value.judgment_request.additional_context:
            parts["additional_context"] = value.judgment_request.additional_context
        return {**parts, "description": state.description} if state is not None else parts
    if isinstance(value, ScenarioState):
        return {
            "description": value.description,
            "current_turn": value.current_turn,
            "messages": value.messages,
        }
    if isinstance(value, BaseModel):
        return dict(value)
    if is_dataclass(value):
        return {column.name: getattr(value, column.name) for column in fields(value)}
    return None


def _name(value: Any) -> str:
    return _AGENT_ROLE if value is AgentRole else f"{value.__module__}.{value.__qualname__}"


def model_cache_facts(llm: LLMProvider) -> dict[str, object]:
    """Return what the responses of a model depend on."""
    names = ("provider", "name", "endpoint", "temperature", "max_tokens", "top_p")
    return {name: getattr(llm, name) for name in names}


@dataclass(frozen=True)
class ResponseCache:
    """Replays recorded responses, and records new ones."""

    recordings: Recordings
    mode: str
    """`auto` calls for what is not recorded, `record` for everything, `replay` for nothing."""
    model: Mapping[str, Any] = field(default_factory=dict)
    """What the responses of the model depend on."""

    async def get(
        self, function: str, arguments: Mapping[str, Any], call: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Return the recorded response, or that of `call`. Raises NotRecorded when replaying.

        Of several that miss the same response at once, one calls and the others wait for it, for
        SHARE_S seconds at most.
        """
        ends = time.monotonic() + SHARE_S
        key = self.recordings.key(function, arguments)
        recorded = await run_in_thread(partial(self._find, key))
        while not recorded:
            with self._try_claim(key) as is_claimed:
                recorded = await run_in_thread(partial(self._find_again, key))
                if (is_claimed or time.monotonic() > ends) and not recorded:
                    response = await call()
                    await run_in_thread(partial(self.recordings.save, key, response))
                    return response
            if not recorded:
                await asyncio.sleep(_POLL_S)
        record_cache_hit()
        return recorded[0]

    def get_blocking(
        self, function: str, arguments: Mapping[str, Any], call: Callable[[], Any]
    ) -> Any:
        """Do the same as `get` for a function that is not async."""
        ends = time.monotonic() + SHARE_S
        key = self.recordings.key(function, arguments)
        recorded = self._find(key)
        while not recorded:
            with self._try_claim(key) as is_claimed:
                recorded = self._find_again(key)
                if (is_claimed or time.monotonic() > ends) and not recorded:
                    response = call()
                    self.recordings.save(key, response)
                    return response
            if not recorded:
                time.sleep(_POLL_S)
        record_cache_hit()
        return recorded[0]

    async def get_for_role(
        self, role: str, call: Callable[[], Awaitable[Any]], **facts: Any
    ) -> Any:
        """Return the response of the model in a role; `given` is what it depends on besides."""
        arguments = CacheKey({}).of_values({"model": dict(self.model), **facts})
        return await self.get(role, arguments, call)

    def _find(self, key: Mapping[str, Any]) -> list[Any]:
        try:
            recorded = [] if self.mode == "record" else self.recordings.find(key)
        except UnreadableRecording as error:
            if self.mode == "replay":
                raise
            logger.warning("%s; the call is made again", error)
            return []
        if not recorded and self.mode == "replay":
            raise self.recordings.not_recorded_error(key)
        return recorded

    def _find_again(self, key: Mapping[str, Any]) -> list[Any]:
        """Return what another process has recorded meanwhile."""
        if self.mode == "record":
            return []
        with suppress(UnreadableRecording):
            return self.recordings.find(key)
        return []

    def _try_claim(self, key: Mapping[str, Any]) -> AbstractContextManager[bool]:
        """Try to be the only caller of the model; when recording, every caller may be."""
        return nullcontext(True) if self.mode == "record" else self.recordings.try_claim(key)


class CachedUser:
    """A simulated user whose messages are cached."""

    def __init__(self, user: SimulatedUser, response_cache: ResponseCache) -> None:
        self.role = user.role
        self._user = user
        self._response_cache = response_cache

    async def call(self, input: AgentInput) -> str | list[Message] | EndConversation:  # noqa: A002 - the engine's name
        returned: str | list[Message] | EndConversation = await self._response_cache.get_for_role(
            "simulated user",
            lambda: self._user.call(input),
            prompts=USER_PROMPTS,
            persona=self._user.persona,
            description=input.scenario_state.description,
            messages=input.messages,
        )
        return returned


class CachedJudge(CriteriaJudge):
    """A judge whose verdicts are cached."""

    def __init__(
        self,
        judge: Judge,
        criteria: Sequence[str] | None,
        response_cache: ResponseCache,
        *,
        optional: Collection[str] = (),
    ) -> None:
        super().__init__(judge, criteria, optional=optional)
        self._response_cache = response_cache

    async def rows(
        self,
        messages: Sequence[Message],
        situation: str,
        criteria: Sequence[str],
        *,
        is_final: bool,
        context: str | None = None,
    ) -> list[CriterionResult] | None:
        # Not in the keys of other verdicts, which were recorded before these existed.
        with_context = {"additional_context": context} if context else {}
        about_spans = {"has_spans": False} if any(map(mentions_spans, criteria)) else {}
        rows: list[CriterionResult] | None = await self._response_cache.get_for_role(
            "judge",
            partial(
                super().rows, messages, situation, criteria, is_final=is_final, context=context
            ),
            prompts=JUDGE_PROMPTS,
            situation=situation,
            criteria=criteria,
            optional=[criterion for criterion in criteria if criterion in self._optional],
            is_final=is_final,
            messages=messages,
            **about_spans,
            **with_context,
        )
        if rows is not None or is_final:
            require_same_criteria(rows or (), criteria)
        return rows
