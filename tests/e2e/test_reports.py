"""The files a run leaves behind, whatever the agent answered."""

import json
import re

import pytest

from fakes import case, run_in_pty
from support.checks import assert_one_error, assert_plain, results_in
from support.html_page import HtmlPage

HOSTILE = (
    "\x1b[2J\x1b[31mred\x1b]0;title\x07 ```` ``` | a | b |\n"
    "# Heading\n<script>alert(1)</script> <img src=x onerror=alert(1)>\n"
    "nul:\x00 bell:\x07 back:\x08 del:\x7f c1:\x9b31m bidi:\u202egnp.exe\u2066 end\r\nover\rwritten"
)
UNSEEN = "\x00\x07\x08\x1b\x7f\x9b\u202e\u2066\r"


@pytest.fixture
def hostile(agent_dir):
    """An agent that says what no terminal and no page may show as it is."""
    agent_dir.server.otherwise(HOSTILE)
    agent_dir.write_agent(
        test_cases=[
            case("fails", "hello", contains="goodbye"),
            case("passes", "hello", contains="red"),
        ]
    )
    return agent_dir


def test_a_hostile_answer_reaches_neither_the_terminal_nor_the_report_as_it_is(hostile):
    ran = run_in_pty("test", "-v", "-o", "report.md", cwd=hostile.path)
    markdown = (hostile.path / "report.md").read_text(encoding="utf-8")

    assert ran.code == 1
    written = re.sub(r"\x1b\[(\?25[lh]|9\dm|0m|J|K|\d+A)|\r", "", ran.raw.decode())
    assert not set(UNSEEN) & set(written)
    assert not set(UNSEEN) & set(markdown)
    assert HOSTILE.count("# Heading") < markdown.count("# Heading")  # in the answer and the reason
    assert not [line for line in outside_of_fences(markdown) if "<script" in line or "<img" in line]


def test_a_hostile_answer_stays_text_in_the_html_report(hostile):
    ran = hostile.run("test", "-o", "report.html")
    html = (hostile.path / "report.html").read_text(encoding="utf-8")

    assert ran.code == 1
    assert not set(UNSEEN) & set(html)
    page = HtmlPage(html)
    page.require_harmless()
    assert [one["agent_response"] for one in page.cases] == [HOSTILE, HOSTILE]


def outside_of_fences(markdown):
    """The lines that Markdown gives a meaning to."""
    closing = None
    for line in markdown.splitlines():
        ticks = re.match(r"`{3,}", line)
        if closing is not None:
            closing = None if line == closing else closing
        elif ticks:
            closing = ticks[0]
        else:
            yield line


def test_the_json_report_holds_the_answer_to_the_letter(hostile):
    ran = hostile.run("test", "-o", "report.json")

    assert_plain(ran)
    assert results_in(hostile.path / "report.json")["passes"]["agent_response"] == HOSTILE


def test_reports_of_one_run_agree_and_are_named_on_stdout(bot_dir, write_bot):
    write_bot(
        test_cases=[
            case("good", "hello", contains="hello"),
            case("bad", "hello", contains="goodbye"),
            case("broken", "raise nothing works", contains="hello"),
        ]
    )

    ran = bot_dir.run("test", "-o", "out/report.md", "--output", "report.json", "-o", "plain.txt",
                      "--format", "markdown")  # fmt: skip

    assert_one_error(ran, 2, "--format", "contradicts", "report.json")
    ran = bot_dir.run("test", "-o", "out/report.md", "--output", "report.json")
    assert_plain(ran)
    assert ran.stdout.endswith("Report saved to out/report.md\nReport saved to report.json\n")
    document = json.loads((bot_dir.path / "report.json").read_text(encoding="utf-8"))
    markdown = (bot_dir.path / "out" / "report.md").read_text(encoding="utf-8")
    assert document["agent_name"] == "greeter"
    assert document["summary"]["outcomes"] == {"passed": 1, "failed": 1, "agent_error": 1}
    assert document["timestamp"] in markdown
    assert "❌ **1 of 3 tests passed** (33.3%): 1 failed, 1 agent error" in markdown
    assert re.findall("(?m)^### Test: (.*) [A-Z]*$", markdown) == ["bad ❌", "broken ⚠️"]
    assert "✅ good</summary>" in markdown
    for result in document["results"]:
        assert f" · {result['execution_time_ms']} ms\n" in markdown


def test_a_report_on_stdout_has_it_for_itself(bot_dir, write_bot):
    write_bot()
    bot_dir.write(
        "bot.py",
        "import os\ndef answer(message):\n"
        "    print('PRINTED')\n    os.system('echo CHILD')\n    return message\n",
    )

    ran = bot_dir.run("test", "-o", "-", "--format", "json", "-o", "report.json")

    assert ran.code == 0
    assert ran.stdout == (bot_dir.path / "report.json").read_text()
    for text in ("PRINTED", "CHILD", "1/1 passed", "Report saved to report.json"):
        assert text in ran.stderr
    assert bot_dir.run("report", "-o", "-").stdout == bot_dir.run("report").stdout


def test_a_name_without_a_known_ending_takes_the_format_it_is_given(bot_dir, write_bot):
    write_bot()

    ran = bot_dir.run("test", "-o", "results", "--format", "json")

    assert ran.code == 0
    assert json.loads((bot_dir.path / "results").read_text())["summary"]["passed"] == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-o", "report.txt"], ["'report.txt' has an unknown suffix", ".md", "--format"]),
        (["-o", "r.md", "--format", "json"], ["contradicts", "markdown"]),
        (["-o", "r", "--format", "jsn"], ["'jsn'", "did you mean 'json'?"]),
        (["-o", "bot.py/report.md"], ["bot.py is not a folder"]),
        (["-o", "/proc/report.md"], ["no file can be created in /proc"]),
    ],
    ids=["suffix", "contradiction", "unknown format", "file as folder", "closed folder"],
)
def test_a_report_that_cannot_be_written_is_told_before_anything_runs(
    bot_dir, write_bot, args, said
):
    bot_dir.write("bot.py", "def answer(message):\n    open('ran', 'w')\n    return message\n")
    write_bot()

    ran = bot_dir.run("test", *args)

    assert_one_error(ran, 2, *said)
    assert not (bot_dir.path / "ran").exists()
