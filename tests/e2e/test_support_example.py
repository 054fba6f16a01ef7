"""The example with an MCP server, documents and a prompt tool, on a scripted model."""

import json
import shutil
from pathlib import Path

from fakes import FakeOpenAI, Reply, run_cli

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "support"
LOCAL = "{provider: local, name: qwen2.5-coder-1.5b-instruct, temperature: 0}"
EMBEDDED = "{provider: local, name: all-minilm-l6-v2}"
CALLS = {
    "order 7": ("order_status", {"order": 7}),
    "return shoes": ("search_terms", {"query": "How many days may I return shoes?"}),
    "apology to Ada": ("write_apology", {"customer": "Ada", "reason": "The parcel is late."}),
}


def answer(request):
    """What the model says: it calls the tool for the question, and repeats the tool's result."""
    if not request.tools:
        return f"Dear reader, we are sorry. ({request.prompt})"
    if request.tool_results:
        return request.tool_results[-1]
    return Reply(tool_calls=[call for words, call in CALLS.items() if words in request.prompt])


def test_the_golden_run_calls_a_server_finds_documents_and_asks_a_prompt(tmp_path, golden):
    folder = tmp_path / "support"
    shutil.copytree(EXAMPLE, folder)
    text = (folder / "agent.yaml").read_text()
    for model in (LOCAL, EMBEDDED):
        assert model in text
        text = text.replace(model, "{provider: openai, name: scripted}")
    (folder / "agent.yaml").write_text(text)
    with FakeOpenAI(answer) as server:
        env = {
            "HOLODECK_CACHE_DIR": str(folder / "cache"),
            "OPENAI_API_KEY": "not-a-real-key",
            "OPENAI_BASE_URL": server.url,
        }
        ran = run_cli(
            "test", "agent.yaml", "-o", "report.json", "-o", "report.md", cwd=folder, env=env
        )

    assert ran.code == 0, ran.stdout + ran.stderr
    report = json.loads((folder / "report.json").read_text())
    order, terms, apology = (one["tool_invocations"][0] for one in report["results"])
    assert "Order 7 is shipped to Oslo." in str(order["result"])
    assert "thirty days" in terms["passages"][0]
    assert "to Ada. What went wrong: The parcel is late." in apology["result"]
    assert apology["model_cost"]["calls"] == 1
    assert [one["name"] for one in report["prompts"]] == ["instructions", "write_apology"]
    assert "1.0 by The shop (support, email)" in (folder / "report.md").read_text()
    golden("support", folder, "report.json", "report.md")
