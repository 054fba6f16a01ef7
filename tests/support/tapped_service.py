"""An HTTP service with an agent in it that talks to its model with OpenAI's own client."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("lookup_order", "delete_order")
]


def answer(question: str, base_url: str | None, *, stream: bool = False) -> str:
    """What the agent answers: it calls the tools that its model asks for, and reports none."""
    import openai

    messages: list[Any] = [{"role": "user", "content": question}]
    with openai.OpenAI(
        base_url=base_url, api_key="sk-agents-own-secret-key", max_retries=0
    ) as client:
        while True:
            message = _streamed(client, messages) if stream else _plain(client, messages)
            if not message.get("tool_calls"):
                return str(message["content"])
            messages.append(message)
            for call in message["tool_calls"]:
                result = {"status": "done", "tool": call["function"]["name"]}
                told = {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(result)}
                messages.append(told)


def _plain(client: Any, messages: list[Any]) -> dict[str, Any]:
    done = client.chat.completions.create(model="some-model", messages=messages, tools=TOOLS)
    message: dict[str, Any] = done.choices[0].message.model_dump(exclude_none=True)
    return message


def _streamed(client: Any, messages: list[Any]) -> dict[str, Any]:
    with client.chat.completions.stream(
        model="some-model", messages=messages, tools=TOOLS, stream_options={"include_usage": True}
    ) as stream:
        message = stream.get_final_completion().choices[0].message
    found: dict[str, Any] = json.loads(message.model_dump_json(exclude_none=True))
    for call in found.get("tool_calls", ()):
        call["function"].pop("parsed_arguments", None)
    return found


@contextmanager
def serving(own_url: str | None = None, answering: Callable[..., str] = answer) -> Iterator[str]:
    """The URL of the service; with `own_url`, it ignores where requests tell it its model is."""

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            url = own_url or asked.get("model_url") or self.headers["x-model-url"]
            options = {"stream": True} if asked.get("stream") else {}
            said = answering(asked["question"], url, **options)
            body = json.dumps({"response": said}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
