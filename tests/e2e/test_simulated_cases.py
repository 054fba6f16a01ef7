"""A simulated case through the command: exit codes, report, resume, and grading again."""

import json

import pytest

from fakes import AgentFolder

BOT = """\
class Bot:
    def run(self, message, context):
        return {"response": f"heard {message}", "tool_calls": [
            {"name": "look", "arguments": {"for": message}, "result": "nothing"}]}
"""


@pytest.fixture
def talks(agent_dir: AgentFolder):
    """A folder with one simulated case, whose judge and user the server plays."""
    agent_dir.write("bot.py", BOT)
    agent_dir.write_agent(
        backend="bot:Bot",
        model=None,
        instructions=None,
        evaluations={"model": agent_dir.model()},
        test_cases=[
            {
                "name": "hungry",
                "simulate": {"situation": "wants a recipe", "facts": ["has rice"]},
                "criteria": ["Looks before it answers"],
                "max_turns": 3,
            }
        ],
    )
    line = json.dumps({"message": "dinner?", "done": False})
    agent_dir.server.when("what the user writes next", line)
    return agent_dir


def verdict(status):
    told = {"c1": {"reasoning": "it looked", "status": status}, "decision": "verdict"}
    return json.dumps(told)


@pytest.mark.parametrize(
    ("answer", "code"), [(verdict("passed"), 0), (verdict("failed"), 1), ("hm", 4)], ids=[0, 1, 4]
)
def test_the_judges_word_is_the_exit_code(talks, answer, code):
    talks.server.otherwise(answer)

    ran = talks.run("test", "-o", "r.md")

    assert ran.code == code, ran.stderr
    report = (talks.path / "r.md").read_text()
    assert "heard dinner?" in report
    assert ("| Looks before it answers |" in report) is (code != 4)


def test_a_simulated_conversation_is_kept_by_resume_and_judged_again_by_score(talks):
    talks.server.when("# Criteria", verdict("passed"), times=1)
    talks.server.otherwise(verdict("failed"))

    first = talks.run("test")
    asked = len(talks.server.requests)
    again = talks.run("test", "--resume")
    asked_again = len(talks.server.requests)
    scored = talks.run("score", "-o", "s.json")

    assert (first.code, again.code, scored.code) == (0, 0, 1)
    assert asked_again == asked
    assert len(talks.server.requests) == asked + 1
    [result] = json.loads((talks.path / "s.json").read_text())["results"]
    assert result["criteria"][0]["status"] == "failed"
    assert result["turns"][0]["tool_invocations"][0]["name"] == "look"


def test_a_script_is_played_by_the_command_without_any_model(talks):
    steps = [
        {"user": "rice?"},
        "agent",
        {"check": {"expected_tools": ["look"]}},
        {"call": "steps:heard"},
        {"agent": "As I said."},
        {"user": "beans?"},
        "agent",
        "succeed",
    ]
    talks.write("steps.py", "def heard(state):\n    assert 'rice' in state.transcript()\n")
    talks.write_agent(
        backend="bot:Bot",
        model=None,
        instructions=None,
        test_cases=[{"name": "scripted", "script": steps}],
    )

    ran = talks.run("test", "-o", "r.json")

    assert (ran.code, ran.stderr) == (0, "")
    [result] = json.loads((talks.path / "r.json").read_text())["results"]
    assert [one["outcome"] for one in result["turns"]] == ["passed", None]
    assert talks.server.requests == []
