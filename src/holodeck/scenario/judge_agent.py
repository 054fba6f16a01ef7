"""The judge of a scenario."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from holodeck.errors import ConfigError
from holodeck.lib.conversation.criteria_judge import (
    PROMPTS,
    CriteriaJudge,
    require_same_criteria,
)
from holodeck.lib.conversation.messages import AgentRole, Message
from holodeck.lib.conversation.participants import is_list_of_criteria
from holodeck.lib.conversation.response_cache import model_cache_facts
from holodeck.lib.conversation.types import AgentInput, AgentReturnTypes, ScenarioResult
from holodeck.lib.judging.judges import Judges
from holodeck.scenario.agent_adapter import AgentAdapter
from holodeck.scenario.caching import cache
from holodeck.scenario.config import Held, asked, model_for, unless_keyless


class JudgeAgent(AgentAdapter):
    """Watches a conversation and decides by criteria whether the agent passes.

    Args:
        criteria: What must hold; may be left out if the script gives them: `judge([…])`.
        model: Such as `openai/gpt-4.1`; the configured default if not given.
        api_base: Where the model is served.
        api_key: Its key; else the provider's own variable counts.
        temperature: 0 unless said.
        max_tokens: Most tokens of one answer.
        system_prompt: What the judge is told instead of our own words.

    Raises:
        ConfigError: There is no model, or no criterion in the list.
    """

    role = AgentRole.JUDGE

    def __init__(
        self,
        *,
        criteria: Sequence[str] | None = None,
        model: str | None = None,
        api_base: str | None = None,
        api_key: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        system_prompt: str | None = None,
    ) -> None:
        if criteria is not None:
            _refuse_empty(criteria)
        self.criteria: Sequence[str] | None = criteria
        self.system_prompt = system_prompt
        llm = model_for(
            "JudgeAgent",
            model,
            api_base=api_base,
            api_key=api_key,
            temperature=temperature,
            max_tokens=max_tokens,
        )
        judges = Judges()
        self._judge = unless_keyless(judges.of, llm)
        self._llm = llm
        self._held = Held(judges.close)

    def opened(self) -> AbstractAsyncContextManager[None]:
        """The connections of a run."""
        return self._held.opened()

    async def call(self, input: AgentInput) -> AgentReturnTypes:  # noqa: A002 - the name is public API
        """The verdict; an empty list while the conversation has to go on."""
        has_nothing_to_watch = not (self.criteria or input.judgment_request)
        if has_nothing_to_watch and input.scenario_state.has_checkpoints:
            return []
        answer = await self._decided(input)
        if isinstance(answer, ScenarioResult):
            require_same_criteria(answer.criteria, input.judgment_criteria or self.criteria or [])
            # One that was kept has the messages of its own run.
            return answer.model_copy(update={"messages": input.messages})
        return answer

    @cache()
    async def _decided(self, input: AgentInput) -> list[Message] | ScenarioResult:  # noqa: A002
        judge = asked(self._judge, self._llm, "JudgeAgent")
        part = CriteriaJudge(judge, self.criteria, instructions=self.system_prompt)
        return await part.call(input)

    def cache_facts(self) -> dict[str, object]:
        """What its verdicts depend on."""
        own = PROMPTS if self.system_prompt is None else (self.system_prompt, *PROMPTS[1:])
        return {"model": model_cache_facts(self._llm), "prompts": own, "criteria": self.criteria}


def _refuse_empty(criteria: Sequence[str]) -> None:
    if isinstance(criteria, str):
        raise ConfigError("JudgeAgent.criteria", "is one text; write a list: criteria=['…']")
    if not is_list_of_criteria(criteria):
        raise ConfigError(
            "JudgeAgent.criteria",
            f"{list(criteria)!r} holds nothing to judge by; write one criterion or more, none of"
            " them empty, or leave it out and write judge([…]) in the script",
        )
