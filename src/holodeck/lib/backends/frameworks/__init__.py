"""The agent frameworks whose objects holodeck can test, recognised without importing any."""

import inspect
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


def find_framework(value: object) -> Framework | None:
    """Return the framework that defines the class of `value` or one of its base classes."""
    value, _ = split_run(value)
    kind = value if inspect.isclass(value) else type(value)
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    return next((framework for framework in FRAMEWORKS if framework.package in packages), None)


def adapt(value: object) -> FrameworkAdapter | None:
    """Return the adapter of an object; None if it is not an agent of a framework."""
    framework = find_framework(value)
    if framework is None:
        return None
    adapter: FrameworkAdapter | None = import_module(framework.adapter).adapt(value)
    return adapter
