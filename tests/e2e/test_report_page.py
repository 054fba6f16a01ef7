"""The HTML report in a real browser: what readers see, press and hear, and what nothing may do."""

import json
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from holodeck.lib.reports.html import generate_html_report, page_of_runs
from holodeck.lib.reports.page_file import render_page
from holodeck.lib.support.text import printable
from holodeck.models.records.record import RunTrends
from holodeck.models.results.outcome import Outcome
from holodeck.models.results.turn import Approval, HandledRequest
from holodeck.models.test_result import MetricResult, ToolCheck, ToolInvocation
from support.chromium import needs_chromium
from support.report_examples import example_report, example_trends
from support.results import a_report, a_result

pytestmark = needs_chromium
HOSTILE = (
    "</script><script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"
    "<svg onload=\"document.title='pwned'\"> ${1} `x` \u202egnp.exe \x1b[31m \ud800"
)


@pytest.fixture(scope="module")
def write_page(tmp_path_factory):
    """Writes the page of a report and returns its URL."""

    def write(report):
        path = tmp_path_factory.mktemp("page") / "report.html"
        path.write_text(generate_html_report(report), encoding="utf-8")
        return path.as_uri()

    return write


@pytest.fixture(scope="module")
def example(write_page):
    return write_page(example_report())


@pytest.fixture
def tab(chromium, example):
    """The example, on a wide screen."""
    with chromium.open(example) as tab:
        yield tab
        assert tab.problems == []


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_each_script_is_valid_on_its_own():
    check = "for (const file of process.argv.slice(1)) new vm.Script(fs.readFileSync(file, 'utf8'))"
    folder = Path(str(files("holodeck.lib.reports"))) / "page"

    subprocess.run(["node", "-e", check, *map(str, folder.glob("*.js"))], check=True)


def names(tab):
    """The names of the listed cases, from the top."""
    return tab.js(
        "[...document.querySelectorAll('.row')]"
        ".sort((a, b) => a.ariaPosInSet - b.ariaPosInSet)"
        ".map(row => row.querySelector('.name').textContent)"
    )


def test_the_summary_and_the_failures_come_first(tab):
    assert tab.text("#title") == "Test Report: support"
    assert tab.text("#verdict").lower() == "failed"
    assert tab.text("#counts") == (
        "7 test cases, 3 failed, 1 agent error, 1 flaky, 1 passed, 1 skipped"
    )
    assert names(tab) == [
        "returns › refunds nothing on its own",
        "orders › keeps the order in mind",
        "returns › names the window for returns",
        "orders › looks an order up",
        "small talk › says good-bye",
        "small talk › greets",
        "small talk › speaks Dutch",
    ]
    assert tab.text("#case h2") == "returns › refunds nothing on its own"


def test_a_case_shows_its_calls_checks_and_numbers(tab):
    tab.click(".call:nth-of-type(2) > summary")

    shown = tab.text("#case")
    for text in (
        "agent.yaml:41:5", "smoke, money", "0.0093 USD", "start_refund was called", "0.52 / 0.8",
        "judge gpt-4o, 3 calls, 960 tokens, 1.8 s", "Returns are possible within thirty days.",
        "order: 12345678901234567890", "I bought shoes 12 days ago",
    ):  # fmt: skip
        assert text in shown
    tab.click("td .fold > summary")
    assert "Does the context support the answer?\n\nno (0.21)\nyes (0.83)" in tab.text("td .fold")
    tab.click("td .fold ~ .fold > summary")
    assert "You check answers." in tab.text("td .fold ~ .fold")
    tab.click(".call[open] .branches details > summary")
    tab.wait("document.querySelector('.call[open]').innerText.includes('name: \"Ada\"')")


def test_repetitions_turns_tries_and_errors_are_shown(tab):
    def case(row):
        tab.js(f"openCase(page.rows[{row}], true)")
        return tab.text("#case")

    assert "2 of 3 repetitions passed, 3 needed; 95 % interval 21 % to 94 %" in case(4)
    assert tab.js("document.querySelectorAll('.column').length") == 3
    assert "Turn 2\n✗\nFailed" in case(3)
    assert "It is polite" in tab.text("#case")
    assert "agent.py:12" in case(2)
    tab.js("document.querySelectorAll('#case details').forEach(one => one.open = true)")
    assert "429 Too Many Requests" in tab.text("#case")
    assert "Try 1" in case(5)


def test_filters_search_and_order_are_in_the_address(tab):
    tab.click("[data-state=failed]")
    tab.js("change({suite: 'returns', sort: 'name'})")
    assert names(tab) == [
        "returns › names the window for returns",
        "returns › refunds nothing on its own",
    ]
    assert tab.text("#count") == "2 of 7 test cases"

    tab.press("/")
    tab.write("money")
    tab.wait("shown.length === 1")
    assert names(tab) == ["returns › refunds nothing on its own"]
    hash_ = tab.js("location.hash")
    assert hash_ == "#q=money&filter=failed&suite=returns&sort=name"

    tab.click("#clear")
    assert tab.text("#count") == "7 test cases"
    assert tab.js("document.activeElement.id") == "query"


def test_the_search_also_reads_conversations_and_tool_calls(tab):
    tab.js("change({q: 'with the receipt'})")
    tab.wait("deep.done")

    assert names(tab) == ["returns › refunds nothing on its own"]

    tab.js("change({q: 'nowhere at all'})")
    tab.wait("deep.done")
    assert tab.js("!document.querySelector('#empty').hidden")


def test_only_cases_that_fail_a_metric_are_shown_on_request(tab):
    tab.js("change({metric: '!faithfulness'})")
    assert names(tab) == ["returns › refunds nothing on its own"]


def numbers_of(tab, name):
    """The numbers at the right of a listed case."""
    return tab.js(
        "[...document.querySelectorAll('.row')]"
        f".find(row => row.querySelector('.name').textContent.endsWith({json.dumps(name)}))"
        ".querySelector('.numbers').textContent"
    )


def test_a_failed_case_shows_no_score_of_a_metric_that_passed(chromium, write_page):
    passed = MetricResult(metric_name="contains", score=1, threshold=1, passed=True)
    low = MetricResult(metric_name="bleu", score=0.25, threshold=0.2, passed=True)
    missed = MetricResult(metric_name="rouge", score=0.4, threshold=0.7, passed=False)
    called = ToolCheck(expectation="no call of pay", passed=False, reason="'pay' was called")
    report = a_report(
        a_result(test_name="fine", metric_results=[passed]),
        a_result(Outcome.FAILED, test_name="tools", tool_checks=[called], metric_results=[passed]),
        a_result(Outcome.FAILED, test_name="words", metric_results=[passed, low, missed]),
    )

    with chromium.open(write_page(report)) as tab:
        shown = {name: numbers_of(tab, name) for name in ("fine", "tools", "words")}
        tab.js("change({metric: 'contains'})")
        chosen = numbers_of(tab, "tools")

    assert shown == {"fine": "1.00 · 1.2 s", "tools": "1.2 s", "words": "0.40 · 1.2 s"}
    assert chosen == "1.00 · 1.2 s"


def test_an_address_opens_its_case_and_back_returns(chromium, example):
    with chromium.open(f"{example}#case=orders+%E2%80%BA+keeps+the+order+in+mind", 360) as tab:
        assert tab.text("#case h2") == "orders › keeps the order in mind"
        assert tab.js("document.querySelector('#cases').offsetParent") is None

        tab.click(".back")

        assert tab.js("location.hash") in ("", "#")
        assert tab.js("document.activeElement.id") == "list"
        tab.js("history.back()")
        tab.wait("document.body.classList.contains('reading')")
        assert tab.problems == []


def test_everything_can_be_done_with_keys(tab):
    tab.press("j")
    tab.press("j")
    tab.wait("document.querySelector('#case h2').innerText.includes('names the window')")
    tab.press("k")
    tab.wait("document.querySelector('#case h2').innerText.includes('keeps the order')")
    assert tab.js("location.hash") == "#case=orders+%E2%80%BA+keeps+the+order+in+mind"
    selected = tab.js("document.querySelector('#list').getAttribute('aria-activedescendant')")
    assert tab.js(f"document.getElementById('{selected}').ariaSelected") == "true"

    tab.press("Enter")
    tab.wait("document.activeElement.id === 'case'")
    tab.press("Escape")
    assert tab.js("document.activeElement.id") == "list"
    tab.press("?")
    assert "Next case" in tab.text("#help")
    tab.press("Escape")
    assert not tab.js("document.querySelector('#help').open")


def test_ten_thousand_cases_are_a_few_elements(chromium, write_page):
    results = [a_result(test_name=f"case {number}") for number in range(10_000)]
    report = a_report(*results, a_result(Outcome.FAILED, test_name="the one"))

    with chromium.open(write_page(report)) as tab:
        assert tab.text("#count") == "10,001 test cases"
        assert names(tab)[:2] == ["the one", "case 0"]
        assert tab.js("document.querySelectorAll('.row').length") < 60
        tab.js("document.querySelector('#list').focus({preventScroll: true})")
        tab.press("End")
        tab.wait("document.querySelector('#case h2').innerText === 'case 9999'")
        last = "document.querySelector('[aria-posinset=\"10001\"]').getBoundingClientRect()"
        assert tab.js(f"{last}.bottom <= innerHeight + 1 && {last}.top > 0")
        assert tab.problems == []


def test_hostile_texts_are_shown_as_they_are_and_do_nothing(chromium, write_page):
    arguments = {"__proto__": {"polluted": HOSTILE}, "constructor": 1, HOSTILE: [HOSTILE]}
    call = ToolInvocation(name=HOSTILE, args=arguments, result=HOSTILE, error=HOSTILE)
    hostile = a_result(
        Outcome.FAILED,
        test_name=HOSTILE,
        test_input=HOSTILE,
        suite=HOSTILE,
        tags=[HOSTILE, "__proto__"],
        location=HOSTILE,
        agent_response=HOSTILE,
        ground_truth=HOSTILE,
        errors=[HOSTILE],
        tool_invocations=[call],
        messages=[{"role": HOSTILE, "content": HOSTILE}, HOSTILE],
        metric_results=[
            MetricResult(metric_name=one, score=0, passed=False, reasoning=HOSTILE)
            for one in (HOSTILE, "__proto__")
        ],
    )
    report = a_report(hostile, agent_name=HOSTILE, notes=[HOSTILE], stopped=HOSTILE)

    url = write_page(report)
    with chromium.open(url) as tab:
        tab.js("document.querySelectorAll('details').forEach(one => one.open = true)")
        tab.wait("document.querySelector('#case').innerText.includes('polluted')")
        shown = tab.text("#case")
        assert "<script>document.title='pwned'</script><img src=x onerror=" in shown
        assert "\\u202egnp.exe \\x1b[31m \\ud800" in shown
        assert "__proto__" in shown
        assert not tab.js("/[\\u202e\\x1b]/.test(document.documentElement.outerHTML)")
        tab.js("change({metric: '!__proto__', tag: '__proto__'})")
        assert tab.text("#count") == "1 test case"
        assert "pwned'" in tab.js("document.title")
        assert tab.js("({}).polluted") is None
        assert tab.requests == [url]
        assert tab.problems == []


def test_a_case_shows_what_a_person_approved(chromium, write_page):
    asked = [
        Approval(tool="send_email", args={"to": "Ada"}, answer="approve"),
        Approval(tool="send_email", args={"to": "Bob"}),
    ]
    result = a_result(Outcome.FAILED, approvals=asked)

    with chromium.open(write_page(a_report(result))) as tab:
        shown = tab.text("#case")

    assert 'Approval: send_email("to":"Ada") approved' in shown
    assert 'Approval: send_email("to":"Bob") not answered' in shown
    line = 'send_email({"to": "Ada"}) approved; send_email({"to": "Bob"}) not answered'
    assert f"- **Approvals:** {line}" in a_report(result).to_markdown()


def test_a_case_shows_scripted_replies_and_faults(chromium, write_page):
    requests = [
        HandledRequest(reply=0),
        HandledRequest(reply=1, faults=["cut_off"]),
        HandledRequest(problem="there are no model_replies"),
    ]
    result = a_result(Outcome.FAILED, handled_requests=requests)

    with chromium.open(write_page(a_report(result))) as tab:
        tab.js("document.querySelectorAll('#case details').forEach((fold) => fold.open = true)")
        shown = tab.text("#case")

    assert "3 handled model requests" in shown
    for text in ("scripted reply 1", "scripted reply 2, fault: cut_off", "no model_replies"):
        assert text in shown


def test_a_note_of_several_lines_keeps_them_without_scripts():
    note = "Compared with base.json: 1 regression\ngreets: regression"

    page = generate_html_report(a_report(a_result(), notes=[note]))

    assert "<p>Compared with base.json: 1 regression<br>greets: regression</p>" in page


def test_the_policy_refuses_scripts_styles_and_requests(chromium, example):
    with chromium.open(example) as tab:
        tab.js("try { document.body.innerHTML = '<b>x</b>' } catch { window.refused = true }")
        assert tab.js("window.refused")
        tab.js("document.body.setAttribute('style', 'color: red')")
        assert tab.js("fetch('https://localhost/').catch(() => 'refused')") == "refused"
        assert len(tab.problems) >= 2
        assert tab.requests == [example]


def test_a_long_answer_is_shown_in_part_until_the_reader_asks(chromium, write_page):
    long = a_result(Outcome.FAILED, agent_response="word " * 200_000 + "the end")

    with chromium.open(write_page(a_report(long))) as tab:
        assert "the end" not in tab.text("#case")
        assert "Show all 1,000,007 characters" in tab.text("#case")
        tab.click("#case .exchange button")
        assert "the end" in tab.text("#case")


def test_the_page_escapes_the_same_characters_as_holodeck(tab):
    escaped = tab.js(
        "[...Array(0x110000).keys()].map(code => String.fromCodePoint(code))"
        ".filter(one => visible(one) !== one).map(one => one.codePointAt(0))"
    )

    assert escaped == [
        code for code in range(sys.maxunicode + 1) if printable(chr(code)) != chr(code)
    ]
    sample = "\x00\x7f\xad\u202e\ufeff\U000e0001\ud800"
    assert tab.js(f"visible({json.dumps(sample)})") == printable(sample)


@pytest.fixture(scope="module")
def runs_page(tmp_path_factory):
    """The URL of a page of runs."""
    path = tmp_path_factory.mktemp("runs") / "runs.html"
    path.write_text(render_page(page_of_runs(example_trends())), encoding="utf-8")
    return path.as_uri()


def test_the_page_of_runs_shows_how_each_case_went(chromium, runs_page):
    with chromium.open(runs_page) as tab:
        assert tab.text("#counts") == "12 runs, 4 test cases, 1 with a change, 1 flaky"
        assert names(tab)[0] == "support › refunds"
        assert tab.js("document.querySelectorAll('.rates li').length") == 12
        shown = tab.text("#case")
        assert (
            "Since the run of 2026-01-07 12:00:00 it passes 0 of 5 times; before, 6 of 6" in shown
        )
        assert "(p = 0.0043, exact test of Worsley). Changed between them: instructions" in shown
        assert "contains: did not find 'refunds'" in shown
        tab.js("change({trend: 'flaky'})")
        assert names(tab) == ["support › greets"]
        tab.js("document.querySelector('#runs details').open = true")
        row = tab.text("#runs tbody tr:nth-of-type(7)")
        assert row.startswith("2026-01-06 12:00:00 (v1.0)\tsupport\t20260106")
        assert "2 of 3, killed" in tab.text("#runs tbody")
        assert tab.problems == []


def test_hostile_texts_of_records_do_nothing_on_the_page_of_runs(chromium, tmp_path):
    trends = example_trends()
    runs = [
        run.model_copy(
            update={
                "agent": HOSTILE, "commit": HOSTILE, "started": HOSTILE,
                "currency": HOSTILE, "hashes": {HOSTILE: str(at), "__proto__": str(at)},
            }
        )
        for at, run in enumerate(trends.runs)
    ]  # fmt: skip
    texts = {"name": HOSTILE, "suite": HOSTILE, "agent": HOSTILE, "tags": [HOSTILE]}
    cases = [case.model_copy(update=texts) for case in trends.cases]
    path = tmp_path / "runs.html"
    page = page_of_runs(RunTrends(runs=runs, cases=cases, notes=[HOSTILE]))
    path.write_text(render_page(page), encoding="utf-8", errors="backslashreplace")

    with chromium.open(path.as_uri()) as tab:
        tab.js("compareRuns({a: page.runs[5].id, b: page.runs[10].id})")
        tab.js("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert "<script>document.title='pwned'</script>" in tab.text("#case")
        assert not tab.js("/[\\u202e\\x1b]/.test(document.documentElement.outerHTML)")
        assert "pwned'" in tab.js("document.title")
        assert tab.requests == [path.as_uri()]
        assert tab.problems == []


def test_any_two_runs_are_compared_case_by_case(chromium, runs_page):
    with chromium.open(runs_page) as tab:
        tab.js("compareRuns({a: page.runs[5].id, b: page.runs[10].id})")

        states = "[...document.querySelectorAll('#states button')].map(one => one.dataset.state)"
        assert tab.js(states) == ["only_first", "both", "new"]
        assert tab.text("#count") == "3 of 4 test cases"
        said = tab.text("#notes")
        assert "A is the run of 2026-01-06 12:00:00 (v1.0), 66.7 %; B is that of 2026-01-11" in said
        assert "Changed between them: instructions, commit 0000000000" in said
        assert "holodeck compare 20260106-120000-000000-aaaaaa 20260111" in said
        assert "Regression" in tab.text("#case header")
        assert "#a=20260106-120000-000000-aaaaaa&b=20260111" in tab.js("location.hash")

        address = tab.js("location.href")
        tab.click("#all-runs")
        assert tab.js(states) == ["failed", "passed"]
    with chromium.open(address) as tab:
        assert tab.js(states) == ["only_first", "both", "new"]
        assert tab.problems == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize(("page", "rows"), [("example", (1, 4, 2)), ("runs_page", (0, 1, 2))])
def test_everyone_can_use_it(request, chromium, page, rows, width, dark):
    with chromium.open(request.getfixturevalue(page), width, dark=dark) as tab:
        for row in (None, *rows):
            if row is not None:
                tab.js(f"openCase(page.rows[{row}], true)")
                tab.js("document.querySelectorAll('details').forEach(one => one.open = true)")
            assert not tab.js(
                "document.documentElement.scrollWidth > document.documentElement.clientWidth"
            )
            assert tab.violations() == []


def test_dark_and_light_are_a_choice(tab):
    paper = "getComputedStyle(document.body).backgroundColor"
    light = tab.js(paper)

    tab.click("#theme")

    assert tab.js(paper) != light
    assert tab.text("#theme") == "Light"


def test_paper_gets_every_listed_case(tab):
    tab.js("change({filter: 'failed'})")
    tab.send("Emulation.setEmulatedMedia", media="print")
    tab.js("dispatchEvent(new Event('beforeprint'))")

    assert [one for one in tab.text("#paper").splitlines() if "›" in one] == [
        "returns › refunds nothing on its own\t",
        "orders › keeps the order in mind\t",
        "returns › names the window for returns\t",
    ]
    assert tab.js("document.querySelector('#controls').offsetParent") is None
    assert tab.pdf().startswith(b"%PDF-")
