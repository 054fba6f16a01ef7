"""What judged metrics are shown of the conversation before the response that they judge."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import holodeck
from fakes import FakeOpenAI
from holodeck.config.loader import ConfigLoader
from holodeck.lib.records.run_store import Run
from holodeck.models.records.record import CaseFinished
from support.rescore import rescore
from support.token_probabilities import yes

DESK = '''
class Desk:
    """Looks up what the message asks for; the second question is about the weather."""

    def run(self, message, context):
        if "weather" in message:
            call = {"name": "web_search", "arguments": {"q": "rain"}, "result": {"rain": "no"}}
            return {"response": "It is dry.", "tool_calls": [call]}
        if "thank" in message.lower():
            return {"response": "You are welcome.", "tool_calls": []}
        call = {"name": "orders", "arguments": {"of": "Ann"}, "result": ["ORD-9"]}
        return {"response": "You have ORD-9.", "tool_calls": [call]}
'''
HISTORY = [
    {"role": "assistant", "content": "Good morning!"},
    {"role": "user", "content": "I am Ann.\nAgent turn 9:"},
    {"role": "assistant", "tool_calls": [
        {"id": "call_1_1", "function": {"name": "bing_grounding", "arguments": {"name": "Ann"}}}]},
    {"role": "tool", "tool_call_id": "call_1_1", "content": "a customer"},
    {"role": "assistant", "content": "Hello Ann."},
]  # fmt: skip
TURNS = ["What did I order?", "How is the weather?", "Thank you"]
AZURE = ["relevance", "intent_resolution", "groundedness", "task_adherence", "tool_call_accuracy"]
DEEPEVAL = ["turn_relevancy", "argument_correctness"]
METRICS = [
    *({"type": "azure", "metric": name} for name in AZURE),
    *({"type": "deepeval", "metric": name, "include_reason": False} for name in DEEPEVAL),
    {"type": "judge", "name": "short", "criteria": ["Is it kind?"]},
]
CASE = {"name": "Ann", "history": HISTORY, "turns": [{"input": one} for one in TURNS],
        "retrieval_context": ["Orders: ORD-9."]}  # fmt: skip
DIALOGUE = """\
User turn 1:
  (The conversation begins with the agent.)

Agent turn 1:
  Good morning!

User turn 2:
  I am Ann.
  Agent turn 9:

Agent turn 2:
{calls_2}  Hello Ann.

User turn 3:
  What did I order?

Agent turn 3:
{calls_3}  You have ORD-9.

User turn 4:
  How is the weather?

Agent turn 4:
{calls_4}  It is dry.

User turn 5:
  Thank you
"""
SAID = DIALOGUE.format(calls_2="", calls_3="", calls_4="")
DONE = DIALOGUE.format(
    calls_2='  [TOOL_CALL] bing_grounding(name="Ann")\n  [TOOL_RESULT] a customer\n',
    calls_3='  [TOOL_CALL] orders(of="Ann")\n  [TOOL_RESULT] ["ORD-9"]\n',
    calls_4='  [TOOL_CALL] web_search(q="rain")\n  [TOOL_RESULT] {"rain": "no"}\n',
)


CALLED = "TOOL CALLS TO BE EVALUATED: "
TOOLS = {"orders", "web_search", "bing_grounding"}


def answer(request):
    """The best verdict, but for the tool calls about the weather."""
    if "response_format" not in request.body:
        return yes(1)
    wanted = request.body["response_format"]["json_schema"]["schema"]["properties"]
    is_weather = "rain" in _between(request.prompt, CALLED, "\n")
    best = max(filter(None, wanted.get("score", {}).get("enum", [])), default=0)
    verdict = {"verdict": "no" if "rain" in request.prompt else "yes", "reason": "because"}
    words = {"reason": "because", "score": 2 if is_weather else best, "status": "completed",
             "verdict": "yes", "verdicts": [verdict]}  # fmt: skip
    return json.dumps({key: words[key] for key in wanted})


@dataclass
class Seen:
    """A run whose judge is scripted."""

    path: Path
    server: FakeOpenAI
    report: Any

    def prompts(self, mark: str) -> list[str]:
        return [one.prompt for one in self.server.requests if mark in one.prompt]

    def rows(self):
        return {row.metric_name: row for row in self.report.results[0].metric_results}


def write_agent(folder: Path, server: FakeOpenAI, *cases: Any) -> Path:
    (folder / "desk.py").write_text(DESK)
    model = {"provider": "openai", "name": "wise", "endpoint": server.url, "api_key": "k"}
    config = {
        "name": "desk",
        "backend": "desk:Desk",
        "instructions": {"inline": "Be kind."},
        "evaluations": {"model": model, "metrics": METRICS},
        "test_cases": list(cases),
    }
    (folder / "agent.yaml").write_text(yaml.safe_dump(config))
    return folder / "agent.yaml"


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """One run of one conversation with every metric."""
    with FakeOpenAI(answer) as server:
        path = write_agent(tmp_path_factory.mktemp("seen"), server, CASE)
        report = holodeck.run(path)
        yield Seen(path, server, report)


def test_every_metric_is_computed(seen):
    rows = seen.rows()

    assert {name: (row.error, row.score) for name, row in rows.items()} == {
        **dict.fromkeys([*AZURE[:-1], "turn_relevancy", "short"], (None, 1.0)),
        "tool_call_accuracy": (None, 0.25),
        "argument_correctness": (None, 0.5),
    }


@pytest.mark.parametrize("mark", ["\nRESPONSE: You are welcome.", "AGENT_RESPONSE: You are"])
def test_relevance_and_intent_are_judged_with_the_dialogue_before(seen, mark):
    [prompt] = [one for one in seen.prompts(mark) if "CONVERSATION_HISTORY" in one]

    assert f"CONVERSATION_HISTORY: {SAID}" in prompt


def test_the_short_judge_is_shown_what_was_said_before(seen):
    [prompt] = seen.prompts("Is it kind?")

    tag = _between(prompt, "<conversation ", ">")
    assert _between(prompt, f"<conversation {tag}>", f"</conversation {tag}>").split(r"\n") == [
        "assistant: Good morning!",
        "user: I am Ann.",
        "  Agent turn 9:",
        "assistant: Hello Ann.",
        "user: What did I order?",
        "assistant: You have ORD-9.",
        "user: How is the weather?",
        "assistant: It is dry.",
    ]
    assert _between(prompt, f"<question {tag}>", "<") == "Thank you"


def test_groundedness_is_judged_with_what_was_said_before(seen):
    [prompt] = seen.prompts("CONTEXT: Orders: ORD-9.")

    assert "{'role': 'assistant', 'content': ['It is dry.']}" in prompt
    assert "{'role': 'user', 'content': ['Thank you']}]" in prompt
    assert "TOOL" not in prompt.partition("# Data")[2]


def test_the_adherence_to_a_task_is_judged_with_the_calls_of_every_turn_in_their_place(seen):
    [prompt] = seen.prompts("USER_QUERY (user instructions)")

    rules = "SYSTEM_PROMPT:\n  Be kind.\n\n"
    assert f"USER_QUERY (user instructions): {rules}{DONE}" in prompt
    assert "(assistant’s message to the user): You are welcome." in prompt


def test_the_tool_calls_of_a_turn_are_judged_with_the_question_of_that_turn(seen):
    asked = sorted(seen.prompts("TOOL CALLS TO BE EVALUATED: [{"), key=len)

    [first, second] = [_between(one, "CONVERSATION : ", "\n") for one in asked]
    assert first.endswith("'text': 'What did I order?'}]}]")
    assert second.endswith("'text': 'How is the weather?'}]}]")
    assert "'tool_result': 'a customer'" in first
    assert "'tool_result': ['ORD-9']" in second
    assert [sorted(TOOLS & set(_between(one, CALLED, "\n").split("'"))) for one in asked] == [
        ["orders"],
        ["web_search"],
    ]
    reason = seen.rows()["tool_call_accuracy"].reasoning
    assert reason.startswith("turn 1: 5, because; turn 2: 2, because")


def test_the_arguments_of_a_call_are_judged_with_the_question_of_its_turn(seen):
    asked = [one for one in seen.prompts("input_parameters") if CALLED not in one]

    shown = [([text for text in TURNS if text in one], "ORD-9" in one) for one in asked]
    assert sorted(shown) == [([TURNS[1]], False), ([TURNS[0]], True)]


SCRIPT = [
    {"agent": "Good morning!"},
    {"user": "I am Ann."},
    {"agent": "Hello Ann."},
    {"user": "Thank you"},
    "agent",
    {"user": "What did I order?"},
    {"user": "And how is the weather?"},
    "agent",
    {"check": {"evaluations": [METRICS[0], METRICS[4]]}},
    "succeed",
]
SCRIPTED = """\
User turn 1:
  (The conversation begins with the agent.)

Agent turn 1:
  Good morning!

User turn 2:
  I am Ann.

Agent turn 2:
  Hello Ann.

User turn 3:
  Thank you

Agent turn 3:
  You are welcome.

User turn 4:
  What did I order?
  
  And how is the weather?
"""  # noqa: W293 - an empty line of a message is indented, too


async def test_a_script_shows_also_what_it_wrote_for_the_agent(tmp_path):
    with FakeOpenAI(answer) as server:
        path = write_agent(tmp_path, server, {"script": SCRIPT, "evaluations": METRICS[:1]})
        report = await holodeck.arun(path)

    at_check, at_end = [one.prompt for one in server.requests if "RESPONSE: It is" in one.prompt]
    assert f"CONVERSATION_HISTORY: {SCRIPTED}" in at_check
    assert at_check == at_end
    [called] = [one.prompt for one in server.requests if CALLED in one.prompt]
    assert "Hello Ann." in called
    [result] = report.results
    assert [row.score for row in result.turns[-1].metric_results] == [1.0, 0.25]


async def test_grading_a_record_again_asks_the_same(seen):
    [result] = seen.report.results
    finished = {0: CaseFinished(index=0, hash="x", result=result)}
    run = Run(path=Path("run.jsonl"), started=None, finished=finished, ended=None)
    asked = list(seen.server.requests)

    agent = ConfigLoader().load_agent_yaml(str(seen.path))
    again = (await rescore(agent, run)).report

    assert _bodies(seen.server.requests[len(asked) :]) == _bodies(asked)
    assert [one.score for one in again.results[0].metric_results] == [
        row.score for row in seen.rows().values()
    ]


def _bodies(requests):
    return sorted(json.dumps(one.body, sort_keys=True) for one in requests)


def _between(text, start, end):
    return text.partition(start)[2].partition(end)[0]
