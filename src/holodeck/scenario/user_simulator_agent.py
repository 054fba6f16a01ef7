"""The simulated user of a scenario."""

from collections.abc import Sequence
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.simulated_user import PROMPTS, Persona, SimulatedUser
from holodeck.lib.conversation.types import AgentInput, EndConversation
from holodeck.models.cases.messages import Message
from holodeck.scenario.agent_adapter import ModelAgent
from holodeck.scenario.cache import scenario_cache


class UserSimulatorAgent(ModelAgent):
    """Plays the user of the scenario's description.

    Args:
        model: Provider and name, such as `openai/gpt-4.1`; the configured default if not given.
        api_base: The URL of the model's endpoint.
        api_key: Its key; the default is the provider's own variable.
        temperature: The default is 0.
        max_tokens: Most tokens of an answer.
        system_prompt: Replaces our instructions.
        persona: How the user is and writes.
        facts: All that the user may state about themselves.
        opening: The first message, verbatim.
        agent_first: Whether the agent speaks first.
        language: The language the user writes.
        model_arguments: Further arguments of the model, by the names of OpenAI and LiteLLM:
            `timeout`, `num_retries`, `headers`, `client`, `top_p`, `seed`, `extra_body`, …

    Raises:
        ConfigError: There is no model.
    """

    role = AgentRole.USER
    persona: str | None = None
    facts: Sequence[str] = ()
    opening: str | None = None
    agent_first: bool = False
    language: str | None = None

    def __init__(
        self,
        *,
        persona: str | None = None,
        facts: Sequence[str] = (),
        opening: str | None = None,
        agent_first: bool = False,
        language: str | None = None,
        **model_arguments: Any,
    ) -> None:
        if isinstance(facts, str):
            raise ConfigError("UserSimulatorAgent.facts", "is one text; write a list: facts=['…']")
        super().__init__(**model_arguments)
        self.persona = persona
        self.facts = tuple(facts)
        self.opening = opening
        self.agent_first = agent_first
        self.language = language

    @property
    def _persona(self) -> Persona:
        names = ("persona", "facts", "opening", "agent_first", "language")
        return Persona(**{name: getattr(self, name) for name in names})

    @scenario_cache()
    async def call(self, input: AgentInput) -> str | list[Message] | EndConversation:  # type: ignore[override]  # noqa: A002 - a user may leave, and the name is public API
        """Return the user's next message, or the end of the conversation."""
        model = self._client.get()
        return await SimulatedUser(model, self._persona, instructions=self.system_prompt).call(
            input
        )

    def cache_facts(self) -> dict[str, object]:
        """Return what the messages depend on."""
        return self._facts(PROMPTS, persona=self._persona)
