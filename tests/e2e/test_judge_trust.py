"""`judge_trust`: the verdict of a judge counts for what a check with labels has shown."""

import json
import re

import pytest

from fakes import FakeOpenAI, run_cli
from support.token_probabilities import yes

QUESTION = "Does it name a price?"
AGENT = """
name: shop
backend: "shop:answer"
{execution}
evaluations:
  model: {{provider: openai, name: {model}, endpoint: "{url}", api_key: k}}
{metrics}
test_cases:
  - {{name: chair{case}}}
"""
PRICE = '{{type: judge, name: price, criteria: ["{question}"]{extra}}}'
ASKED = ", input: How much?"


def by_euros(request):
    return yes(0.9 if "euros" in request.prompt else 0.1)


def verdicts_on_criteria(request):
    """Every criterion of a case holds if the agent names euros."""
    status = "passed" if "euros" in request.prompt else "failed"
    keys = re.findall(r"^\W*(c\d+)\b", request.prompt, re.MULTILINE) or ["c1"]
    return json.dumps({key: {"reasoning": "So it is.", "status": status} for key in keys})


@pytest.fixture
def project(fake_openai, tmp_path):
    """Writes the project; the judge says yes to euros."""
    fake_openai.otherwise(by_euros)
    fake_openai.when("c1:", verdicts_on_criteria)
    (tmp_path / "shop.py").write_text("def answer(text): return 'Nine euros.'\n")

    def write(
        mode="require",
        model="wise",
        question=QUESTION,
        extra="",
        case=ASKED,
        url=None,
        metric=PRICE,
    ):
        listed = metric.format(question=question, extra=extra)
        execution = "" if mode is None else f"execution: {{judge_trust: {mode}}}"
        keys = {"execution": execution, "model": model, "case": case}
        keys |= {"url": url or fake_openai.url, "metrics": f"  metrics: [{listed}]" * bool(metric)}
        (tmp_path / "agent.yaml").write_text(AGENT.format(**keys))
        return tmp_path

    return write


def check(folder, *args, good=40, bad=40, fooled=0, metric="price", criterion=QUESTION):
    rows = [("pass", f"{n} euros.") for n in range(good)]
    rows += [("fail", f"{n} euros or not." if n < fooled else f"Ask {n}.") for n in range(bad)]
    with (folder / "labels.jsonl").open("w") as file:
        for label, response in rows:
            data = {"input": "How much?", "response": response, "label": label}
            about = {} if criterion is None else {"criterion": criterion}
            file.write(json.dumps(data | about) + "\n")
    return run_cli(
        "judge", "check", "labels.jsonl", "--metric", metric, "--quick", *args, cwd=folder
    )


def save(folder, *args, **labels):
    return check(folder, "--save", *args, **labels)


def run(folder, *args):
    """The exit code, the row of the metric, and the notes of the report."""
    ran = run_cli("test", "agent.yaml", "-o", "report.json", *args, cwd=folder)
    assert (folder / "report.json").exists(), ran
    report = json.loads((folder / "report.json").read_text())
    rows = report["results"][0]["metric_results"]
    return ran, rows[0] if rows else None, "\n".join(report["notes"])


def test_a_required_judge_decides_only_after_a_check_that_shows_it_is_good(project):
    folder = project()
    before, row, note = run(folder)
    checked = save(folder)
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
    save(project())

    ran, row, note = run(project(**changes))

    assert ran.code == 4
    assert (row["passed"], row["judge_trust"]) == (None, "stale")
    assert "price (stale)" in note


def test_what_does_not_change_the_verdict_keeps_the_check(project):
    save(project())

    ran, row, _ = run(project(extra=", fail_on_error: true, include_reason: false"))

    assert (ran.code, row["judge_trust"]) == (0, "checked")


NOT_ENOUGH = {
    "too few labels": ({"good": 12, "bad": 12}, "not known yet"),
    "bad responses pass": ({"fooled": 12}, "not good enough"),
}


@pytest.mark.parametrize(("labels", "trust"), NOT_ENOUGH.values(), ids=NOT_ENOUGH)
def test_a_check_that_does_not_show_it_is_not_trusted(project, labels, trust):
    folder = project()
    save(folder, **labels)

    ran, row, _ = run(folder)

    assert (ran.code, row["passed"], row["judge_trust"]) == (4, None, trust)


def test_a_criterion_without_labels_is_not_trusted(project):
    folder = project()
    text = (folder / "agent.yaml").read_text()
    two = text.replace(f'["{QUESTION}"]', f'["{QUESTION}", Is it short?]')
    (folder / "agent.yaml").write_text(two)
    save(folder)

    _, row, _ = run(folder)

    stored = json.loads((folder / "judge_checks.json").read_text())["metrics"]
    assert stored[0]["labelled"] == [QUESTION]
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
    of_metric, own, quiet = run(project(mode=None, extra=", judge_trust: off"))
    of_flag, flagged, _ = run(project(mode="off"), "--judge-trust", "require")

    assert (of_run.code, row["judge_trust"], note) == (0, None, "")
    assert (of_metric.code, own["judge_trust"], quiet) == (0, None, "")
    assert (of_flag.code, flagged["passed"]) == (4, None)


@pytest.mark.parametrize(
    ("mode", "flags"), [("require", []), (None, ["--judge-trust", "require"])], ids=str
)
def test_a_metric_cannot_switch_off_what_the_run_requires(project, mode, flags):
    ran, row, note = run(project(mode=mode, extra=", judge_trust: off"), *flags)

    assert ran.code == 4
    assert (row["passed"], row["judge_trust"]) == (None, "not checked")
    assert "price (not checked)" in note


def test_a_metric_can_be_stricter_than_the_run(project):
    ran, row, _ = run(project(mode="off", extra=", judge_trust: require"))

    assert (ran.code, row["judge_trust"]) == (4, "not checked")


LOOSE = ("--min-kappa", "0.1", "--max-false-passes", "0.6")


def test_a_check_with_looser_limits_is_not_enough_and_reports_show_them(project):
    folder = project()
    saved = save(folder, *LOOSE, fooled=12)

    ran, row, note = run(folder)
    report = run_cli("report", "last", "--format", "markdown", cwd=folder)

    assert (saved.code, ran.code) == (0, 4)
    assert (row["passed"], row["judge_trust"]) == (None, "checked with looser limits")
    assert row["judge_limits"] == {"min_kappa": 0.1, "max_false_passes": 0.6}
    assert "price (checked with looser limits)" in note
    assert "looser limits (kappa ≥ 0.1, false passes ≤ 60 %)" in report.stdout


FLOORS = {
    "of the run": {"mode": "{mode: require, min_kappa: 0.95}"},
    "of the metric": {"extra": ", judge_trust: {mode: require, max_false_passes: 0.05}"},
}


@pytest.mark.parametrize("changes", FLOORS.values(), ids=FLOORS)
def test_the_limits_that_are_required_can_be_stricter(project, changes):
    save(project())

    ran, row, _ = run(project(**changes))

    assert ran.code == 4
    assert row["judge_trust"] == "checked with looser limits"


def test_limits_of_the_agent_file_stay_in_force_with_a_mode_from_the_command_line(project):
    save(project())

    ran, row, _ = run(project(mode="{mode: warn, min_kappa: 0.95}"), "--judge-trust", "require")

    assert (ran.code, row["judge_trust"]) == (4, "checked with looser limits")


def test_limits_can_be_loosened_where_everybody_sees_it(project):
    folder = project(mode="{mode: require, min_kappa: 0.1, max_false_passes: 0.6}")
    save(folder, *LOOSE, fooled=12)

    ran, row, _ = run(folder)

    assert (ran.code, row["judge_trust"]) == (0, "checked")
    assert (
        "kappa ≥ 0.1, false passes ≤ 60 %"
        in run_cli("report", "last", "--format", "markdown", cwd=folder).stdout
    )


@pytest.mark.parametrize(
    ("written", "said"),
    [("{mode: require, min_kapa: 0.6}", "min_kapa"), ("{mode: require, min_kappa: 6}", "6")],
)
def test_a_wrong_rule_is_an_error_that_names_it(project, written, said):
    ran = run_cli("validate", "agent.yaml", cwd=project(mode=written))

    assert ran.code == 2
    assert "agent.yaml:4" in ran.stderr
    assert said in ran.stderr


def test_the_same_model_at_another_endpoint_is_not_checked(project):
    save(project())

    with FakeOpenAI() as other:
        other.otherwise(by_euros)
        ran, row, note = run(project(url=other.url))

    assert ran.code == 4
    assert (row["passed"], row["judge_trust"]) == (None, "stale")
    assert "price (stale)" in note


def test_a_grader_whose_helper_module_changed_is_not_checked(project, fake_openai):
    folder = project(metric="{{type: code, grader: 'rules:price', judge: true}}")
    (folder / "rules.py").write_text("""
from prompts import ask

def price(case, judge):
    return judge.ask(ask(case.response))["passed"]
""")
    helper = "def ask(text):\n    return f'Does this name a price? {text}'\n"
    (folder / "prompts.py").write_text(helper)
    verdict = lambda request: json.dumps({"reason": "r", "passed": "euros" in request.prompt})  # noqa: E731
    fake_openai.when("Does this name", verdict)
    saved = save(folder, criterion=None)
    before, trusted, _ = run(folder)
    (folder / "prompts.py").write_text(helper.replace("a price", "any price"))

    after, row, _ = run(folder)

    assert (saved.code, before.code, trusted["judge_trust"]) == (0, 0, "checked")
    assert (after.code, row["judge_trust"]) == (4, "stale")


def criterion_rows(folder):
    return json.loads((folder / "report.json").read_text())["results"][0]["criteria"]


CRITERION_CASES = {
    "criteria": f'{ASKED}, criteria: ["{QUESTION}"%s]',
    "checkpoint": f', script: [{{user: How much?}}, agent, {{judge: ["{QUESTION}"%s]}}]',
}


@pytest.mark.parametrize("case", CRITERION_CASES.values(), ids=CRITERION_CASES)
def test_only_criteria_with_labels_count_wherever_they_stand(project, case):
    folder = project(case=case % "", metric="")
    unchecked, _, note = run(folder)
    save(folder, metric="criteria")
    trusted, _, _ = run(folder)
    rows = criterion_rows(folder)

    ran, _, _ = run(project(case=case % ", It never gives wrong medical doses", metric=""))

    assert unchecked.code == 4
    assert "criteria (not checked)" in note
    assert trusted.code == 0
    assert [row["judge_trust"] for row in rows] == ["checked"]
    assert rows[0]["judge_limits"] == {"min_kappa": 0.6, "max_false_passes": 0.1}
    assert ran.code == 4
    assert "'It never gives wrong medical doses' (not known yet)" in ran.stdout
    assert [row["judge_trust"] for row in criterion_rows(folder)] == ["checked", "not known yet"]


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


def test_looks_are_counted_without_saving_and_a_threshold_that_is_tuned_needs_fresh_labels(project):
    folder = project()
    first = check(folder, fooled=12)
    again = check(folder, "--gate", fooled=12)
    project(extra=", threshold: 0.95")
    tuned = check(folder, "--gate", fooled=12)
    project()
    more = check(folder, good=90, bad=90)

    stored = json.loads((folder / "judge_checks.json").read_text())
    assert first.code == 0
    assert "Stored the look, but not the result, in" in first.stderr
    assert "look at labels" not in again.stdout
    assert tuned.code == 2
    assert "80 more do not count, as other settings of metric or judge were tried" in tuned.stderr
    assert "look at labels              number 2" in more.stdout
    assert stored["metrics"] == []
    assert [len(log["looks"]) for log in stored["looks"]] == [2]
    assert "euros" not in json.dumps(stored)


def test_a_look_that_is_repeated_does_not_become_better(project, fake_openai):
    folder = project()
    save(folder, fooled=5)
    fake_openai.when("euros or not", yes(0.1))

    again = save(folder, fooled=5)

    assert "the same as before, whose worse result stands" in again.stdout
    assert run(folder)[0].code == 4
