"""Calls whose answers are kept: given again, asked for anew, or missed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, time, timedelta
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
from holodeck.lib.conversation.messages import Message
from holodeck.lib.conversation.recordings import Recordings
from holodeck.lib.conversation.simulated_user import PROMPTS as USER_PROMPTS
from holodeck.lib.conversation.simulated_user import SimulatedUser
from holodeck.lib.conversation.state import ScenarioState
from holodeck.lib.conversation.types import AgentInput, CriterionResult, EndConversation
from holodeck.lib.conversation.usage import record_cache_hit
from holodeck.lib.judging.judge import Judge
from holodeck.lib.threads import run_in_thread
from holodeck.models.llm import LLMProvider

Json = Any
_SECRET = re.compile(r"(api_?key|token|secret|password|authorization)$", re.IGNORECASE)
_WORDS = (date, time, timedelta, Decimal, Fraction, UUID, PurePath)
"""Values that their text says all of."""


@runtime_checkable
class HasCacheFacts(Protocol):
    """An object that says itself what its answers depend on."""

    def cache_facts(self) -> Mapping[str, Any]:
        """What matters, by name."""
        ...


class UncacheableValue(ConfigError):
    """A value that cannot be recognised in another run."""


class CacheKey:
    """Turns the values of one call into JSON that is the same in every process.

    Args:
        ids: Names that are new in every run, with what stands for them.
        ignored: Places that do not count, such as `client` or `self.calls`.
    """

    def __init__(self, ids: Mapping[str, str], ignored: Iterable[str] = ()) -> None:
        self._ids = dict(ids)
        self._ignored = frozenset(ignored)
        self._tool_calls: dict[str, str] = {}

    def named(self, values: Mapping[str, Any], place: str = "") -> dict[str, Json]:
        """The facts of values by name; secrets and what is ignored are left out."""
        return {name: self.of(value, at) for name, at, value in self._counting(values, place)}

    def of_owner(self, owner: Any, place: str) -> Json:
        """The facts of the object that a method belongs to: its class, and its plain attributes."""
        known = {"class": _name(type(owner))}
        if isinstance(owner, HasCacheFacts):
            return {**known, **self.named(owner.cache_facts(), place)}
        for name, at, value in self._counting(getattr(owner, "__dict__", {}), place):
            try:
                known[name] = self.of(value, at)
            except UncacheableValue:
                known[name] = _name(type(value))
        return known

    def of(self, value: Any, place: str) -> Json:  # noqa: PLR0911 - one line for each kind
        """The facts of a value. Raises Opaque for one that has none."""
        if isinstance(value, Enum):
            return f"{_name(type(value))}.{value.name}"
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return self._ids.get(value, value)
        if isinstance(value, Mapping):
            return self._of_mapping(value, place)
        if isinstance(value, list | tuple):
            return [self.of(one, f"{place}.{at}") for at, one in enumerate(value)]
        if isinstance(value, Set):
            return sorted((self.of(one, place) for one in value), key=json.dumps)
        if isinstance(value, SecretStr):
            return "(secret)"
        return self._of_object(value, place)

    def _of_mapping(self, value: Mapping[Any, Any], place: str) -> Json:
        # With its type, or 1 would be taken for "1".
        known = {
            key if isinstance(key, str) else f"{type(key).__name__} {key!r}": one
            for key, one in value.items()
        }
        is_message = isinstance(value.get("role"), str)
        return self.named(self._without_ids(known) if is_message else known, place)

    def _of_object(self, value: Any, place: str) -> Json:
        if isinstance(value, HasCacheFacts):
            return {"class": _name(type(value)), **self.named(value.cache_facts(), place)}
        if isinstance(value, bytes | bytearray):
            return f"sha256 {hashlib.sha256(value).hexdigest()}"
        if isinstance(value, _WORDS):
            return f"{type(value).__name__} {value}"
        if isclass(value) or "<" not in getattr(value, "__qualname__", "<"):
            return _name(value)
        parts = _parts(value)
        if parts is None:
            raise UncacheableValue(
                place,
                f"{_name(type(value))} cannot be told from another one in the next run; leave it"
                f" out: @scenario.cache(ignore=[{place!r}]), or give it a method cache_facts()",
            )
        return {"class": _name(type(value)), **self.named(parts, place)}

    def _without_ids(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """A message whose tool calls are numbered and which has no name of its own."""
        plain = {key: one for key, one in message.items() if key != "id"}
        answers = plain.get("tool_call_id")
        if isinstance(answers, str):
            plain["tool_call_id"] = self._number(answers)
        calls = plain.get("tool_calls")
        if isinstance(calls, list):
            plain["tool_calls"] = [self._numbered(call) for call in calls]
        return plain

    def _numbered(self, call: Any) -> Any:
        if isinstance(call, Mapping) and isinstance(call.get("id"), str):
            return {**call, "id": self._number(call["id"])}
        return call

    def _number(self, name: str) -> str:
        return self._tool_calls.setdefault(name, f"call {len(self._tool_calls) + 1}")

    def _counting(self, values: Mapping[str, Any], place: str) -> Iterator[tuple[str, str, Any]]:
        for name, value in values.items():
            at = f"{place}.{name}" if place else name
            if at not in self._ignored and not (place and _SECRET.search(name)):
                yield name, at, value


def _parts(value: Any) -> dict[str, Any] | None:
    """What a value is made of; None if that cannot be known."""
    if isinstance(value, AgentInput):
        state = value.scenario_state
        given = {name: getattr(value, name) for name in type(value).model_fields}
        del given["thread_id"], given["scenario_state"]
        return {**given, "description": state.description} if state is not None else given
    if isinstance(value, ScenarioState):
        return {
            "description": value.description,
            "current_turn": value.current_turn,
            "messages": value.messages,
        }
    if isinstance(value, BaseModel):
        return dict(value)
    if is_dataclass(value):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return None


def _name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def model_cache_facts(llm: LLMProvider) -> dict[str, object]:
    """What answers of a model depend on."""
    names = ("provider", "name", "endpoint", "temperature", "max_tokens", "top_p")
    return {name: getattr(llm, name) for name in names}


@dataclass(frozen=True)
class CachedCall:
    """A call whose answer is kept or given again."""

    recordings: Recordings
    key: Mapping[str, Any]
    mode: str
    """`auto` asks for what is not kept yet, `record` for everything, `replay` for nothing."""

    async def answer(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The answer. Raises NotRecorded where none is to be asked for."""
        for kept in await run_in_thread(self._kept):
            record_cache_hit()
            return kept
        answer = await ask()
        await run_in_thread(partial(self.recordings.keep, self.key, answer))
        return answer

    def answer_now(self, ask: Callable[[], Any]) -> Any:
        """The same for what blocks."""
        for kept in self._kept():
            record_cache_hit()
            return kept
        answer = ask()
        self.recordings.keep(self.key, answer)
        return answer

    def _kept(self) -> list[Any]:
        found = [] if self.mode == "record" else self.recordings.find(self.key)
        if not found and self.mode == "replay":
            raise self.recordings.miss(self.key)
        return found


@dataclass(frozen=True)
class ResponseCache:
    """Keeps what one model says in a case."""

    recordings: Recordings
    mode: str
    model: Mapping[str, Any]
    """What answers of the model depend on."""

    def call(self, role: str, **given: Any) -> CachedCall:
        """A call of the role with all that its answer depends on besides the model."""
        facts = CacheKey({}).named({"model": dict(self.model), **given})
        return CachedCall(self.recordings, self.recordings.key(role, facts), self.mode)


class CachedUser:
    """A simulated user whose words are kept.

    Args:
        user: Who speaks where nothing is kept.
        keeper: Who keeps it.
    """

    def __init__(self, user: SimulatedUser, response_cache: ResponseCache) -> None:
        self.role = user.role
        self._user = user
        self._response_cache = response_cache

    async def call(self, input: AgentInput) -> str | list[Message] | EndConversation:  # noqa: A002 - the engine's name
        """The user's next message, or the end of the conversation."""
        kept = self._response_cache.call(
            "simulated user",
            prompts=USER_PROMPTS,
            persona=self._user.persona,
            description=input.scenario_state.description,
            messages=input.messages,
        )
        said: str | list[Message] | EndConversation
        said = await kept.answer(lambda: self._user.call(input))
        return said


class CachedJudge(CriteriaJudge):
    """A judge whose verdicts are kept.

    Args:
        judge: Who is asked where nothing is kept.
        criteria: What must hold.
        keeper: Who keeps the verdicts.
        optional: Those of the criteria that are reported only.
    """

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
    ) -> list[CriterionResult] | None:
        """A row for each criterion; None while the conversation has to go on, if it may."""
        kept = self._response_cache.call(
            "judge",
            prompts=JUDGE_PROMPTS,
            situation=situation,
            criteria=criteria,
            optional=[one for one in criteria if one in self._optional],
            is_final=is_final,
            messages=messages,
        )
        ask = partial(super().rows, messages, situation, criteria, is_final=is_final)
        rows: list[CriterionResult] | None = await kept.answer(ask)
        if rows is not None or is_final:
            require_same_criteria(rows or (), criteria)
        return rows
