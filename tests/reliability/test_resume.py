"""Resuming, reporting and grading again from the record of a real run."""

import json
import shutil

import pytest

from holodeck import __version__
from support.checks import assert_plain
from support.fleet import Fleet, announced

SIZE = 12


@pytest.fixture
def fleet(tmp_path):
    return Fleet.made(tmp_path / "agent", SIZE)


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory):
    """A fleet of which a first run did the first half."""
    fleet = Fleet.made(tmp_path_factory.mktemp("half") / "agent", SIZE)
    assert fleet.run("--limit", "6").code == 0
    lines = newest(fleet).read_text().splitlines(keepends=True)
    fleet.run("--quiet")  # its first line is about all cases
    whole = newest(fleet).read_text().splitlines(keepends=True)
    newest(fleet).write_text("".join([whole[0], *lines[1:7]]))
    (fleet.path / "calls.txt").unlink()
    assert len(json.loads(lines[0])["cases"]) == 6
    return fleet


@pytest.fixture
def half(broken_off, tmp_path):
    """That fleet, in a folder of its own."""
    shutil.copytree(broken_off.path, tmp_path / "agent")
    return Fleet(tmp_path / "agent", SIZE)


def newest(fleet):
    return fleet.records()[0].path


def cases(**changes):
    """The cases of a fleet, the one called `at` changed."""
    at = changes.pop("at", None)
    made = [{"name": f"case-{n:05}", "input": f"case-{n:05} please"} for n in range(SIZE)]
    return [one | changes if n == at else one for n, one in enumerate(made)]


def test_resuming_runs_the_rest_and_reports_the_whole(half):
    ran = half.run("--resume", "-o", "r.json")

    first, resumed = half.records()[1], half.records()[0]
    assert ran.code == 0
    assert ran.stderr == f"Resuming {first.id}: 6 of 12 results are kept, 6 cases run\n"
    assert announced(ran.stdout) == set(half.calls()) == {f"case-{n:05}" for n in range(6, 12)}
    assert "[Test 12/12]" in ran.stdout
    assert "Test Results: 12/12 passed (100.0%)" in ran.stdout
    assert len(half.report()["results"]) == 12
    assert (resumed.started.resumes, list(resumed.finished)) == (first.id, list(range(12)))


def test_a_run_is_resumed_by_any_of_its_names(half):
    record = half.records()[0]
    for name in ("last", record.id, record.id[:-2], str(record.path)):
        ran = half.run("--resume", name, "--no-record")
        assert ran.code == 0
        assert f"Resuming {record.id}: 6 of 12" in ran.stderr


@pytest.mark.parametrize(
    ("change", "said", "asked"),
    [
        ({"test_cases": cases(at=2, input="case-00002 other")}, "cases changed: case-00002", 7),
        ({"test_cases": cases()[1:]}, "test cases removed: case-00000", 6),
        ({"test_cases": [{"name": "new", "input": "case-x"}, *cases()]}, "added: new", 7),
        ({"evaluations": {"metrics": [{"metric": "contains", "value": "OK"}]}}, "metrics", 12),
    ],
    ids=["input", "removed", "added", "metric"],
)
def test_a_changed_agent_is_refused_and_with_force_only_what_it_touches_runs(
    half, change, said, asked
):
    half.write(**change)

    refused = half.run("--resume")
    forced = half.run("--resume", "--force")

    assert (refused.code, refused.stdout) == (2, "")
    assert said in refused.stderr
    assert "add --force" in refused.stderr
    assert forced.code == 0
    assert said in forced.stderr
    assert half.calls().total() == asked


def test_changed_code_of_the_agent_counts_as_a_change(half):
    bot = half.path / "bot.py"
    bot.write_text(bot.read_text() + "\n# other\n")

    refused = half.run("--resume")

    assert refused.code == 2
    assert "  backend: changed\n" in refused.stderr


def test_a_record_of_another_version_of_holodeck_names_both_versions(half):
    record = newest(half)
    head, *results = record.read_text().splitlines(keepends=True)
    started = json.loads(head)
    started["versions"]["holodeck"] = "0.0.1"
    started["hashes"]["backend"] = "as 0.0.1 computed it"
    record.write_text("".join([json.dumps(started) + "\n", *results]))

    refused = half.run("--resume")

    assert refused.code == 2
    assert f"\n  holodeck: changed from 0.0.1 to {__version__}, which alone" in refused.stderr
    assert "  backend: changed\n" in refused.stderr


def test_errors_are_kept_unless_they_are_to_be_tried_again(fleet):
    failed = fleet.run(env={"BOT_FAILS": "case-00003"})
    kept = fleet.run("--resume")
    retried = fleet.run("--resume", "--retry-errors")

    assert (failed.code, kept.code, retried.code) == (3, 3, 0)
    assert fleet.calls()["case-00003"] == 2
    assert fleet.calls().total() == SIZE + 1


@pytest.mark.parametrize("args", [["--force"], ["--retry-errors"]])
def test_how_to_resume_without_resuming_is_a_usage_error(fleet, args):
    ran = fleet.run(*args)

    assert ran.code == 2
    assert "add --resume" in ran.stderr


@pytest.mark.parametrize(
    ("said", "args"),
    [
        ("no run is recorded there", ["--resume"]),
        ("write 'last agent.yaml'", ["--resume", "agent.yaml"]),
    ],
)
def test_what_cannot_be_resumed_is_told(fleet, said, args):
    ran = fleet.run(*args)

    assert ran.code == 2
    assert said in ran.stderr


def test_a_report_made_later_is_the_report_of_the_run(fleet):
    fleet.run("-o", "run.json", "-o", "run.md", env={"BOT_FAILS": "case-00003"})

    to_stdout = fleet.holodeck("report", "--format", "json")
    files = fleet.holodeck("report", "last", "-o", "later.json", "-o", "later.md")

    assert (to_stdout.code, files.code) == (0, 0)
    assert to_stdout.stdout == (fleet.path / "run.json").read_text()
    for suffix in ("json", "md"):
        later, original = (fleet.path / f"{name}.{suffix}" for name in ("later", "run"))
        assert later.read_text() == original.read_text()


def test_a_report_of_a_broken_off_run_says_so(half):
    ran = half.holodeck("report")

    assert ran.code == 0
    assert "**Interrupted: 6 of 12 tests ran.**" in ran.stdout


def test_answers_are_graded_again_without_asking_the_agent(fleet):
    first = fleet.run("-o", "run.json")
    calls = fleet.calls().total()
    same = fleet.holodeck("score", "last", "agent.yaml", "-o", "same.json")
    fleet.write(evaluations={"metrics": [{"metric": "contains", "value": "00003"}]})
    other = fleet.holodeck("score", "-o", "other.json")

    assert (first.code, same.code, other.code) == (0, 0, 1)
    assert fleet.calls().total() == calls
    assert fleet.report("same.json") == fleet.report("run.json")
    passed = [one["test_name"] for one in fleet.report("other.json")["results"] if one["passed"]]
    assert passed == ["case-00003"]


def test_grading_again_passes_nothing_by_absence(half):
    half.write(test_cases=cases(at=0, input="something else"))

    ran = half.holodeck("score", "-o", "r.json")

    assert ran.code == 5
    assert "7 cases have no recorded response: case-00000, case-00006" in ran.stderr
    assert (
        "1 recorded response has no case with the same suite, name, input, history, script and"
        " context: case-00000" in ran.stderr
    )
    assert half.report()["stopped"] == "7 cases have no recorded response"


def test_runs_are_listed_shown_and_pruned(fleet):
    for _ in range(3):
        fleet.run("--quiet")
    newest, _, oldest = (record.id for record in fleet.records())

    listed = json.loads(fleet.holodeck("runs", "list", "--json").stdout)
    shown = json.loads(fleet.holodeck("runs", "show", oldest, "--json").stdout)
    recent = fleet.holodeck("runs", "prune", "--older-than", "1", "--yes")
    unsaid = fleet.holodeck("runs", "prune")
    pruned = fleet.holodeck("runs", "prune", "--keep", "1", "--yes")

    assert [(one["state"], one["finished"], one["passed"]) for one in listed] == [
        ("finished", SIZE, SIZE)
    ] * 3
    assert (shown["run"], shown["outcomes"], shown["exit code"]) == (oldest, {"passed": SIZE}, 0)
    assert recent.stdout == "Nothing to remove\n"
    assert unsaid.code == 2
    assert pruned.stdout.startswith("Removed 2 runs")
    assert [record.id for record in fleet.records()] == [newest]


def test_a_damaged_record_is_read_with_a_warning_and_resumed(half):
    path = newest(half)
    lines = path.read_bytes().splitlines(keepends=True)
    lost = json.loads(lines[2])["result"]["test_name"]
    path.write_bytes(b"".join([*lines[:2], b"\x00garbage\n", *lines[3:], b'{"event":"case_fin']))

    report = half.holodeck("report")
    resumed = half.run("--resume")

    assert (report.code, resumed.code) == (0, 0)
    for ran in (report, resumed):
        assert "run.jsonl:3: not JSON; the line is ignored" in ran.stderr
        assert "run.jsonl:8: is truncated: not JSON; the line is ignored" in ran.stderr
    assert set(half.calls()) == {lost, *(f"case-{n:05}" for n in range(6, 12))}


def test_a_damaged_first_line_needs_force(half):
    path = newest(half)
    path.write_bytes(b"garbage\n" + b"".join(path.read_bytes().splitlines(keepends=True)[1:]))

    refused = half.run("--resume")
    forced = half.run("--resume", "--force")

    assert refused.code == 2
    assert "the record's first line is damaged" in refused.stderr
    assert forced.code == 0
    assert half.calls().total() == 6


def test_a_secret_in_an_answer_is_not_in_the_record(fleet):
    bot = fleet.path / "bot.py"
    bot.write_text(
        bot.read_text().replace('f"OK: {message}"', "message + os.environ['MY_API_KEY']")
    )
    fleet.write(test_cases=cases(at=0, ground_truth="0123456789-very-secret"))

    fleet.run("-o", "r.json", env={"MY_API_KEY": "0123456789-very-secret"})

    record = newest(fleet).read_text()
    assert "very-secret" not in record
    assert "***cret" in record


@pytest.mark.parametrize(
    ("args", "env"),
    [(["--no-record"], {}), ([], {"HOLODECK_RECORD": "false"})],
    ids=["flag", "variable"],
)
def test_no_record_is_kept_where_none_is_wanted(fleet, args, env):
    ran = fleet.run(*args, env=env)

    assert_plain(ran)
    assert (ran.code, ran.stderr) == (0, "")
    assert not (fleet.path / ".holodeck").exists()
