"""`holodeck judge label`: a person judges recorded responses, blind to the judge's verdict."""

import json

import pytest

from fakes import run_cli
from support.token_probabilities import yes

AGENT = """
name: shop
backend: "shop:answer"
evaluations:
  model: {{provider: openai, name: wise, endpoint: "{url}", api_key: k}}
  metrics:
    - {{type: judge, name: tone, criteria: [Is it polite?, Does it name a price?]}}
test_cases:
  - {{name: chair, input: How much is a chair?, ground_truth: Nine euros}}
  - name: talk
    turns: [{{input: Hello}}, {{input: And a table?}}]
"""
SHOP = """
def answer(text):
    call = {"name": "look", "arguments": {"q": text}}
    return {"response": f"\\x1b[31m{text} Nine.", "tool_calls": [call]}
"""


@pytest.fixture
def project(fake_openai, tmp_path):
    fake_openai.otherwise(yes(0.13))
    (tmp_path / "agent.yaml").write_text(AGENT.format(url=fake_openai.url))
    (tmp_path / "shop.py").write_text(SHOP)
    assert run_cli("test", "agent.yaml", cwd=tmp_path).code == 1
    return tmp_path


def label(project, answers, *args):
    return run_cli("judge", "label", "--metric", "tone", *args, cwd=project, stdin=answers)


def labels_in(project):
    return [json.loads(line) for line in (project / "labels.jsonl").read_text().splitlines()]


def test_each_answer_is_a_label_and_the_next_session_goes_on_where_the_last_one_ended(project):
    first = label(project, "pass\nnonsense\nf\n")
    second = label(project, "f\nq\n")
    third = label(project, "p\n")
    last = label(project, "")

    assert first.code == second.code == third.code == last.code == 0
    assert "4 to label" in first.stdout
    assert "'nonsense' is no answer; write one of pass, fail, skip, undo, quit" in first.stdout
    assert "labels.jsonl: 2 labels (1 pass, 1 fail)" in first.stdout
    assert "add" not in first.stdout
    assert "2 to label, 2 already done" in second.stdout
    assert "All 4 responses" in last.stdout
    assert "A decision needs at least 8 more with 'pass' and 34 more with 'fail'" in last.stdout
    found = labels_in(project)
    assert [one["label"] for one in found] == ["pass", "fail", "fail", "pass"]
    assert sorted((one["input"], one["criterion"]) for one in found) == [
        ("And a table?", "Does it name a price?"),
        ("And a table?", "Is it polite?"),
        ("How much is a chair?", "Does it name a price?"),
        ("How much is a chair?", "Is it polite?"),
    ]


def test_what_the_judge_said_is_not_shown_and_nothing_reaches_the_terminal_unescaped(project):
    ran = label(project, "s\ns\ns\ns\n")

    assert "Response:" in ran.stdout
    assert "Ground truth: Nine euros" in ran.stdout
    assert "assistant:" in ran.stdout  # the turn before
    for secret in ("0.13", "p(yes)", "\x1b", "FAIL"):
        assert secret not in ran.stdout + ran.stderr
    assert "(0 pass, 0 fail)" in ran.stdout


def test_an_answer_can_be_undone(project):
    label(project, "p\n")
    before = labels_in(project)

    ran = label(project, "f\nu\nu\ns\nu\np\nq\n")

    assert "There is nothing to undo" in ran.stdout
    after = labels_in(project)
    assert after[:1] == before
    assert [one["label"] for one in after[1:]] == ["pass"]


def test_several_people_label_the_same_responses_in_one_file(project):
    anna = label(project, "p\np\nf\nf\n", "--labeler", "anna")
    ben = label(project, "p\nf\nq\n", "--labeler", "ben")
    nobody = label(project, "", "--labeler", "anna")

    assert anna.code == ben.code == 0
    assert "4 to label" in ben.stdout
    assert "labels.jsonl: 3 labels (1 pass, 2 fail)" in ben.stdout  # and a tie
    assert "All 4 responses" in nobody.stdout
    assert [row["labels"] for row in labels_in(project)][3:] == [
        {"anna": "fail"},
        {"ben": "pass"},
        {"ben": "fail"},
    ]
    ran = run_cli("judge", "check", "labels.jsonl", "--metric", "tone", "--quick", cwd=project)
    assert ran.code == 0
    assert "1 of 2 responses with several labels" in ran.stdout
    assert "answers                     3" in ran.stdout


def test_a_label_asks_the_judge_what_the_run_asked(project, fake_openai):
    in_run = sorted(one.prompt for one in fake_openai.requests)
    label(project, "p\np\nf\nf\n")
    count = len(fake_openai.requests)

    ran = run_cli("judge", "check", "labels.jsonl", "--metric", "tone", "--quick", cwd=project)

    assert ran.code == 0
    assert sorted(one.prompt for one in fake_openai.requests[count:]) == in_run


def test_a_run_without_such_responses_and_an_unknown_metric_say_so(project):
    unknown = label(project, "", "--metric", "tune")
    without = label(project, "", "--metric", "criteria")

    assert unknown.code == without.code == 2
    assert "no judged metric is named 'tune'; known: tone, criteria" in unknown.stderr
    assert "has no response to label" in without.stderr
