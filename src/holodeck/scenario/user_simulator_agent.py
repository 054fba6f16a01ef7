"""The simulated user of a scenario."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from holodeck.errors import ConfigError
from holodeck.lib.conversation.messages import AgentRole, Message
from holodeck.lib.conversation.response_cache import model_cache_facts
from holodeck.lib.conversation.simulated_user import PROMPTS, Persona, SimulatedUser
from holodeck.lib.conversation.types import AgentInput, EndConversation
from holodeck.lib.judging.judge import Judges
from holodeck.scenario.agent_adapter import AgentAdapter
from holodeck.scenario.caching import cache
from holodeck.scenario.config import ModelClient, model_for


class UserSimulatorAgent(AgentAdapter):
    """Plays the user of the scenario's description.

    Args:
        model: Provider and name, such as `openai/gpt-4.1`; the configured default if not given.
        api_base: The URL of the model's endpoint.
        api_key: Its key; the default is the provider's own variable.
        temperature: The default is 0.
        max_tokens: Most tokens of one answer.
        system_prompt: Replaces our instructions.
        persona: How the user is and writes.
        facts: All that the user may state about themselves.
        opening: The first message, verbatim.
        agent_first: Whether the agent speaks first.
        language: The language the user writes.

    Raises:
        ConfigError: There is no model.
    """

    role = AgentRole.USER

    def __init__(  # noqa: PLR0913 - as documented
        self,
        *,
        model: str | None = None,
        api_base: str | None = None,
        api_key: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        system_prompt: str | None = None,
        persona: str | None = None,
        facts: Sequence[str] = (),
        opening: str | None = None,
        agent_first: bool = False,
        language: str | None = None,
    ) -> None:
        if isinstance(facts, str):
            raise ConfigError("UserSimulatorAgent.facts", "is one text; write a list: facts=['…']")
        llm = model_for(
            "UserSimulatorAgent",
            model,
            api_base=api_base,
            api_key=api_key,
            temperature=temperature,
            max_tokens=max_tokens,
        )
        self._persona = Persona(
            persona=persona,
            facts=tuple(facts),
            opening=opening,
            agent_first=agent_first,
            language=language,
        )
        self._prompt = system_prompt
        self._client = ModelClient(
            "UserSimulatorAgent", llm, Judges().model, lambda client: client.close()
        )

    def keep_open(self) -> AbstractAsyncContextManager[None]:
        """Keep the connections open during a run."""
        return self._client.keep_open()

    @cache()
    async def call(self, input: AgentInput) -> str | list[Message] | EndConversation:  # type: ignore[override]  # noqa: A002 - a user may leave, and the name is public API
        """Return the user's next message, or the end of the conversation."""
        model = self._client.get()
        return await SimulatedUser(model, self._persona, instructions=self._prompt).call(input)

    def cache_facts(self) -> dict[str, object]:
        """Return what the messages depend on."""
        own = PROMPTS if self._prompt is None else (self._prompt, *PROMPTS[1:])
        return {
            "model": model_cache_facts(self._client.llm),
            "prompts": own,
            "persona": self._persona,
        }
