"""Agents of every framework whose one tool runs a function: another agent, a client, or nothing.

The model of each asks for its tool, and answers once it has the result. The tool of the inner
agent is `delete_order`, and that of the outer one `ask_desk`.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from support.frameworks.claude_agents import options_for
from support.frameworks.google_adk import model_of
from support.wire_types import Reply, Request

Ask = Callable[[str], Awaitable[str]]
"""What the tool of the outer agent does with a question."""


def _is_installed(package: str) -> bool:
    with suppress(ModuleNotFoundError):
        return find_spec(package) is not None
    return False


def model(request: Request, rounds: int = 1) -> Reply:
    """Ask for the tool, for that of the outer agent in so many rounds; then answer."""
    if not request.body.get("tools"):
        return Reply("done")
    names = [tool.get("function", tool)["name"] for tool in request.body["tools"]]
    name = next(name for name in names if name.endswith(("ask_desk", "delete_order")))
    if len(request.tool_results) >= (rounds if name.endswith("ask_desk") else 1):
        return Reply("done")
    parameter = "order_id" if name.endswith("delete_order") else "question"
    return Reply(None, tool_calls=[(name, {parameter: "7"})])


def delete_order(order_id: str) -> str:
    """Delete an order."""
    return f"{order_id} deleted"


def _semantic_kernel_agent(client: Any, name: str, tool: Callable[..., Any]) -> Any:
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
    from semantic_kernel.functions import KernelPlugin, kernel_function

    service = OpenAIChatCompletion(ai_model_id="fake", async_client=client)
    plugin = KernelPlugin("desk", functions=[kernel_function(name=tool.__name__)(tool)])
    return ChatCompletionAgent(
        service=service, name=name, instructions="Be brief.", plugins=[plugin]
    )


def semantic_kernel(client: Any, ask: Ask) -> Any:
    async def ask_desk(question: str) -> str:
        return await ask(question)

    return _semantic_kernel_agent(client, "front", ask_desk)


def ask_semantic_kernel(client: Any) -> Ask:
    agent = _semantic_kernel_agent(client, "desk", delete_order)

    async def ask(question: str) -> str:
        return str((await agent.get_response(question)).message)

    return ask


def ask_agent_of_agent(client: Any) -> Ask:
    """A tool's agent whose own tool asks an agent of another framework."""

    async def ask_desk(question: str) -> str:
        return await ask_pydantic_ai(client)(question)

    agent = _semantic_kernel_agent(client, "between", ask_desk)

    async def ask(question: str) -> str:
        return str((await agent.get_response(question)).message)

    return ask


def _pydantic_ai_agent(client: Any, name: str, tool: Callable[..., Any]) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    llm = OpenAIChatModel("fake", provider=OpenAIProvider(openai_client=client))
    return Agent(llm, name=name, tools=[tool])


def pydantic_ai(client: Any, ask: Ask) -> Any:
    async def ask_desk(question: str) -> str:
        return await ask(question)

    return _pydantic_ai_agent(client, "front", ask_desk)


def ask_pydantic_ai(client: Any, **settings: Any) -> Ask:
    agent = _pydantic_ai_agent(client, "desk", delete_order)
    for name, value in settings.items():
        setattr(agent, name, value)

    async def ask(question: str) -> str:
        return str((await agent.run(question)).output)

    return ask


def ask_embedder(client: Any) -> Ask:
    """A tool that asks PydanticAI for an embedding: a request, but no agent."""
    from pydantic_ai.embeddings import Embedder
    from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(openai_client=client)
    embedder = Embedder(OpenAIEmbeddingModel("fake", provider=provider))

    async def ask(question: str) -> str:
        result = await embedder.embed_query(question)
        return f"{len(result.embeddings)} vector"

    return ask


def _agent_framework_agent(client: Any, name: str, tool: Callable[..., Any]) -> Any:
    from agent_framework import Agent
    from agent_framework_openai import OpenAIChatCompletionClient

    llm = OpenAIChatCompletionClient(model="fake", async_client=client)
    return Agent(llm, "Be brief.", name=name, tools=[tool])


def agent_framework(client: Any, ask: Ask) -> Any:
    async def ask_desk(question: str) -> str:
        return await ask(question)

    return _agent_framework_agent(client, "front", ask_desk)


def ask_agent_framework(client: Any) -> Ask:
    agent = _agent_framework_agent(client, "desk", delete_order)

    async def ask(question: str) -> str:
        return str((await agent.run(question)).text)

    return ask


def _openai_agent(client: Any, name: str, tool: Callable[..., Any]) -> Any:
    from agents import Agent, function_tool
    from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel

    llm = OpenAIChatCompletionsModel("fake", client)
    return Agent(name=name, model=llm, tools=[function_tool(tool, failure_error_function=None)])


def openai_agents(client: Any, ask: Ask) -> Any:
    async def ask_desk(question: str) -> str:
        return await ask(question)

    return _openai_agent(client, "front", ask_desk)


def ask_openai_agents(client: Any, **config: Any) -> Ask:
    from agents import RunConfig, Runner

    agent = _openai_agent(client, "desk", delete_order)

    async def ask(question: str) -> str:
        run = await Runner.run(agent, question, run_config=RunConfig(**config))
        return str(run.final_output)

    return ask


def _langchain_agent(client: Any, name: str, tool: Callable[..., Any]) -> Any:
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    llm = ChatOpenAI(
        model="fake",
        async_client=client.chat.completions,
        root_async_client=client,
        api_key="not-a-real-key",
    )
    return create_agent(llm, [tool], name=name)


def langgraph(client: Any, ask: Ask) -> Any:
    async def ask_desk(question: str) -> str:
        """Ask the desk."""
        return await ask(question)

    return _langchain_agent(client, "front", ask_desk)


def ask_langgraph(client: Any) -> Ask:
    agent = _langchain_agent(client, "desk", delete_order)

    async def ask(question: str) -> str:
        state = await agent.ainvoke({"messages": [("user", question)]})
        return str(state["messages"][-1].content)

    return ask


def _google_adk_agent(client: Any, name: str, tool: Callable[..., Any]) -> Any:
    from google.adk.agents import LlmAgent

    return LlmAgent(model=model_of(client), name=name, instruction="Be brief.", tools=[tool])


def google_adk(client: Any, ask: Ask) -> Any:
    async def ask_desk(question: str) -> str:
        return await ask(question)

    return _google_adk_agent(client, "front", ask_desk)


def ask_google_adk(client: Any) -> Ask:
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    runner = InMemoryRunner(agent=_google_adk_agent(client, "desk", delete_order))

    async def ask(question: str) -> str:
        session = await runner.session_service.create_session(
            app_name=runner.app_name, user_id="user"
        )
        message = types.Content(role="user", parts=[types.Part(text=question)])
        run = runner.run_async(user_id="user", session_id=session.id, new_message=message)
        texts = [part.text async for event in run for part in event.content.parts]
        return texts[-1] or ""

    return ask


def ask_nobody(client: Any) -> Ask:
    """What an ordinary tool does."""

    async def ask(question: str) -> str:
        return f"{question} is shipped"

    return ask


def ask_client(client: Any) -> Ask:
    """What a tool does that asks a model without any framework."""

    async def ask(question: str) -> str:
        response = await client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": question}]
        )
        return str(response.choices[0].message.content)

    return ask


_ALL = [
    ("semantic_kernel", semantic_kernel, ask_semantic_kernel),
    ("agent_framework", agent_framework, ask_agent_framework),
    ("agents", openai_agents, ask_openai_agents),
    ("pydantic_ai", pydantic_ai, ask_pydantic_ai),
    ("langgraph", langgraph, ask_langgraph),
    ("google.adk", google_adk, ask_google_adk),
]
_INSTALLED = [row for row in _ALL if _is_installed(row[0])]
OUTER = [outer for _, outer, _ in _INSTALLED]
INNER = [inner for _, _, inner in _INSTALLED]


def langchain(client: Any, ask: Ask) -> Any:
    """A loop of the user around a model of LangChain."""
    from langchain_core.messages import AnyMessage
    from langchain_core.runnables import RunnableLambda
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    async def ask_desk(question: str) -> str:
        """Ask the desk."""
        return await ask(question)

    llm = ChatOpenAI(
        model="fake",
        async_client=client.chat.completions,
        root_async_client=client,
        api_key="not-a-real-key",
    ).bind_tools([ask_desk])

    async def answer(messages: list[AnyMessage]) -> str:
        while True:
            reply = await llm.ainvoke(messages)
            if not reply.tool_calls:
                return reply.text
            messages = [*messages, reply]
            messages += [await ask_desk.ainvoke(call) for call in reply.tool_calls]

    return RunnableLambda(answer)


def claude(client: Any, ask: Ask) -> Any:
    from claude_agent_sdk import create_sdk_mcp_server, tool

    @tool("ask_desk", "Ask the desk.", {"question": str})
    async def ask_desk(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await ask(arguments["question"])}]}

    root = str(client.base_url).rstrip("/").removesuffix("/v1")
    return options_for(
        SimpleNamespace(root=root),
        mcp_servers={"desk": create_sdk_mcp_server("desk", tools=[ask_desk])},
        allowed_tools=["mcp__desk"],
    )


_OTHERS = [("langchain_core", langchain), ("claude_agent_sdk", claude)]
DELEGATING = [*zip(OUTER, INNER, strict=True)] + [
    (outer, INNER[0]) for package, outer in _OTHERS if _is_installed(package)
]
"""An agent of each framework, and what its tool asks."""
