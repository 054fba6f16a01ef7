"""`holodeck report --merge`: the report of shards and of several agents is that of one run."""

import json
import shutil

import pytest
import yaml

from holodeck.lib.reports.merge import NamedReport, merge_reports
from holodeck.lib.test_runner.grading.recorded import read_report
from holodeck.models.token_usage import Cost, TokenUsage
from support.ci import read_xml
from support.cli import run_cli


def case(number, wanted=None):
    return {
        "name": f"case {number}",
        "input": f"say {number}",
        "evaluations": [{"metric": "contains", "value": wanted or str(number)}],
    }


CASES = [case(at, "nothing" if at == 4 else None) for at in range(1, 8)]


@pytest.fixture
def folder(write_bot, bot_dir):
    """An agent of seven cases, the fourth of which fails."""
    write_bot(test_cases=CASES)
    return bot_dir


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """That agent after the runs of its three shards."""
    path = tmp_path_factory.mktemp("sharded")
    agent = {"name": "greeter", "backend": "bot:answer", "test_cases": CASES}
    (path / "agent.yaml").write_text(yaml.safe_dump(agent, sort_keys=False))
    (path / "bot.py").write_text("def answer(message):\n    return message\n")
    for number in (1, 2, 3):
        run_cli("test", "--shard", f"{number}/3", "-o", f"{number}.json", cwd=path)
    return path


@pytest.fixture
def shards(sharded, agent_dir):
    """A copy, with the JSON reports of the shards."""
    shutil.copytree(sharded, agent_dir.path, dirs_exist_ok=True)
    return agent_dir


def merge(folder, *runs, output="all.json"):
    ran = folder.run("report", *runs, "--merge", "-o", output)
    path = folder.path / output
    return ran, json.loads(path.read_text()) if path.suffix == ".json" and path.exists() else None


def test_shards_become_the_report_of_one_run(shards):
    whole = shards.run("test", "-o", "whole.json", "--no-record")
    expected = json.loads((shards.path / "whole.json").read_text())

    ran, found = merge(shards, "3.json", "1.json", "2.json")

    assert ran.code == whole.code == 1
    assert "3.json" not in ran.stderr.replace("Report saved", "")
    assert [one["test_name"] for one in found["results"]] == [f"case {at}" for at in range(1, 8)]
    assert (found["agent_name"], found["selection"]) == (expected["agent_name"], None)
    assert found["planned_tests"] == expected["planned_tests"] == 7
    for name in ("total_tests", "passed", "failed", "average_scores", "token_usage", "cost"):
        assert found["summary"][name] == expected["summary"][name]
    parts = [json.loads((shards.path / f"{at}.json").read_text())["summary"] for at in (1, 2, 3)]
    durations = [one["total_duration_ms"] for one in parts]
    assert found["summary"]["total_duration_ms"] == sum(durations)
    assert [one["selection"]["shard"] for one in found["merged"]] == ["1/3", "2/3", "3/3"]


def test_ids_records_and_reports_name_runs(shards):
    ids = sorted(path.name for path in (shards.path / ".holodeck" / "runs").glob("2*"))

    ran, _ = merge(shards, ids[0], f".holodeck/runs/{ids[1]}/run.jsonl", "3.json", output="x.xml")

    assert ran.code == 1
    assert read_xml(shards.path / "x.xml").tests == 7


def test_a_record_and_the_report_of_the_run_say_the_same(shards):
    [run_id] = [json.loads((shards.path / "1.json").read_text())["origin"]["run"]]

    shards.run("report", run_id, "-o", "again.json")

    assert (shards.path / "again.json").read_bytes() == (shards.path / "1.json").read_bytes()


def test_a_missing_shard_is_never_green(shards):
    ran, found = merge(shards, "2.json", "3.json")
    markdown = shards.run("report", "all.json")
    junit, _ = merge(shards, "all.json", output="part.xml")

    quality = json.loads(shards.run("report", "all.json", "--format", "codequality").stdout)

    assert (ran.code, junit.code) == (5, 5)
    assert (quality[-1]["check_name"], quality[-1]["severity"]) == (
        "holodeck/incomplete",
        "blocker",
    )
    assert "NOT COMPLETE: greeter: shard 1/3 is missing" in ran.stderr
    assert found["planned_tests"] is None
    assert "**Stopped: greeter: shard 1/3 is missing**" in markdown.stdout
    report = read_xml(shards.path / "part.xml")
    assert (report.failures, report.errors) == (0, 1)


def test_reports_that_were_merged_are_merged_again(shards):
    merge(shards, "2.json", "3.json")
    ran, found = merge(shards, "all.json", "1.json", output="rest.json")

    assert ran.code == 1
    assert (found["stopped"], found["summary"]["total_tests"]) == (None, 7)


def test_an_interrupted_shard_is_never_green(shards):
    report = json.loads((shards.path / "2.json").read_text())
    report["interrupted"], report["origin"]["exit_code"] = True, 130
    (shards.path / "2.json").write_text(json.dumps(report))

    ran, found = merge(shards, "1.json", "2.json", "3.json")

    assert ran.code == 130
    assert "Interrupted: greeter, shard 2/3" in ran.stderr
    assert found["interrupted"]


def change(folder, name, **fields):
    report = json.loads((folder.path / name).read_text())
    origin = report["origin"] | fields.pop("origin", {})
    (folder.path / name).write_text(json.dumps(report | fields | {"origin": origin}))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"holodeck_version": "0.1.0"}, "holodeck 0.2.0 and 0.1.0"),
        ({"origin": {"commit": "0123456789abcdef"}}, "commit unknown and 0123456789ab"),
        ({"origin": {"hashes": {"model": "other"}}}, "different model, instructions"),
        ({"origin": {"hashes": {}}}, "the configuration of one is unknown"),
    ],
    ids=["version", "commit", "configuration", "unknown"],
)
def test_shards_of_different_runs_are_refused(shards, fields, said):
    change(shards, "2.json", **fields)

    ran, found = merge(shards, "1.json", "2.json", "3.json")

    assert (ran.code, found) == (2, None)
    assert f"greeter: shard 1/3 (1.json) and shard 2/3 (2.json): {said}" in ran.stderr


def test_the_same_cases_twice_are_refused(folder):
    folder.run("test", "--shard", "1/2", "-o", "1.json")
    folder.run("test", "--shard", "1/3", "-o", "of-3.json")
    folder.run("test", "-k", "'case 1' or 'case 2'", "-o", "two.json")

    twice = merge(folder, "1.json", "1.json")[0]
    plans = merge(folder, "1.json", "of-3.json")[0]
    shared = merge(folder, "two.json", "1.json")[0]
    text = (folder.path / "agent.yaml").read_text()
    (folder.path / "agent.yaml").write_text(text.replace("say 5", "tell me 5"))
    folder.run("test", "--shard", "2/2", "-o", "edited.json")
    edited = merge(folder, "1.json", "edited.json")[0]

    assert (twice.code, plans.code, shared.code, edited.code) == (2, 2, 2, 2)
    assert "shards of different plans" in edited.stderr
    assert "shard 1/2 is there twice: 1.json and 1.json" in twice.stderr
    assert "shards of different plans" in plans.stderr
    assert "two.json and 1.json share 1 case: case 1" in shared.stderr


def test_what_is_no_report_is_refused(folder):
    (folder.path / "other.json").write_text('{"tests": 3}')
    folder.run("test")
    folder.run("bless")

    assert "is neither a baseline nor a JSON report" in merge(folder, "other.json")[0].stderr
    assert "is a baseline, which has no answers" in merge(folder, "baseline.json")[0].stderr
    assert "add --merge to join them" in folder.run("report", "last", "last").stderr


@pytest.fixture
def fleet(folder, write_bot):
    """Two agents of the same name, the second of which has one case."""
    other = folder.path / "other"
    other.mkdir()
    (other / "bot.py").write_text((folder.path / "bot.py").read_text())
    text = (folder.path / "agent.yaml").read_text()
    write_bot(test_cases=[case(1)])
    (folder.path / "agent.yaml").rename(other / "agent.yaml")
    (folder.path / "agent.yaml").write_text(text)
    return folder


AGENTS = ("agent.yaml", "other/agent.yaml")


def test_a_report_of_several_agents_names_the_agent_of_each_case(fleet):
    ran = fleet.run("test", *AGENTS, "-o", "all.xml", "-o", "all.md", "-o", "all.json")
    quality = fleet.run("report", "all.json", "--format", "codequality")

    assert ran.code == quality.code + 1 == 1
    suites = {suite.name: suite.tests for suite in read_xml(fleet.path / "all.xml")}
    assert suites == {"greeter (agent.yaml)": 7, "greeter (other/agent.yaml)": 1}
    assert "greeter (other/agent.yaml) › case 1" in (fleet.path / "all.md").read_text()
    [row] = json.loads(quality.stdout)
    assert row["location"]["path"] == "agent.yaml"


def test_shards_of_several_agents_are_whole_even_if_one_has_fewer_cases(fleet):
    for number in (1, 2):
        ran = fleet.run("test", *AGENTS, "--shard", f"{number}/2", "-o", f"{number}.json")
        assert ran.code in {0, 1}

    ran, found = merge(fleet, "1.json", "2.json")

    assert (ran.code, found["stopped"]) == (1, None)
    assert found["summary"]["total_tests"] == 8


def test_an_agent_that_could_not_be_run_is_missing_in_the_report(fleet):
    (fleet.path / "agent.yaml").write_text(
        (fleet.path / "agent.yaml").read_text().replace("nothing", "say")
    )
    (fleet.path / "other" / ".holodeck").write_text("a file, so that nothing can be recorded")

    ran = fleet.run("test", *AGENTS, "-o", "all.json")
    again, found = merge(fleet, "all.json", output="again.json")

    assert (ran.code, again.code) == (3, 3)
    assert found["stopped"].startswith("greeter (other/agent.yaml): the run cannot be recorded")


def test_merged_runs_are_compared_blessed_and_a_baseline(shards):
    merge(shards, "1.json", "2.json", "3.json")

    blessed = shards.run("bless", "all.json")
    itself = shards.run("compare", "baseline", "all.json", "--fail-on", "regression")
    gated = shards.run("test", "--baseline", "all.json", "--fail-on", "regression")
    merge(shards, "1.json", "2.json", output="part.json")
    for at in (1, 2):
        shards.run("test", "--shard", f"{at}/3", "-o", f"later{at}.json")
    merge(shards, "later1.json", "later2.json", output="later.json")
    partial = shards.run("compare", "all.json", "later.json", "--fail-on", "regression")

    assert blessed.stdout.endswith("6 of 7 cases passed\n")
    assert (itself.code, gated.code) == (2, 0), gated.stdout
    assert "is the run that BASE is, too" in itself.stderr
    assert "a case failed in the baseline, too: case 4" in gated.stdout
    assert partial.code == 5
    assert shards.run("bless", "part.json").code == 2


def test_a_baseline_of_several_agents_is_that_of_each(fleet):
    fleet.run("test", *AGENTS, "-o", "base.json")
    text = (fleet.path / "other" / "agent.yaml").read_text()
    (fleet.path / "other" / "agent.yaml").write_text(text.replace("name: greeter", "name: other"))
    fleet.run("test", *AGENTS, "-o", "named.json")

    ambiguous = fleet.run("test", "agent.yaml", "--baseline", "base.json")
    gated = fleet.run("test", "agent.yaml", "--baseline", "named.json", "--fail-on", "regression")
    fleet.run("test", *AGENTS, "-o", "later.json")
    compared = fleet.run("compare", "named.json", "later.json")

    assert ambiguous.code == 2
    assert "'greeter' does not name one of its agents" in ambiguous.stderr
    assert gated.code == 0
    assert "Passed on both: 7" in compared.stdout


def test_failures_that_a_baseline_excuses_do_not_fail_the_merged_run(folder):
    folder.run("test")
    folder.run("bless")
    gate = ("--baseline", "--fail-on", "regression")
    codes = [
        folder.run("test", "--shard", f"{at}/2", *gate, "-o", f"{at}.json").code for at in (1, 2)
    ]

    ran, found = merge(folder, "1.json", "2.json")

    assert (codes, ran.code) == ([0, 0], 0)
    assert found["summary"]["failed"] == 1


def test_runs_at_the_same_time_count_once(shards):
    reports = [read_report(shards.path / f"{at}.json") for at in (1, 2, 3)]
    ends = ("2026-01-01T10:00:10+00:00", "2026-01-01T10:00:12+00:00", "2026-01-01T11:00:00+00:00")
    timed = [
        NamedReport(
            end,
            one.model_copy(
                update={
                    "timestamp": end,
                    "summary": one.summary.model_copy(update={"wall_time_ms": 10_000}),
                }
            ),
        )
        for one, end in zip(reports, ends, strict=True)
    ]

    merged = merge_reports(timed)

    assert merged.summary.wall_time_ms == 22_000
    assert merged.timestamp == ends[2]


def test_cost_and_tokens_are_those_of_all_runs_and_unknown_cost_stays_unknown(shards):
    reports = [read_report(shards.path / f"{at}.json") for at in (1, 2, 3)]
    cost = Cost(currency="EUR", total=0.5, agent=0.5, judges=0.0)
    fields = {"cost": cost, "token_usage": TokenUsage(total_tokens=10)}
    paid = [
        one.model_copy(
            update={"results": [result.model_copy(update=fields) for result in one.results]}
        )
        for one in reports
    ]
    unpaid = reports[0].model_copy(
        update={"results": [one.model_copy(update={"cost": None}) for one in paid[0].results]}
    )

    whole = merge_reports([NamedReport(str(at), one) for at, one in enumerate(paid)]).summary
    partial = merge_reports(
        [NamedReport(str(at), one) for at, one in enumerate([unpaid, *paid[1:]])]
    ).summary

    assert (whole.cost.total, whole.cost.currency, whole.token_usage.total_tokens) == (
        3.5,
        "EUR",
        70,
    )
    assert partial.cost.total is None
    assert "recorded without prices" in partial.cost.unknown[0]
