"""A stored report in which every field has a value is read, and written with the same content."""

import json
from pathlib import Path

from holodeck.models.test_result import TestReport

STORED = Path(__file__).with_name("report-v1.json").read_text()


def test_a_stored_report_is_the_same_after_it_is_read():
    report = TestReport.model_validate_json(STORED)

    assert json.loads(report.to_json()) == json.loads(STORED)


def test_a_result_begins_with_its_case_and_a_turn_with_its_input():
    report = json.loads(TestReport.model_validate_json(STORED).to_json())
    [turn] = report["results"][1]["turns"]

    assert next(iter(report["results"][1])) == "test_name"
    assert next(iter(turn)) == "input"
