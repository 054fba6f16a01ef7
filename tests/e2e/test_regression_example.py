"""The example with two versions of a prompt, read as each format's reader reads it."""

import json
import re
import shutil
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import cmarkgfm
import pytest
from lxml import html

from support.chromium import needs_chromium
from support.ci import commands, read_xml
from support.cli import run_cli

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "regression"
BROKEN = {"asks for the order number first", "promises nothing on its own"}
HEALED = "apologizes for a late parcel"
FAILS_IN_BOTH = "knows when the shop is open"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder after the commands of the README, and what they printed."""
    folder = tmp_path_factory.mktemp("example") / "shop"
    shutil.copytree(EXAMPLE, folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), run_path(str(EXAMPLE / "model.py"))["Model"])
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    env = {
        "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1",
        "OPENAI_API_KEY": "no-key-needed",
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(folder.parent),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    readme = (EXAMPLE / "README.md").read_text()
    block = re.search(r"```sh\n(.*?)```", readme, re.DOTALL)[1]
    lines = [line.partition("#")[0].split() for line in block.splitlines()]
    assert lines.pop(0) == ["python", "model.py", "sh"]
    ran = [run_cli(*line[1:], cwd=folder, env=env) for line in lines]
    server.shutdown()
    thread.join()
    server.server_close()
    assert [one.code for one in ran] == [1, 0, 1, 0], ran
    return SimpleNamespace(folder=folder, gated=ran[2], compared=ran[3])


def test_the_reports_and_records_are_the_golden_ones(runs, golden):
    reports = ["before.json", "baseline.json", "after.json", "summary.md", "changes.md"]
    golden("regression", runs.folder, *reports)


def test_the_gate_names_what_broke_and_excuses_what_failed_before(runs):
    out = runs.gated.stdout

    assert ": 2 regressions" in out
    assert {name for name in BROKEN if f"{name}: regression, failed in 3 of 3" in out} == BROKEN
    assert f"a case failed in the baseline, too: {FAILS_IN_BOTH}" in out


def test_the_comparison_says_that_the_prompt_changed(runs):
    out = runs.compared.stdout

    assert "Changed: instructions: changed" in out
    assert out.count("Changed: ") == 1
    assert "Passed on both: 2\n  Passed only on A (regressions): 2\n  Passed only on B: 1" in out


def test_junit_readers_see_what_broke_what_was_expected_and_where(runs):
    [suite] = read_xml(runs.folder / "after.xml")

    failed = {one.name: one for one in suite if one.result}
    assert failed.keys() == BROKEN | {FAILS_IN_BOTH}
    asks = failed["asks for the order number first"]
    [failure] = asks.result
    assert failure.type == "exact_match"
    assert "expected: Hello Bo. What is your order number?\n" in failure.text
    assert "found: Hello Bo. We refund you at once." in failure.text
    assert (asks._elem.get("file"), asks._elem.get("line")) == ("cases.yaml", "4")
    notes = [one.value for one in suite.properties() if one.name.startswith("note")]
    assert any("2 regressions" in one for one in notes)


def test_github_annotates_the_lines_of_the_cases(runs):
    found, open_token = commands(runs.gated.stdout)

    assert open_token is None
    places = {re.search(r"title=(.*)", one)[1]: one for _, one, _ in found}
    assert places.keys() == BROKEN | {FAILS_IN_BOTH}
    lines = (EXAMPLE / "cases.yaml").read_text().splitlines()
    for title, place in places.items():
        file, line = re.match(r"file=(.*?),line=(\d+)", place).groups()
        assert file == "shop/cases.yaml"
        assert title in lines[int(line) - 1]
    assert (
        "❌ **3 of 6 tests passed** (50.0%): 3 failed" in (runs.folder / "summary.md").read_text()
    )


def rendered(path):
    text = cmarkgfm.github_flavored_markdown_to_html(path.read_text())
    return html.fromstring(f"<div>{text}</div>")


def test_github_renders_the_comparison_with_what_broke_first(runs):
    page = rendered(runs.folder / "changes.md")

    titles = [one.text_content() for one in page.iter("h2")]
    broke = next(one for one in page.iter("h2") if "regressions" in one.text_content())
    named = [one.text_content() for one in broke.getnext().iter("strong")]
    assert set(named) == BROKEN
    assert titles.index("Passed only on A (regressions)") < titles.index("Passed only on B")
    assert "instructions: changed" in page.text_content()


@needs_chromium
def test_readers_of_the_page_see_what_broke_in_a_browser(runs, chromium):
    with chromium.open((runs.folder / "changes.html").as_uri()) as tab:
        rows = tab.js(
            "[...document.querySelectorAll('.row')]"
            ".sort((a, b) => a.ariaPosInSet - b.ariaPosInSet)"
            ".map(row => row.querySelector('.name').textContent)"
        )
        shown = tab.js("document.body.textContent")

        assert tab.problems == []
    assert set(rows[:2]) == BROKEN
    assert "instructions: changed" in shown
    with chromium.open((runs.folder / "after.html").as_uri()) as tab:
        assert tab.text("#verdict").lower() == "failed"
        assert "3 failed" in tab.text("#counts")
        assert tab.problems == []


def test_the_json_of_the_runs_names_what_they_had_in_common(runs):
    before, after = (
        json.loads((runs.folder / name).read_text())["origin"]["hashes"]
        for name in ("before.json", "after.json")
    )

    assert {part for part in before if before[part] != after[part]} == {"instructions"}
