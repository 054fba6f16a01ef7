"""Agents of Google ADK, where it is installed; `scripts/frameworks google-adk` does that."""

import json

from support.frameworks import AGENT, INSTRUCTIONS, Subject, lookup_order
from support.server import PATIENT_S, FakeOpenAI

FRAMEWORK = "Google ADK"
REQUIRES = "google.adk"


def google_adk_agent_with_approvals(server: FakeOpenAI) -> Subject:
    from google.adk.agents import LlmAgent
    from google.adk.tools import FunctionTool

    model = fake_model(server)
    tool = FunctionTool(lookup_order, require_confirmation=True)
    agent = LlmAgent(model=model, name=AGENT, instruction=INSTRUCTIONS, tools=[tool])
    return Subject(agent, server, close=model.client.close)


def google_adk_agent(server: FakeOpenAI) -> Subject:
    from google.adk.agents import LlmAgent

    noticed: list[str] = []

    def notice(tool, args, tool_context):
        noticed.append(tool.name)

    model = fake_model(server)
    agent = LlmAgent(
        model=model,
        name=AGENT,
        instruction=INSTRUCTIONS,
        tools=[lookup_order],
        before_tool_callback=notice,
    )
    return Subject(
        agent,
        server,
        noticed=lambda: noticed,
        catches_tool_errors=False,
        reads_malformed_arguments=False,  # its models hand on mappings, and raise before that
        close=model.client.close,
    )


def fake_model(server):
    """Return a model of ADK on the fake server; ADK's own ones need more than that."""
    from openai import AsyncOpenAI

    return model_of(
        AsyncOpenAI(base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S)
    )


def model_of(client):
    """Return a model of ADK that asks a server with OpenAI's protocol."""
    from google.adk.models import BaseLlm, LlmResponse
    from google.genai import types
    from openai import AsyncOpenAI

    class ChatModel(BaseLlm):
        client: AsyncOpenAI

        async def generate_content_async(self, llm_request, stream=False):
            response = await self.client.chat.completions.create(
                model="fake", messages=list(_messages(llm_request)), tools=_tools(llm_request)
            )
            message, usage = response.choices[0].message, response.usage
            parts = [types.Part(text=message.content)] if message.content else []
            for call in message.tool_calls or ():
                arguments = json.loads(call.function.arguments)
                made = types.FunctionCall(id=call.id, name=call.function.name, args=arguments)
                parts.append(types.Part(function_call=made))
            counted = usage and types.GenerateContentResponseUsageMetadata(
                prompt_token_count=usage.prompt_tokens,
                candidates_token_count=usage.completion_tokens,
            )
            if stream and message.content:
                for piece in message.content.partition(" "):
                    content = types.Content(role="model", parts=[types.Part(text=piece)])
                    yield LlmResponse(content=content, partial=True)
            content = types.Content(role="model", parts=parts)
            yield LlmResponse(content=content, usage_metadata=counted, model_version=response.model)

    return ChatModel(model="fake", client=client)


def _messages(request):
    """Return the contents of a request as messages of chat completions."""
    yield {"role": "system", "content": str(request.config.system_instruction or "")}
    for content in request.contents:
        role = "assistant" if content.role == "model" else "user"
        text = "".join(part.text or "" for part in content.parts)
        called = [part.function_call for part in content.parts if part.function_call]
        calls = [
            {
                "id": call.id or call.name,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.args)},
            }
            for call in called
        ]
        if text or calls:
            yield {"role": role, "content": text, **({"tool_calls": calls} if calls else {})}
        for part in content.parts:
            if (answer := part.function_response) is not None:
                result = str(answer.response.get("result", answer.response))
                yield {
                    "role": "tool",
                    "content": result,
                    "tool_call_id": answer.id or answer.name,
                }


def _tools(request):
    """Return the declared functions; their parameters do not matter to the fake server."""
    declared = [one for tool in request.config.tools or () for one in tool.function_declarations]
    return [
        {"type": "function", "function": {"name": one.name, "parameters": {"type": "object"}}}
        for one in declared
    ]


ROWS = [google_adk_agent]
APPROVAL_ROWS = [google_adk_agent_with_approvals]
