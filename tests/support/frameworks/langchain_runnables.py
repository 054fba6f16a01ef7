"""A runnable of LangChain that calls its tool itself, as code without LangGraph does."""

from collections.abc import AsyncIterator

from support.frameworks import INSTRUCTIONS, Subject, lookup_order
from support.server import PATIENT_S, FakeOpenAI


def tool_loop(server: FakeOpenAI) -> Subject:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import BaseMessage, SystemMessage
    from langchain_core.runnables import RunnableGenerator
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from openai import AsyncOpenAI

    noticed: list[str] = []

    class Handler(BaseCallbackHandler):
        def on_tool_start(self, serialized, input_str, **event):
            noticed.append(serialized["name"])

    client = AsyncOpenAI(
        base_url=server.url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S
    )
    model = ChatOpenAI(
        model="fake", async_client=client.chat.completions, root_async_client=client,
        api_key="not-a-real-key", stream_usage=True,
    )  # fmt: skip
    order_tool = tool(lookup_order)
    bound = model.bind_tools([order_tool])

    async def answer(inputs: AsyncIterator[list[BaseMessage]]) -> AsyncIterator[str]:
        messages = [SystemMessage(INSTRUCTIONS)]
        async for given in inputs:
            messages += given
        while True:
            whole = None
            async for chunk in bound.astream(messages):
                whole = chunk if whole is None else whole + chunk
                yield chunk.text
            messages.append(whole)
            if not whole.tool_calls:
                return
            messages += [await order_tool.ainvoke(call) for call in whole.tool_calls]

    return Subject(
        RunnableGenerator(answer).with_config(callbacks=[Handler()]),
        server,
        agents=None,
        noticed=lambda: noticed,
        close=client.close,
        catches_tool_errors=False,
        runs_tools=False,
    )


ROWS = [tool_loop]
