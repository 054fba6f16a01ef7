"""Code of the user's that raises: its file, line and code stand wherever the error does."""

import json
import xml.etree.ElementTree as ET

import pytest

from fakes import Reply
from support.checks import assert_plain
from support.own_pytest import run_pytest

SHOP = '''
PRICES = {}

def price_of(item):
    return PRICES[item]

def answer(message):
    return f"It costs {price_of(message)}"

def echo(message):
    return message

def leaks(message):
    raise ValueError("no"); "api_key='abc-123-secret'"

def grade(observation):
    return price_of("coffee")

def look(state):
    price_of("milk")

def check_price(item: str) -> str:
    """The price of an item."""
    return price_of(item)
'''
PLACE = "shop.py:5: return PRICES[item]"
FRAMES = ["shop.py:8 in answer: return f\"It costs {price_of(message)}\"",
          "shop.py:5 in price_of: return PRICES[item]"]  # fmt: skip
EXCERPT = ["  4 | def price_of(item):", "> 5 |     return PRICES[item]"]
CHECKED = [{"metric": "contains", "value": "tea"}]


@pytest.fixture
def shop(agent_dir):
    """Writes the agent.yaml of a shop with one case."""

    def write(function, case, **keys):
        agent_dir.write("shop.py", SHOP)
        agent_dir.write_agent(
            **{"model": None, "instructions": None, "backend": f"shop:{function}"} | keys,
            test_cases=[{"name": "buys", "evaluations": CHECKED, **(case or {"input": "tea"})}],
        )
        return agent_dir

    return write


def test_an_agent_that_raises_shows_its_file_line_and_code_on_the_terminal(shop):
    ran = shop("answer", {}).run("test")

    assert_plain(ran)
    assert ran.code == 3
    shown = [f"    KeyError: 'tea' ({PLACE})", *(f"      {one}" for one in EXCERPT), ""]
    assert "\n".join(shown) in ran.stdout


def test_verbose_shows_every_frame_of_the_agents_own_code(shop):
    ran = shop("answer", {}).run("test", "-v")

    lines = [f"    KeyError: 'tea' ({PLACE})", *(f"      {one}" for one in FRAMES)]
    assert "\n".join(lines) in ran.stdout


def test_an_agent_that_raises_shows_its_place_in_both_reports(shop):
    folder = shop("answer", {})

    folder.run("test", "-o", "r.json", "-o", "r.md", "-o", "r.xml")

    [result] = json.loads((folder.path / "r.json").read_text())["results"]
    assert result["errors"] == ["KeyError: 'tea'"]
    assert result["raised"] == [
        {
            "error": "KeyError: 'tea'", "file": "shop.py", "line": 5, "function": "price_of",
            "code": "return PRICES[item]", "traceback": FRAMES, "excerpt": EXCERPT,
        }
    ]  # fmt: skip
    assert "\n".join([*FRAMES, *EXCERPT, "KeyError: 'tea'"]) in (folder.path / "r.md").read_text()
    [error] = ET.parse(folder.path / "r.xml").iter("error")
    assert "\n".join(f"  {one}" for one in [*FRAMES, *EXCERPT]) in error.text


def test_an_agent_that_raises_shows_its_place_in_pytest(shop):
    folder = shop("answer", {})

    shown = run_pytest(folder.path, "agent.yaml")
    assert f"KeyError: 'tea' ({PLACE})" in shown
    assert f"  {EXCERPT[1]}" in shown
    assert f"  {FRAMES[0]}" in run_pytest(folder.path, "agent.yaml", "-v")


def test_a_grader_that_raises_shows_its_place(shop):
    grader = {"type": "code", "name": "cheap", "grader": "shop:grade"}
    folder = shop("echo", {"input": "tea", "evaluations": [grader]})

    ran = folder.run("test", "-o", "r.json", "-o", "r.md")

    [result] = json.loads((folder.path / "r.json").read_text())["results"]
    assert f"    cheap: grade failed: KeyError: 'coffee' ({PLACE})" in ran.stdout
    assert result["metric_results"][0]["raised"]["line"] == 5
    assert "shop.py:17 in grade: return price_of" in (folder.path / "r.md").read_text()


def test_a_function_of_a_script_that_raises_shows_its_place(shop):
    script = [{"user": "tea"}, "agent", {"call": "shop:look"}, "succeed"]
    ran = shop("echo", {"script": script}).run("test", "-o", "r.md")

    assert f"    KeyError: 'milk' ({PLACE})" in ran.stdout


@pytest.mark.parametrize("backend", ["chat", "semantic_kernel"])
def test_a_tool_that_raises_shows_its_place_where_the_case_fails(shop, agent_dir, backend):
    def call_then_give_up(request):
        if request.tool_results:
            return Reply("sorry")
        return Reply(tool_calls=[("check_price", {"item": "tea"})])

    agent_dir.server.otherwise(call_then_give_up)
    tool = {
        "type": "function", "name": "check_price", "file": "shop.py", "function": "check_price",
    }  # fmt: skip
    agent = {"model": agent_dir.model(), "instructions": {"inline": "Sell."}}
    folder = shop("echo", {}, backend=backend, tools=[tool], **agent)

    ran = folder.run("test", "-o", "r.json")

    [result] = json.loads((folder.path / "r.json").read_text())["results"]
    assert f"    tool 'check_price' raised KeyError: 'tea' ({PLACE})" in ran.stdout
    assert result["tool_invocations"][0]["raised"]["line"] == 5


def test_a_secret_in_the_line_of_code_is_hidden(shop):
    folder = shop("leaks", {})

    ran = folder.run("test", "-v", "-o", "r.json", "-o", "r.md")

    assert "ValueError: no (shop.py:14: raise ValueError" in ran.stdout
    shown = ran.stdout + run_pytest(folder.path, "agent.yaml", "-v")
    shown += (folder.path / "r.json").read_text() + (folder.path / "r.md").read_text()
    assert "abc-123-secret" not in shown


def test_a_function_that_makes_agents_and_raises_shows_its_place(shop):
    folder = shop("make", {})
    folder.write("shop.py", SHOP + "\n\ndef make():\n    return price_of('bot')\n")

    ran = folder.run("test")

    assert ran.code == 3
    assert f"the agent cannot be created: KeyError: 'bot' ({PLACE})" in ran.stderr
