"""Serves the agent over HTTP and runs `agentops eval run` on the configuration of a trap."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer


class Shop(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"text": "You can return it within 14 days."}).encode()
        self.send_response(500 if self.path == "/closed" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


with HTTPServer(("127.0.0.1", 8951), Shop) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    command = ["agentops", "eval", "run", "--config", f"{sys.argv[1]}.yaml"]
    sys.exit(subprocess.run(command, check=False).returncode)
