"""Prompt tools: a template is filled with the arguments, and a model answers it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from holodeck.errors import ConfigError, HoloDeckError
from holodeck.lib.judging.judge import validate_against_schema
from holodeck.lib.judging.judges import Judges
from holodeck.lib.llm.model import ChatModel, ChatRequest, ChatResponse, ask_model
from holodeck.lib.support.json_schemas import object_schema
from holodeck.lib.support.text import did_you_mean, to_text
from holodeck.lib.tools.base import Tool, ToolArgumentError, ToolReply
from holodeck.lib.tools.toolbox import ToolContext
from holodeck.models.results.outcome import ModelCost
from holodeck.models.test_case import LIKE_PLACEHOLDER, PLACEHOLDER
from holodeck.models.token_usage import TokenUsage
from holodeck.models.tool import PromptTool

CUT = "\n[The answer ended at the limit of tokens.]"
EMPTY = "the model {name} answered nothing"


@dataclass(frozen=True)
class PromptTemplate:
    """A prompt with a `{{name}}` for each parameter."""

    text: str

    @classmethod
    def of(cls, text: str, parameters: Mapping[str, Any], location: str) -> "PromptTemplate":
        """Return the template of a text.

        Raises ConfigError if a placeholder is malformed or names no parameter, or if a parameter
        has no placeholder.
        """
        for match in LIKE_PLACEHOLDER.finditer(text):
            name = PLACEHOLDER.fullmatch(match[0])
            line = text.count("\n", 0, match.start()) + 1
            place = f"line {line} of the prompt: " if "\n" in text.strip() else ""
            if name is None:
                raise ConfigError(
                    location,
                    f"{place}invalid placeholder {match[0]!r}; write {{{{name}}}}, or make text"
                    " with such braces the value of a parameter",
                )
            if name[1] not in parameters:
                known = f"; known: {', '.join(parameters)}"
                hint = did_you_mean(name[1], parameters, known)
                raise ConfigError(location, f"{place}unknown parameter {name[0]}{hint}")
        used = set(PLACEHOLDER.findall(text))
        unused = next((parameter for parameter in parameters if parameter not in used), None)
        if unused is not None:
            raise ConfigError(
                location,
                f"the parameter {unused!r} is not used; write {{{{{unused}}}}} in the prompt, or"
                " remove it from 'parameters'",
            )
        return cls(text)

    def fill(self, values: Mapping[str, Any]) -> str:
        """Return the prompt with these values; placeholders in values stay as they are."""
        return PLACEHOLDER.sub(lambda match: to_text(values[match[1]]), self.text)


def prompt_schema(config: PromptTool) -> dict[str, Any]:
    """Return the JSON schema of the arguments."""
    required = [name for name, schema in config.parameters.items() if "default" not in schema]
    return {**object_schema(**config.parameters), "required": required}


class PromptSource:
    """The tool of a prompt.

    Args:
        config: The entry of the agent.yaml.
        context: The agent, whose model answers unless the tool has its own.
    """

    def __init__(self, config: PromptTool, context: ToolContext) -> None:
        self._config = config
        self._context = context
        self._model: ChatModel | None = None

    async def open(self) -> Sequence[Tool]:
        """Return the tool. Raises ConfigError."""
        config, location = self._config, f"tools.{self._config.name}"
        llm = config.model or self._context.agent.model
        if llm is None:
            raise ConfigError(f"{location}.model", "is missing, and the agent has no model")
        text = self._context.read_prompt(config)
        template = PromptTemplate.of(text, config.parameters, location)
        judges = Judges(self._context.execution, self._context.base_dir)
        self._model = judges.chat_model(llm, "tool")
        return [
            Tool(
                name=config.name,
                description=config.description,
                parameters=prompt_schema(config),
                call=partial(_answer, config, template, self._model),
                check=partial(_require_fitting, config),
                timeout=config.timeout,
                source=config.type,
            )
        ]

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        if self._model is not None:
            await self._model.close()


def _require_fitting(config: PromptTool, arguments: dict[str, Any]) -> None:
    try:
        validate_against_schema(arguments, prompt_schema(config))
    except ValueError as error:
        raise ToolArgumentError(str(error)) from error


async def _answer(
    config: PromptTool, template: PromptTemplate, model: ChatModel, arguments: dict[str, Any]
) -> ToolReply:
    """Return the model's answer and what it cost, also if there is none."""
    _require_fitting(config, arguments)
    defaults = {name: schema.get("default") for name, schema in config.parameters.items()}
    prompt = template.fill({**defaults, **arguments})
    costs: list[ModelCost] = []

    def note(requests: int, response: ChatResponse | None) -> None:
        usage = TokenUsage() if response is None else response.usage
        failed = requests - (response is not None)
        costs.append(ModelCost(model=model.name, calls=requests, failed=failed, tokens=usage))

    request = ChatRequest([{"role": "user", "content": prompt}])
    try:
        response = await ask_model(model, request, note)
    except HoloDeckError as error:
        return ToolReply(f"the model {model.name}: {error}", is_error=True, model_cost=costs[0])
    text = response.text + CUT if response.is_cut else response.text
    if not response.text.strip():
        return ToolReply(EMPTY.format(name=model.name), is_error=True, model_cost=costs[0])
    return ToolReply(text, model_cost=costs[0])
