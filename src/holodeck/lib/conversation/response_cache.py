"""Calls whose answers are kept: given again, asked for anew, or missed."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from holodeck.lib.conversation.cache_key import CacheKey
from holodeck.lib.conversation.call_usage import record_cache_hit
from holodeck.lib.conversation.criteria_judge import PROMPTS as JUDGE_PROMPTS
from holodeck.lib.conversation.criteria_judge import CriteriaJudge, require_same_criteria
from holodeck.lib.conversation.recordings import Recordings
from holodeck.lib.conversation.roles import Message
from holodeck.lib.conversation.simulated_user import PROMPTS as USER_PROMPTS
from holodeck.lib.conversation.simulated_user import SimulatedUser
from holodeck.lib.conversation.types import AgentInput, CriterionResult, EndConversation
from holodeck.lib.judging.judge import Judge
from holodeck.lib.threads import in_thread
from holodeck.models.llm import LLMProvider


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
        for kept in await in_thread(self._kept):
            record_cache_hit()
            return kept
        answer = await ask()
        await in_thread(partial(self.recordings.keep, self.key, answer))
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
