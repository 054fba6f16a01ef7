"""`judge_trust`: the verdict of a judge counts for what a check with labels has shown."""

import json

import pytest

from fakes import run_cli
from support.token_probabilities import yes

QUESTION = "Does it name a price?"
AGENT = """
name: shop
backend: "shop:answer"
execution: {{judge_trust: {mode}}}
evaluations:
  model: {{provider: openai, name: {model}, endpoint: "{url}", api_key: k}}
  metrics:
    - {{type: judge, name: price, criteria: ["{question}"]{extra}}}
test_cases:
  - {{name: chair, input: How much?{case}}}
"""


@pytest.fixture
def project(fake_openai, tmp_path):
    """Writes the project; the judge says yes to euros."""
    by_euros = lambda request: yes(0.9 if "euros" in request.prompt else 0.1)  # noqa: E731
    fake_openai.otherwise(by_euros)
    (tmp_path / "shop.py").write_text("def answer(text): return 'Nine euros.'\n")

    def write(mode="require", model="wise", question=QUESTION, extra="", case=""):
        keys = {"mode": mode, "model": model, "question": question, "extra": extra, "case": case}
        (tmp_path / "agent.yaml").write_text(AGENT.format(url=fake_openai.url, **keys))
        return tmp_path

    return write


def check(folder, good=30, bad=30, fooled=0, metric="price"):
    rows = [("pass", f"{n} euros.") for n in range(good)]
    rows += [("fail", f"{n} euros or not." if n < fooled else f"Ask {n}.") for n in range(bad)]
    with (folder / "labels.jsonl").open("w") as file:
        for label, response in rows:
            data = {"input": "How much?", "response": response, "label": label}
            file.write(json.dumps(data | {"criterion": QUESTION}) + "\n")
    arguments = ("labels.jsonl", "--metric", metric, "--quick", "--save")
    return run_cli("judge", "check", *arguments, cwd=folder)


def run(folder, *args):
    """The exit code, the row of the metric, and the notes of the report."""
    ran = run_cli("test", "agent.yaml", "-o", "report.json", *args, cwd=folder)
    report = json.loads((folder / "report.json").read_text())
    rows = report["results"][0]["metric_results"]
    return ran, rows[0] if rows else None, "\n".join(report["notes"])


def test_a_required_judge_decides_only_after_a_check_that_shows_it_is_good(project):
    folder = project()
    before, row, note = run(folder)
    checked = check(folder)
    after, trusted, quiet = run(folder)

    assert before.code == 4
    assert (row["passed"], row["inconclusive"], row["judge_trust"]) == (None, True, "not checked")
    assert "the judge may not decide: it is not checked" in row["reasoning"]
    assert "price (not checked)" in note
    assert checked.code == 0
    assert "judge_checks.json" in checked.stderr
    assert after.code == 0
    assert (trusted["passed"], trusted["judge_trust"], quiet) == (True, "checked", "")
    stored = json.loads((folder / "judge_checks.json").read_text())["metrics"]
    assert [(one["metric"], one["judge"], one["verdict"]) for one in stored] == [
        ("price", "openai/wise", "may gate")
    ]
    assert "euros" not in (folder / "judge_checks.json").read_text()


STALE = {
    "another judge": {"model": "cheap"},
    "another question": {"question": "Does it name a price in euros?"},
    "another threshold": {"extra": ", threshold: 0.2"},
    "other votes": {"extra": ", votes: 3"},
}


@pytest.mark.parametrize("changes", STALE.values(), ids=STALE)
def test_a_check_of_something_else_is_stale(project, changes):
    check(project())

    ran, row, note = run(project(**changes))

    assert ran.code == 4
    assert (row["passed"], row["judge_trust"]) == (None, "stale")
    assert "price (stale)" in note


def test_what_does_not_change_the_verdict_keeps_the_check(project):
    check(project())

    ran, row, _ = run(project(extra=", fail_on_error: true, include_reason: false"))

    assert (ran.code, row["judge_trust"]) == (0, "checked")


NOT_ENOUGH = {
    "too few labels": ({"good": 12, "bad": 12}, "not known yet"),
    "bad responses pass": ({"fooled": 12}, "not good enough"),
}


@pytest.mark.parametrize(("labels", "trust"), NOT_ENOUGH.values(), ids=NOT_ENOUGH)
def test_a_check_that_does_not_show_it_is_not_trusted(project, labels, trust):
    folder = project()
    check(folder, **labels)

    ran, row, _ = run(folder)

    assert (ran.code, row["passed"], row["judge_trust"]) == (4, None, trust)


def test_a_criterion_without_labels_is_not_trusted(project):
    folder = project()
    text = (folder / "agent.yaml").read_text()
    two = text.replace(f'["{QUESTION}"]', f'["{QUESTION}", Is it short?]')
    (folder / "agent.yaml").write_text(two)
    check(folder)

    _, row, _ = run(folder)

    stored = json.loads((folder / "judge_checks.json").read_text())["metrics"]
    assert stored[0]["unlabelled"] == ["Is it short?"]
    assert (row["passed"], row["judge_trust"]) == (None, "not known yet")


def test_by_default_it_is_a_note_and_beside_the_verdict(project):
    folder = project(mode="warn")

    ran, row, note = run(folder)
    report = run_cli("report", "last", "--format", "markdown", cwd=folder)

    assert (ran.code, row["passed"], row["judge_trust"]) == (0, True, "not checked")
    assert "price (not checked)" in note
    assert "judge not checked" in report.stdout


def test_it_can_be_off_for_a_run_and_for_a_metric(project):
    of_run, row, note = run(project(mode="off"))
    of_metric, own, quiet = run(project(extra=", judge_trust: off"))
    of_flag, flagged, _ = run(project(mode="off"), "--judge-trust", "require")

    assert (of_run.code, row["judge_trust"], note) == (0, None, "")
    assert (of_metric.code, own["judge_trust"], quiet) == (0, None, "")
    assert (of_flag.code, flagged["passed"]) == (4, None)


def test_criteria_need_a_check_of_their_own(project, fake_openai):
    folder = project(case=", criteria: [It names a price]", extra=", judge_trust: off")
    verdict = {"c1": {"reasoning": "Yes.", "status": "passed"}}
    fake_openai.when(lambda request: "logprobs" not in request.body, json.dumps(verdict))

    ran, _, note = run(folder)

    assert ran.code == 4
    assert "the judge of the criteria may not decide: it is not checked" in ran.stdout
    assert "criteria (not checked)" in note


def test_responses_that_are_graded_again_need_the_check_too(project):
    folder = project(mode="off")
    run(folder)
    project()

    ran = run_cli("score", cwd=folder)

    assert ran.code == 4
    assert "the judge may not decide" in ran.stdout


@pytest.mark.parametrize("text", ["{", '{"metrics": [{"metric": "price"}]}', "[]"])
def test_a_damaged_file_of_checks_is_an_error_that_names_it(project, text):
    folder = project()
    (folder / "judge_checks.json").write_text(text)

    ran = run_cli("test", "agent.yaml", cwd=folder)

    assert ran.code == 2
    assert "judge_checks.json" in ran.stderr
    assert "run 'holodeck judge check --save' again" in ran.stderr
