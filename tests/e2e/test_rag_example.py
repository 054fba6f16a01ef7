"""The example of a function that searches, and reports what it retrieved."""

import json
import shutil
from pathlib import Path

from fakes import run_cli

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "rag"


def test_the_function_reports_its_passages_and_the_golden_report_shows_them(tmp_path, golden):
    folder = shutil.copytree(EXAMPLE, tmp_path / "rag")

    ran = run_cli("test", "agent.yaml", "-o", "report.json", "-o", "report.md", cwd=folder)

    assert ran.code == 0, ran.stdout + ran.stderr
    book, *_, garden = json.loads((folder / "report.json").read_text())["results"]
    assert book["retrieval_context"][0].startswith("[loans.md] You may keep a book for 28 days.")
    assert garden["retrieval_context"] == []
    golden("rag", folder, "report.json", "report.md")
