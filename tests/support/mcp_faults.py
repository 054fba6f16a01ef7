"""A server that speaks just enough of MCP to do at a given moment what broken servers do.

`python mcp_faults.py [FAULT]`: with a fault, it never serves; each of its tools is another one.
It imports nothing that takes time to import.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

COMMAND = [sys.executable, "-I", "-S", str(Path(__file__).resolve())]
TOOLS = ("hang", "crash", "babble", "huge", "invalid", "count", "pid")


def main(fault=""):
    if fault == "exits":
        sys.exit("no \x1b[31mlicence")
    if fault == "hangs":
        # a child that holds the pipes open and ignores what ends the server
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        time.sleep(600)
    if fault == "babbles":
        say("Welcome!\n{broken")
        return
    for number, line in enumerate(sys.stdin):
        request = json.loads(line)
        if "id" in request:
            answer(request, fault, number)


def answer(request, fault, number):
    result = None
    match request["method"]:
        case "initialize" if fault == "refuses":
            send(request, error={"code": -32600, "message": "go away"})
            return
        case "initialize":
            version = "1" if fault == "protocol" else request["params"]["protocolVersion"]
            info = {"name": "faults", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {}, "serverInfo": info}
        case "tools/list":
            schema = {"type": "object", "properties": {}}
            result = {"tools": [{"name": name, "inputSchema": schema} for name in TOOLS]}
        case "tools/call":
            result = call(request["params"]["name"], number)
    send(request, result=result or {})


def call(tool, number):
    text = str(number)
    if tool == "hang":
        time.sleep(600)
    if tool == "crash":
        sys.stderr.write("the disk is \x1b[31mfull\n")
        os._exit(3)
    if tool == "babble":
        say("Listening on port 1\n{broken")
    if tool == "invalid":
        return {"content": "not a list"}
    if tool == "huge":
        text = "x" * 11_000_000
    if tool == "pid":
        text = str(os.getpid())
    return {"content": [{"type": "text", "text": text}]}


def send(request, **fields):
    say(json.dumps({"jsonrpc": "2.0", "id": request["id"], **fields}))


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
