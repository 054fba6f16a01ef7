"""Reading a record: whatever became of the file, what is whole in it is found."""

import json
from dataclasses import replace

import pytest

from holodeck.errors import ConfigError
from holodeck.errors import FileNotFoundError as MissingFileError
from holodeck.lib.records.recorder import json_line
from holodeck.lib.records.run_store import read_run
from holodeck.models.records.record import CaseFinished, PlannedCase, RunEnd, RunHead
from holodeck.models.test_result import Outcome, ReportSummary, TestResult


def result(name="a", response="hello", **fields):
    return TestResult(
        test_name=name,
        test_input="hi",
        agent_response=response,
        passed=True,
        outcome=Outcome.PASSED,
        execution_time_ms=1,
        timestamp="2026-01-01T00:00:00.000+00:00",
        **fields,
    )


STARTED = RunHead(
    id="x",
    started="2026-01-01T00:00:00.000+00:00",
    agent_name="echo",
    agent_config_path="agent.yaml",
    cases=[PlannedCase(name=name, hash=name) for name in "abc"],
)
CASES = [CaseFinished(index=n, hash=name, result=result(name)) for n, name in enumerate("abc")]
ENDED = RunEnd(
    timestamp="2026-01-01T00:00:01+00:00",
    exit_code=0,
    planned_tests=3,
    summary=ReportSummary(
        total_tests=3, passed=3, failed=0, pass_rate=100, total_duration_ms=3, wall_time_ms=5
    ),
)
LINES = [json_line(one) for one in (STARTED, *CASES, ENDED)]


@pytest.fixture
def write(tmp_path):
    def write(*lines):
        path = tmp_path / "run.jsonl"
        path.write_bytes(b"".join(lines))
        return path

    return write


def test_what_was_written_is_read_again(write):
    run = read_run(write(*LINES))

    assert run.started == STARTED
    assert list(run.finished.values()) == CASES
    assert run.ended == ENDED
    assert (run.state, run.planned, run.warnings) == ("finished", 3, ())


def test_cutting_the_file_at_any_byte_of_the_last_two_lines_loses_only_what_is_cut(write):
    whole = b"".join(LINES)
    kept = len(b"".join(LINES[:-2]))
    for size in range(kept, len(whole) + 1):
        run = read_run(write(whole[:size]))
        wholes = [n for n, line in enumerate(LINES, 1) if size >= len(b"".join(LINES[:n])) - 1]
        assert len(run.finished) == min(len(wholes) - 1, 3)
        assert (run.ended is not None) == (len(wholes) == 5)
        is_torn = size not in {len(b"".join(LINES[:n])) - end for n in (3, 4, 5) for end in (0, 1)}
        assert len(run.warnings) == is_torn
        assert not is_torn or f"run.jsonl:{len(wholes) + 1}: is truncated" in run.warnings[0]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"\n", "not JSON"),
        (b"\x00\xff\xfe garbage\n", "not JSON"),
        (b"[" * 100_000 + b"\n", "not JSON"),
        (b"9" * 10_000 + b"\n", "not JSON"),
        (b"3\n", "not an event"),
        (b'{"event": "case_begun", "schema_version": 1}\n', "unknown event"),
        (b'{"event": [], "schema_version": true}\n', "unknown event"),
        (LINES[2].replace(b'"index":1', b'"index":-1'), "not a case_finished event: index"),
        (LINES[2].replace(b'"outcome":"passed"', b'"outcome":"failed"'), "contradicts"),
    ],
    ids=["empty", "bytes", "deep", "number", "list", "event", "types", "index", "outcome"],
)
def test_a_line_that_cannot_be_read_is_named_and_left_out(write, line, why):
    run = read_run(write(*LINES[:2], line, *LINES[3:]))

    assert list(run.finished) == [0, 2]
    [warning] = run.warnings
    assert "run.jsonl:3: " in warning
    assert why in warning


def test_flipping_any_byte_never_crashes(write):
    whole = bytearray(b"".join(LINES))
    for at in range(0, len(whole), 7):
        flipped = bytes(whole[:at]) + bytes([whole[at] ^ 0x15]) + bytes(whole[at + 1 :])
        # without its end, a line takes the next along
        lost = 2 if whole[at : at + 1] == b"\n" else 1
        assert len(read_run(write(flipped)).finished) >= 3 - lost


@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_later_schema_version_is_refused_by_its_number(write, number):
    later = json.loads(LINES[number]) | {"schema_version": 7, "news": True}
    lines = [*LINES[:number], json.dumps(later).encode() + b"\n", *LINES[number + 1 :]]

    with pytest.raises(ConfigError, match=rf"run.jsonl:{number + 1}: unknown schema version 7"):
        read_run(write(*lines))


def test_a_damaged_first_line_leaves_the_results(write):
    run = read_run(write(LINES[0][:50] + b"\n", *LINES[1:]))

    assert run.started is None
    assert list(run.finished) == [0, 1, 2]
    assert run.planned == 3


def test_a_file_that_is_no_record_is_refused(write, tmp_path):
    with pytest.raises(ConfigError, match="is not the record of a run"):
        read_run(write(b"name: agent\n", b"instructions: x\n"))
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_run(tmp_path)
    with pytest.raises(MissingFileError, match="this record does not exist"):
        read_run(tmp_path / "nothing.jsonl")


@pytest.mark.parametrize(
    "text",
    ["half a pair \ud800", "NUL \x00", "\u2028\x85\r\n", "😀" * 3, "\\ud800", '"}\n{"event"'],
)
def test_any_text_comes_back_as_it_was(write, text):
    case = CaseFinished(index=0, hash="h", result=result(response=text, errors=[text]))
    line = json_line(case)

    assert line.count(b"\n") == 1
    assert read_run(write(LINES[0], line)).finished[0] == case


def test_arguments_without_a_bottom_are_cut_and_the_rest_is_kept(write):
    deep = {}
    for _ in range(300):
        deep = {"a": deep}
    call = {"name": "t", "args": {"x": deep, "y": float("nan"), "z": 1}}
    case = CaseFinished(index=0, hash="h", result=result(tool_invocations=[call]))

    read = read_run(write(LINES[0], json_line(case))).finished[0].result

    [invocation] = read.tool_invocations
    assert (invocation.args["y"], invocation.args["z"]) == (None, 1)
    assert "nested too deep to be recorded" in str(invocation.args["x"])
    assert read.agent_response == "hello"


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        (None, "killed"),
        (ENDED, "finished"),
        (ENDED.model_copy(update={"interrupted": True}), "interrupted"),
        (ENDED.model_copy(update={"stopped": "no money"}), "stopped"),
    ],
)
def test_the_state_tells_how_a_run_ended(write, ended, state):
    run = replace(read_run(write(*LINES)), ended=ended)

    assert run.state == state
