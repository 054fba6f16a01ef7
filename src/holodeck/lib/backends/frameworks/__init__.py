"""The agent frameworks whose objects holodeck can test, recognised without importing any."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module

from holodeck.lib.backends.frameworks.base import FrameworkAdapter, split_run


@dataclass(frozen=True)
class Framework:
    """A framework, and the module that adapts its objects."""

    name: str
    """As its users write it."""
    package: str
    """The top-level package that defines its classes."""
    adapter: str
    """Module with the function `adapt(value) -> FrameworkAdapter | None`, and its adapters."""
    enters_agents: bool = True
    """Whether an agent that is a context manager is entered before it is used."""

    def adapters(self) -> list[type[FrameworkAdapter]]:
        """Return the classes of its adapters; the framework is not imported."""
        values = vars(import_module(self.adapter)).values()
        classes = [value for value in values if inspect.isclass(value)]
        adapters = [
            kind
            for kind in classes
            if issubclass(kind, FrameworkAdapter) and "objects" in vars(kind)
        ]
        return sorted(adapters, key=lambda kind: kind.__module__ != self.adapter)  # its own first


FRAMEWORKS: tuple[Framework, ...] = (
    Framework(
        "Semantic Kernel",
        "semantic_kernel",
        "holodeck.lib.backends.frameworks.semantic_kernel.agents",
    ),
    Framework(
        "Microsoft Agent Framework",
        "agent_framework",
        "holodeck.lib.backends.frameworks.agent_framework.agents",
    ),
    Framework(
        "Microsoft Agent Framework orchestrations",
        "agent_framework_orchestrations",
        "holodeck.lib.backends.frameworks.agent_framework.workflows",
    ),
    Framework("PydanticAI", "pydantic_ai", "holodeck.lib.backends.frameworks.pydantic_ai_agents"),
    Framework("Google ADK", "google", "holodeck.lib.backends.frameworks.google_adk_agents"),
    Framework(
        "Claude Agent SDK",
        "claude_agent_sdk",
        "holodeck.lib.backends.frameworks.claude.agents",
        enters_agents=False,  # a client that is entered has a conversation
    ),
    Framework("LangGraph", "langgraph", "holodeck.lib.backends.frameworks.langchain.graphs"),
    Framework(
        "LangChain", "langchain_core", "holodeck.lib.backends.frameworks.langchain.runnables"
    ),
    # The last one, because a package of the user may well be called `agents`, too.
    Framework("OpenAI Agents SDK", "agents", "holodeck.lib.backends.frameworks.openai_agents"),
)


@dataclass(frozen=True)
class UnadaptedFramework:
    """A framework without an adapter, whose agents a function of the user calls."""

    name: str
    """As its users write it."""
    package: str
    """The top-level package that defines its classes."""
    answers: Mapping[str, str]
    """For each class whose objects answer, the expression that returns the answer to `message`.

    `agent` is the object; `make_agent()` makes one, where an object keeps its messages. The first
    class stands for those that are not listed.
    """

    def advice(self, agent: object) -> str:
        """Return why an object of the framework is no agent, and the function to write."""
        kinds = [kind.__name__ for kind in type(agent).__mro__]
        kind = next((name for name in kinds if name in self.answers), next(iter(self.answers)))
        answer = self.answers[kind]
        define = "async def" if "await " in answer else "def"
        return (
            f"holodeck has no adapter for {kinds[0]} of {self.name}; write a function that calls"
            f" it, such as '{define} answer(message): return {answer}', and name it with"
            " 'backend: {type: python, target: \"module:answer\", tap: true}'; the tap sees its"
            " tool calls"
        )


UNADAPTED_FRAMEWORKS: tuple[UnadaptedFramework, ...] = (
    UnadaptedFramework(
        "CrewAI",
        "crewai",
        {
            "Crew": 'agent.kickoff({"message": message}).raw',
            "Agent": "agent.kickoff(message).raw",
            "Flow": 'str(agent.kickoff({"message": message}))',
        },
    ),
    UnadaptedFramework(
        "LlamaIndex",
        "llama_index",
        {
            "BaseWorkflowAgent": "str(await agent.run(message))",
            "BaseQueryEngine": "str(agent.query(message))",
            "BaseChatEngine": "str(make_agent().chat(message))",
        },
    ),
    UnadaptedFramework(
        "AutoGen",
        "autogen_agentchat",
        {"ChatAgent": "(await make_agent().run(task=message)).messages[-1].to_text()"},
    ),
    UnadaptedFramework(
        "Haystack",
        "haystack",
        {
            "Agent": 'agent.run([ChatMessage.from_user(message)])["last_message"].text',
            "Pipeline": 'agent.run({"builder": {"question": message}})["llm"]["replies"][0].text',
        },
    ),
)


def find_framework(value: object) -> Framework | None:
    """Return the framework that defines the class of `value` or one of its base classes."""
    value, _ = split_run(value)
    packages = _packages_of((value if inspect.isclass(value) else type(value)).__mro__)
    return next((framework for framework in FRAMEWORKS if framework.package in packages), None)


def find_unadapted(value: object, methods: Iterable[str]) -> UnadaptedFramework | None:
    """Return the framework without an adapter that defines the class of an object.

    None if the user defines one of the methods, with which the object may answer.
    """
    kinds = type(value).__mro__
    answering = next((kind for kind in kinds if not vars(kind).keys().isdisjoint(methods)), None)
    packages = _packages_of(kinds if answering is None else (answering,))
    return next((known for known in UNADAPTED_FRAMEWORKS if known.package in packages), None)


def _packages_of(kinds: Iterable[type]) -> set[str]:
    """Return the top-level packages that define classes."""
    return {kind.__module__.partition(".")[0] for kind in kinds}


def adapt(value: object) -> FrameworkAdapter | None:
    """Return the adapter of an object; None if it is not an agent of a framework."""
    framework = find_framework(value)
    if framework is None:
        return None
    adapter: FrameworkAdapter | None = import_module(framework.adapter).adapt(value)
    return adapter
