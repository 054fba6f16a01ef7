"""A scripted model that follows its instructions; runs a command for which it stands in for OpenAI.

python model.py sh
"""

import json
import os
import re
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


def answer(instructions: str, message: str) -> str:
    """What the model says; the same for the same instructions and message."""
    sentences = []
    name = re.search(r"I am (\w+)", message)
    if name and "by their name" in instructions:
        sentences.append(f"Hello {name[1]}.")
    if "late" in message and "apologize" in instructions:
        sentences.append("We are sorry that your parcel is late.")
    if "money back" in message:
        is_asked = "order number" in instructions
        sentences.append("What is your order number?" if is_asked else "We refund you at once.")
    days = re.search(r"within (\d+) days", instructions)
    if "return" in message and days:
        sentences.append(f"You may return shoes within {days[1]} days.")
    return " ".join(sentences) or "How can we help you?"


class Model(BaseHTTPRequestHandler):
    """Answers as OpenAI's chat completions do."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        first, *_, last = request["messages"]
        said = answer(first["content"], last["content"])
        counts = len(str(request["messages"]).split()), len(said.split())
        document = {
            "id": "scripted",
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": said},
                }
            ],
            "usage": {
                "prompt_tokens": counts[0],
                "completion_tokens": counts[1],
                "total_tokens": sum(counts),
            },
        }
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print no line for a request."""


def main() -> int:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    scripted = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "no-key-needed"}
    env = os.environ | scripted  # noqa: TID251 - a program of its own
    return subprocess.run(sys.argv[1:], env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
