"""The page about frameworks without an adapter, run where these are installed.

`scripts/frameworks others` installs each in an environment of its own, and runs these tests.
"""

import re
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from fakes import Reply, run_cli
from support.checks import assert_plain

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "frameworks" / "others.md"
ENVIRONMENTS = Path(tempfile.gettempdir()) / "holodeck-frameworks"
FILES = dict(
    re.findall(
        r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE
    )
)
PACKAGES = [name.partition("/")[0] for name in FILES if "/" in name]


def answer(request):
    """Look the order up, then tell where it is, in the way in which smolagents expects it."""
    last = request.messages[-1]
    if last["role"] == "user" and "order 7 is shipped" not in request.prompt:
        return Reply(tool_calls=[("lookup_order", {"order_id": "7"})])
    tools = [tool["function"]["name"] for tool in request.body.get("tools", [])]
    if "final_answer" in tools:
        return Reply(tool_calls=[("final_answer", {"answer": "It is shipped."})])
    return Reply("It is shipped.")


def interpreter_with(package):
    """Return a Python that has the framework; skip the test if there is none."""
    if find_spec(package) is not None:
        return sys.executable
    python = ENVIRONMENTS / package / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{package} is not installed; 'scripts/frameworks others' does that")
    return str(python)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_function_and_the_tap_show_what_the_agent_did(package, tmp_path, fake_openai):
    python = interpreter_with(package)
    config = FILES["agent.yaml"]
    assert "type: python," in config
    process = f"type: process, python: {python},"
    (tmp_path / "agent.yaml").write_text(config.replace("type: python,", process))
    (tmp_path / "support.py").write_text(FILES[f"{package}/support.py"])
    fake_openai.otherwise(answer)
    env = {
        "OPENAI_BASE_URL": fake_openai.url,
        "OPENAI_API_KEY": "not-a-real-key",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
    }

    ran = run_cli("test", "-v", cwd=tmp_path, env=env)

    assert_plain(ran)
    assert ran.code == 0, ran.stdout + ran.stderr
    assert "1/1 passed" in ran.stdout
