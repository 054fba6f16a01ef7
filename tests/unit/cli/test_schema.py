"""`holodeck schema`."""

import json

import pytest
from click.testing import CliRunner

from holodeck.cli.commands.schema import schema
from holodeck.errors import ReportError


def test_the_schema_is_printed_as_json():
    result = CliRunner().invoke(schema)

    assert result.exit_code == 0
    assert json.loads(result.stdout)["title"] == "holodeck agent.yaml"


def test_the_schema_is_written_to_a_file(tmp_path):
    result = CliRunner().invoke(schema, ["--output", str(tmp_path / "agent.schema.json")])

    assert result.exit_code == 0
    assert result.stdout == ""
    assert "test_cases" in json.loads((tmp_path / "agent.schema.json").read_text())["properties"]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    result = CliRunner().invoke(schema, ["-o", str(tmp_path / "no" / "such" / "folder.json")])

    with pytest.raises(ReportError, match="cannot be written: No such file or directory"):
        raise result.exception
