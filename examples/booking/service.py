"""A hotel's booking service on port 8765, which `holodeck test agent.yaml` tests while it runs."""

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

PRICE, LONGEST = 80, 30
sessions: dict[str, int] = {}
"""Session → the nights that were asked for last."""
numbers = count(1)


def answer(session: str, text: str) -> dict:
    """What the desk answers, with everything that it did."""
    if "book" in text.lower():
        nights = sessions[session]
        action = {"id": "a1", "tool": "book_room", "args": {"nights": nights}, "output": "B-7"}
        return {"reply": "It is booked: B-7.", "actions": [action], "problem": None}
    nights = int(re.search(r"\d+", text)[0])
    if nights > LONGEST:
        return {"problem": f"no room for {nights} nights; the longest stay is {LONGEST}"}
    sessions[session] = nights
    room = {"room": 12, "price": nights * PRICE}
    action = {"id": "a1", "tool": "find_room", "args": {"nights": nights}, "output": room}
    reply = f"Room 12 is free: {room['price']} EUR for {nights} nights."
    return {"reply": reply, "actions": [action], "problem": None}


class Desk(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        [_, session, *_] = [*self.path.strip("/").split("/"), ""]
        if session:
            self.reply(answer(session, body["text"]))
        else:
            session = f"s{next(numbers)}"
            sessions[session] = 0
            self.reply({"session": {"id": session}})

    def do_DELETE(self) -> None:
        del sessions[self.path.split("/")[-1]]
        self.reply({"open": len(sessions)})

    def reply(self, document: dict) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Leave the terminal to the report."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8765), Desk).serve_forever()
