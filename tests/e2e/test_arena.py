"""`holodeck compare --arena`: which answers a judge prefers, each pair in both orders."""

import json

import pytest

from fakes import run_cli

AGENT = """
name: shop
backend: "bot:answer"
evaluations:
  model: {{provider: openai, name: wise, endpoint: "{url}", api_key: k}}
test_cases:
  - name: price
    input: price
    ground_truth: Nine euros
    evaluations: [{{metric: contains, value: a}}]
  - {{name: hours, input: hours, evaluations: [{{metric: contains, value: a}}]}}
  - name: talk
    turns: [{{input: one}}, {{input: two}}]
    evaluations: [{{metric: contains, value: a}}]
"""
BOT = "def answer(message):\n    return f'{word} answer about {{message}}'\n"


@pytest.fixture
def runs(tmp_path, fake_openai):
    """The folder of an agent with a run of bad answers, and then one of good answers."""
    (tmp_path / "agent.yaml").write_text(AGENT.format(url=fake_openai.url))
    for word in ("bad", "good"):
        (tmp_path / "bot.py").write_text(BOT.format(word=word))
        assert run_cli("test", "agent.yaml", cwd=tmp_path).code == 0
    return tmp_path


def answers_of(request):
    """What the judge sees of each answer, under its name, in the order of the prompt."""
    text = request.prompt
    shown = text[text.rindex('"arena_test_cases"') :]
    lines = [line for line in shown.splitlines() if line.strip().startswith(('"Alice"', '"Bob"'))]
    return {line.strip().split('"')[1]: line for line in lines}


def judging(choose):
    """A judge that chooses between what it sees, and the reason of which names the answers."""

    def said(request):
        wanted = request.body["response_format"]["json_schema"]["schema"]["properties"]
        if "steps" in wanted:
            return json.dumps({"steps": ["Look for facts"]})
        if "rewritten_reason" in wanted:
            return json.dumps({"rewritten_reason": "it has more facts"})
        return json.dumps({"winner": choose(request), "reason": "it has more facts"})

    return said


def prefers(word):
    return lambda request: next(name for name, text in answers_of(request).items() if word in text)


def compared(folder, *args):
    ran = run_cli(
        "compare", "previous", "last", "--arena", "More facts win", "-o", "c.json", *args,
        cwd=folder,
    )  # fmt: skip
    file = folder / "c.json"
    return ran, json.loads(file.read_text()) if file.exists() else None


def test_the_answer_that_is_preferred_in_both_orders_wins(runs, fake_openai):
    fake_openai.otherwise(judging(prefers("good")))

    ran, report = compared(runs)

    assert ran.code == 0, ran.stderr
    preferences = report["preferences"]
    assert [preferences[key] for key in ("first", "second", "none", "undecided", "left_out")] == [
        0, 2, 0, 0, 1,
    ]  # fmt: skip
    assert preferences["p_value"] == 0.5
    assert preferences["judge_calls"] == len(fake_openai.requests) == 9
    assert [pair["preference"] and pair["preference"]["winner"] for pair in report["pairs"]] == [
        "second", "second", None,
    ]  # fmt: skip
    assert "prefers the answer of A in 0 cases and that of B in 2" in ran.stdout
    assert "1 pair without two answers to one input left out" in ran.stdout
    assert "Luck may explain this difference (sign test, p = 0.5)" in ran.stdout


def test_the_judge_sees_each_pair_in_both_orders_without_names_of_agents(runs, fake_openai):
    fake_openai.otherwise(judging(prefers("good")))

    compared(runs)

    contests = [one for one in fake_openai.requests if '"arena_test_cases"' in one.prompt]
    orders = [
        ["good" in text for text in answers_of(one).values()]
        for one in contests
        if "about price" in one.prompt
    ]
    assert sorted(orders) == [[False, True], [True, False]]
    assert all(list(answers_of(one)) == ["Alice", "Bob"] for one in contests)
    assert sum("Nine euros" in one.prompt for one in contests) == 2
    assert sum('"steps"' in json.dumps(one.body) for one in fake_openai.requests) == 1


def test_a_choice_that_follows_the_order_is_no_preference(runs, fake_openai):
    fake_openai.otherwise(judging(lambda _: "Alice"))

    ran, report = compared(runs, "--verbose")

    assert ran.code == 0
    assert (report["preferences"]["none"], report["preferences"]["p_value"]) == (2, None)
    assert "preferred: neither: the choice changed with the order" in ran.stdout


@pytest.mark.parametrize("winner", ["A", "Carol", ""])
def test_an_unreadable_verdict_is_undecided(runs, fake_openai, winner):
    fake_openai.otherwise(judging(lambda _: winner))

    ran, report = compared(runs)

    assert ran.code == 4
    assert report["preferences"]["undecided"] == 2
    assert report["pairs"][0]["preference"]["winner"] == "undecided"
    assert "did not answer as asked, twice" in report["pairs"][0]["preference"]["reason"]


def test_a_baseline_has_no_answers_to_compare(runs, fake_openai):
    assert run_cli("bless", "previous", cwd=runs).code == 0

    ran = run_cli("compare", "--arena", "More facts win", cwd=runs)

    assert ran.code == 2
    assert "a baseline keeps no answers" in ran.stderr
    assert fake_openai.requests == []


def test_criteria_must_be_written(runs):
    ran = run_cli("compare", "previous", "last", "--arena", " ", cwd=runs)

    assert ran.code == 2
    assert "--arena: is empty; write what makes" in ran.stderr


def test_the_pages_show_preferences(runs, fake_openai):
    fake_openai.otherwise(judging(prefers("bad")))

    compared(runs, "-o", "c.md", "-o", "c.html")

    for name in ("c.md", "c.html"):
        assert "prefers the answer of A in 2 cases" in (runs / name).read_text()
