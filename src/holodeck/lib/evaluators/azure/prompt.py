"""The prompts of Azure AI Evaluation, sent by the judges of holodeck.

The library fills its template first and then looks for roles and pictures in the text, so an answer
with a line `system:` would become an instruction to the judge. Here the template is taken apart
while it holds markers, and what a case brings is put in afterwards, as nothing but text.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

JsonObject = dict[str, Any]
Messages = Sequence[Mapping[str, Any]]
Ask = Callable[[Messages], Awaitable[JsonObject]]
"""Gives the verdict that a judge answers to messages."""

_MARKER = re.compile(r"<<holodeck:(\w+)>>")


class Template(Protocol):
    """A prompt of the library."""

    def render(self, **inputs: Any) -> Messages:
        """Its messages."""
        ...


class JudgedPrompt:
    """Stands where the library would send its prompt with a client and retries of its own."""

    def __init__(self, template: Template, ask: Ask) -> None:
        self._template = template
        self._ask = ask
        self._parts: dict[frozenset[str], Messages] = {}

    async def __call__(self, *, timeout: float | None = None, **inputs: Any) -> JsonObject:  # noqa: ARG002, ASYNC109 - the library's signature; the limit is ours
        """The judge's verdict, as the library wants it. Raises EvaluationError."""
        return {"llm_output": await self._ask(self.messages(inputs))}

    def messages(self, inputs: Mapping[str, Any]) -> list[JsonObject]:
        """The prompt about these inputs."""
        texts = {name: str(value) for name, value in inputs.items()}
        return [
            {
                "role": part["role"],
                "content": _MARKER.sub(lambda found: texts[found[1]], part["content"]),
            }
            for part in self._marked(frozenset(inputs))
        ]

    def _marked(self, names: frozenset[str]) -> Messages:
        """The prompt with markers for inputs; taken apart once."""
        if names not in self._parts:
            markers = {name: f"<<holodeck:{name}>>" for name in names}
            self._parts[names] = self._template.render(**markers)
        return self._parts[names]
