"""Runnables of LangChain other than graphs: models, `prompt | model`, chains that end in text.

`partial(chain.ainvoke, config={…})` says how to run one, as `chain.with_config(…)` does.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from holodeck.lib.backends.frameworks.base import (
    ALL,
    FrameworkAdapter,
    FrameworkError,
    StreamingSession,
    TurnRecord,
    check_options,
    split_run,
)
from holodeck.lib.backends.frameworks.langchain.callbacks import (
    LangChainTurnReader,
    callback_handler,
    config_with,
    ids_of,
)

if TYPE_CHECKING:
    from holodeck.lib.backends.base import Message

_PARTS = ("BaseTool", "BasePromptTemplate", "BaseOutputParser", "BaseRetriever")
"""Runnables that are parts of an agent."""


def adapt(value: object) -> "RunnableAdapter | None":
    """Return the adapter of a runnable; None for anything else, such as a tool.

    Raises FrameworkError if it takes an input that a test case does not have.
    """
    runnable, options = split_run(value)
    kinds = {base.__name__ for base in type(runnable).__mro__}
    if "Runnable" not in kinds or kinds.intersection(_PARTS):
        return None
    check_options(options, "ainvoke", "config")
    return RunnableAdapter(runnable, options)


@dataclass(frozen=True)
class Input:
    """How a runnable takes a message, and those before it."""

    text_key: str | None = None
    """Of a mapping: where the message belongs; None if it comes with the others, or alone."""
    history_key: str | None = None
    """Of a mapping: where earlier messages belong, or all of them without `text_key`."""
    takes_text: bool = False
    """Whether it takes the text of a single message."""

    def build(self, history: Sequence[Any], message: str) -> Any:
        """Return the input. Raises FrameworkError if earlier messages would be lost."""
        from langchain_core.messages import HumanMessage

        if history and (self.takes_text or (self.text_key and not self.history_key)):
            raise FrameworkError(
                "the runnable takes no earlier messages, so that it has no second turn; give its"
                ' prompt a place for them: ("placeholder", "{messages}")'
            )
        if self.takes_text:
            return message
        every = [*history, HumanMessage(message)]
        if self.text_key is None:
            return every if self.history_key is None else {self.history_key: every}
        earlier = {self.history_key: list(history)} if self.history_key else {}
        return {self.text_key: message, **earlier}


def _input_of(runnable: Any) -> Input:
    """Return how the runnable takes its input, from the schema that it tells."""
    schema = runnable.get_input_jsonschema()
    properties: Mapping[str, Any] = schema.get("properties", {})
    if "messages" in properties and {"messages"}.issuperset(schema.get("required", ())):
        return Input(history_key="messages")
    texts = [key for key, field in properties.items() if field.get("type") == "string"]
    lists = [key for key, field in properties.items() if field.get("type") == "array"]
    if len(texts) == 1 and len(lists) <= 1 and len(properties) == len(texts) + len(lists):
        return Input(texts[0], lists[0] if lists else None)
    if schema.get("type") == "string":
        return Input(takes_text=True)
    takes_messages = schema.get("type") == "array" or "HumanMessage" in schema.get("$defs", {})
    if takes_messages and not properties:
        return Input()
    found = f"the keys {', '.join(properties)}" if properties else "anything"
    raise FrameworkError(
        f"the runnable takes {found}, where a test case has one message; write a function around"
        " it:\n    async def agent(message, context):\n"
        "        return await chain.ainvoke({…: message})"
    )


class RunnableAdapter(FrameworkAdapter):
    """A runnable that takes messages or text."""

    objects: ClassVar[tuple[str, ...]] = ("Runnable",)
    reads = ALL - {"agents", "tools"}

    def __init__(self, agent: Any, options: Mapping[str, Any]) -> None:
        super().__init__(agent, options)
        self._input = _input_of(agent)

    async def open(self, context: Sequence["Message"]) -> "RunnableSession":
        return RunnableSession(self._agent, self._options, self._input, context)


class RunnableSession(StreamingSession):
    """A conversation whose every message comes with those before it."""

    traced_as = "LangChain"

    def __init__(
        self,
        agent: Any,
        options: Mapping[str, Any],
        taken: Input,
        context: Sequence["Message"],
    ) -> None:
        super().__init__(agent, options, context)
        self._input = taken

    async def _answer(self, message: str, *, streams: bool) -> AsyncGenerator[str, None]:
        value = self._input.build(self._earlier, message)
        output: Any = None
        with self._read_turn() as config:
            if not streams:
                self._finish(message, await self._agent.ainvoke(value, config))
                return
            async with aclosing(self._agent.astream(value, config)) as pieces:
                async for piece in pieces:
                    output = piece if output is None else output + piece
                    yield _text_of(piece) or ""
            self._finish(message, output)

    def _convert(self, messages: Sequence["Message"]) -> list[Any]:
        from langchain_core.messages import convert_to_messages

        return list(convert_to_messages([dict(message) for message in messages]))

    @contextmanager
    def _read_turn(self) -> Iterator[dict[str, Any]]:
        """Begin a turn; yield the config with which it is read."""
        self.turn = TurnRecord()
        reader = LangChainTurnReader(self.turn, ids_of(self._earlier))
        try:
            yield config_with(callback_handler(reader), self._options.get("config"))
        finally:
            reader.finish()

    def _finish(self, message: str, output: Any) -> None:
        """Read the output, and continue from there."""
        from langchain_core.messages import AIMessage, HumanMessage

        text = _text_of(output)
        self.turn.response = output if text is None else text
        self._earlier += [HumanMessage(message), AIMessage(str(self.turn.response))]


def _text_of(output: Any) -> str | None:
    """Return the text of an output, or of a piece of one; None if it is not text."""
    if isinstance(output, str):
        return output
    text = getattr(output, "text", None)
    return str(text) if isinstance(text, str) else None
