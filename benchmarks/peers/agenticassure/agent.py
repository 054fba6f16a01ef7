"""The agent that agenticassure asks; its adapter takes base URL and key from the environment."""

from agenticassure.adapters.openai import OpenAIAdapter


class Agent(OpenAIAdapter):
    def __init__(self) -> None:
        super().__init__("fake", system_prompt="Do what the user says.", temperature=0)
