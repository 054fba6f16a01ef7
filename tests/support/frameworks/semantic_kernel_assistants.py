"""Agents of Semantic Kernel whose conversations a service keeps in threads."""

from datetime import timedelta

from support.frameworks import AGENT, INSTRUCTIONS, Subject
from support.frameworks.semantic_kernel import CACHES, notice_functions, orders
from support.server import PATIENT_S, FakeOpenAI

KEY = "not-a-real-key"
DEFINITION = {"name": AGENT, "instructions": INSTRUCTIONS}


def openai_assistant_agent(server: FakeOpenAI) -> Subject:
    agent, close = openai_assistant(server)
    return _subject(server, agent, close)


def azure_ai_agent(server: FakeOpenAI) -> Subject:
    agent, close = azure_assistant(server)
    return _subject(server, agent, close)


def _subject(server, agent, close):
    noticed: list[str] = []
    notice_functions(agent.kernel, noticed)
    return Subject(
        agent,
        server,
        tool="OrderPlugin-lookup_order",
        noticed=lambda: noticed,
        parts=lambda: [agent, agent.kernel],
        caches=CACHES,
        close=close,
    )


def openai_assistant(server, **definition):
    """Return an agent on the Assistants API, and how to close its client."""
    from openai import AsyncOpenAI
    from semantic_kernel.agents import OpenAIAssistantAgent

    client = AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0, timeout=PATIENT_S)
    return _assistant(server, OpenAIAssistantAgent, client, definition)


def azure_openai_assistant(server, **definition):
    """Return an agent on the Assistants API of Azure OpenAI, and how to close its client."""
    from openai import AsyncAzureOpenAI
    from semantic_kernel.agents import AzureAssistantAgent

    client = AsyncAzureOpenAI(
        azure_endpoint=server.root,
        api_key=KEY,
        api_version="2025-01-01-preview",
        max_retries=0,
        timeout=PATIENT_S,
    )
    return _assistant(server, AzureAssistantAgent, client, definition)


def _assistant(server, kind, client, definition):
    from openai import OpenAI
    from openai.types.beta import Assistant

    with OpenAI(base_url=server.url, api_key=KEY) as creating:
        body = {"model": "fake", **DEFINITION, **definition}
        created = creating.post("/assistants", body=body, cast_to=Assistant)
    agent = kind(client=client, definition=created, plugins=[orders()], polling_options=fast())
    return agent, client.close


def azure_assistant(server, **definition):
    """Return an agent of Azure AI, and how to close its client."""
    from azure.ai.agents import AgentsClient
    from azure.ai.projects.aio import AIProjectClient
    from azure.core.credentials import AzureKeyCredential
    from azure.core.pipeline.policies import AzureKeyCredentialPolicy
    from semantic_kernel.agents import AzureAIAgent

    key = AzureKeyCredential(KEY)
    place = {
        "endpoint": f"{server.root}/api/projects/shop",
        "credential": key,
        "authentication_policy": AzureKeyCredentialPolicy(key, "api-key"),
    }
    with AgentsClient(**place) as creating:
        created = creating.create_agent(model="fake", **(DEFINITION | definition))
    client = AIProjectClient(**place)
    agent = AzureAIAgent(
        client=client, definition=created, plugins=[orders()], polling_options=fast()
    )
    return agent, client.close


def fast():
    """Return options that poll at once."""
    from semantic_kernel.agents.open_ai.run_polling_options import RunPollingOptions

    soon = timedelta(milliseconds=2)
    return RunPollingOptions(
        run_polling_interval=soon,
        run_polling_backoff=soon,
        run_polling_timeout=timedelta(hours=1),
        message_synchronization_delay=soon,
    )


ROWS = [openai_assistant_agent, azure_ai_agent]
