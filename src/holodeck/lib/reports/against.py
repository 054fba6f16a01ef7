"""Reports about two agents that ran the same test cases, and the exit code."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from holodeck.errors import ExitCode
from holodeck.lib.judging.agreement import MIN_DIFFERING, SIGNIFICANT
from holodeck.lib.reports.costs import money
from holodeck.lib.reports.markdown import (
    MAX_CHARACTERS,
    code,
    folded,
    inline,
    note_lines,
    table,
)
from holodeck.lib.reports.summary import describe_recordings
from holodeck.lib.support.text import one_line, percent, plural
from holodeck.lib.ui.terminal import ANSIColors, colorize, format_table
from holodeck.models.records.comparison import (
    ComparedAgent,
    ComparisonReport,
    Pair,
    PairVerdict,
    Preferences,
    Significance,
    Total,
    Trajectories,
)
from holodeck.models.results.outcome import Outcome

FailOn = Literal["regression"]

_MAX_NAME = 80
_RESERVE = 2_000
"""Characters for the titles of the lists, and for what is said of those left out."""
_MAX_LINE = 300


class _Shown(NamedTuple):
    """How the pairs of a verdict are called, in a list and in a line of progress."""

    title: str
    word: str
    color: str = ANSIColors.YELLOW


_SHOWN = {
    PairVerdict.ONLY_FIRST: _Shown("Passed only on A (regressions)", "ONLY A", ANSIColors.RED),
    PairVerdict.ONLY_SECOND: _Shown("Passed only on B", "ONLY B", ANSIColors.GREEN),
    PairVerdict.NEITHER: _Shown("Passed on neither", "BOTH FAIL"),
    PairVerdict.UNDECIDED: _Shown("Undecided", "UNDECIDED"),
    PairVerdict.BOTH: _Shown("Passed on both", "BOTH PASS", ANSIColors.GREEN),
    PairVerdict.SKIPPED: _Shown("Skipped", "SKIPPED"),
    PairVerdict.NOT_RUN: _Shown("Not run", "NOT RUN"),
}
"""The pairs that need attention come first."""
_NO_VERDICT = {PairVerdict.UNDECIDED, PairVerdict.NOT_RUN}
_OPEN: dict[Outcome | None, str] = {
    Outcome.AGENT_ERROR: "agent error",
    Outcome.METRIC_ERROR: "metric error",
    Outcome.UNCHECKED: "unchecked",
    Outcome.SKIPPED: "not run",
    None: "not run",
}
"""Outcome that is no verdict → its name."""
_STATES = {"same": "same", "parted": "parted", "unknown": "not comparable"}
_WINNERS = {"first": "A", "second": "B", "none": "neither", "undecided": "undecided"}
_RULE_COLUMNS = 60
_ERRORS = (
    (Outcome.AGENT_ERROR, ExitCode.EXECUTION),
    (Outcome.METRIC_ERROR, ExitCode.EVALUATION),
)


def comparison_exit_code(report: ComparisonReport, fail_on: FailOn | None = None) -> ExitCode:
    """Return the exit code; the first of 130, 3, 4, 6, 1, 5 and 0 that applies.

    Without `fail_on`, no verdict counts: 0 says that the comparison is complete.
    """
    reports = (report.first.report, report.second.report)
    if any(agent_report.interrupted for agent_report in reports):
        return ExitCode.INTERRUPTED
    outcomes = {outcome for pair in report.pairs for outcome in (pair.first, pair.second)}
    for outcome, exit_code in _ERRORS:
        if outcome in outcomes:
            return exit_code
    if any(agent_report.stopped_by == "budget" for agent_report in reports):
        return ExitCode.BUDGET
    if fail_on == "regression" and (report.regressions or report.new_failures):
        return ExitCode.TEST_FAILED
    return ExitCode.PASSED if report.is_complete else ExitCode.NOTHING_SELECTED


def pair_name(pair: Pair) -> str:
    """Return the name of the case, else the beginning of its input in quotes."""
    return one_line(pair.name or f"'{one_line(pair.input, _MAX_NAME - 2)}'", _MAX_NAME)


def describe_trajectories(trajectories: Trajectories) -> str:
    """Return where the tool calls part, or that they are the same, or why that is unknown."""
    if trajectories.state == "unknown":
        return f"tool calls not comparable: {trajectories.reason}"
    times = ""
    if trajectories.compared > 1:
        count = trajectories.parted if trajectories.divergence else trajectories.compared
        times = f" (in {count} of {trajectories.compared} repetitions)"
    divergence = trajectories.divergence
    if divergence is None:
        left = trajectories.unknown_results
        unknown = f"; {plural(left, 'result')} of tools unknown" if left else ""
        return f"same tool calls{unknown}{times}"
    place = f"turn {divergence.turn}, call {divergence.call}"
    if divergence.repetition is not None:
        place = f"repetition {divergence.repetition}, {place}"
    order = "; the same calls in another order" if divergence.kind == "order" else ""
    return f"parted at {place}: A {divergence.first}, B {divergence.second}{order}{times}"


def pair_lines(pair: Pair, place: str) -> list[str]:
    """Return what a run prints when the pair is complete; no details if both passed alike."""
    shown = _SHOWN[pair.verdict]
    word = colorize(shown.word, shown.color)
    times = [_number(latency, " ms") for latency in (pair.latency_ms.first, pair.latency_ms.second)]
    took = f" (A {times[0]}, B {times[1]})" if pair.latency_ms.delta is not None else ""
    trajectories = pair.trajectories
    is_alike = trajectories.state == "same" and trajectories.agents != "parted"
    is_told = not is_alike or pair.verdict is not PairVerdict.BOTH
    details = [f"    {line}" for line in detail_lines(pair)] if is_told else []
    return [f"{place} {word} {pair_name(pair)}{took}", *details]


def detail_lines(pair: Pair) -> Iterator[str]:
    """Yield why each agent did not pass, where the tool calls part, and what the scores say."""
    for who, outcome, reasons in (
        ("A", pair.first, pair.first_reasons),
        ("B", pair.second, pair.second_reasons),
    ):
        if outcome is None:
            yield f"{who}: no result"
        for reason in reasons:
            yield one_line(f"{who}: {reason}", _MAX_LINE)
    if pair.trajectories.state != "unknown" or _has_two_results(pair):
        yield one_line(describe_trajectories(pair.trajectories), 2 * _MAX_LINE)
    handoffs = pair.trajectories.agents_divergence
    if handoffs is not None:
        place = "" if handoffs.repetition is None else f"repetition {handoffs.repetition}, "
        first, second = (" → ".join(way) or "no agent" for way in (handoffs.first, handoffs.second))
        parted = f"hand-offs parted at {place}turn {handoffs.turn}: A {first}, B {second}"
        yield one_line(parted, 2 * _MAX_LINE)
    if pair.preference is not None:
        winner = _WINNERS[pair.preference.winner]
        yield one_line(f"preferred: {winner}: {pair.preference.reason}", 2 * _MAX_LINE)
    for name, scores in pair.scores.items():
        if scores.delta is None:
            continue
        first, second = f"{scores.first:.2f}", f"{scores.second:.2f}"
        if first != second:
            yield one_line(f"{name}: A {first}, B {second}", _MAX_LINE)


def _has_two_results(pair: Pair) -> bool:
    return not {pair.first, pair.second} & {None, Outcome.SKIPPED}


def conclusions(report: ComparisonReport) -> Iterator[str]:
    """Yield what the counts and the preferences say, and what they do not."""
    yield from _conclusions_of_verdicts(report)
    if report.preferences is not None:
        yield from describe_preferences(report.preferences)


def _conclusions_of_verdicts(report: ComparisonReport) -> Iterator[str]:
    test, counts = report.significance, report.counts
    side = "run" if report.is_of_runs else "agent"
    decided = sum(pair.verdict.is_decided for pair in report.pairs)
    undecided = counts[PairVerdict.UNDECIDED] + counts[PairVerdict.NOT_RUN]
    if undecided:
        pairs = plural(len(report.pairs) - counts[PairVerdict.SKIPPED], "pair")
        reasons = "; ".join(_undecided_outcomes(report))
        yield f"UNDECIDED: {undecided} of {pairs} ({reasons}); they count for neither {side}."
    if test.regressions is None:
        yield f"No pair is decided, so the comparison says nothing about the {side}s."
        return
    if test.p_value is None:
        yield f"None of {plural(decided, 'decided pair')} passed on one {side} only."
        yield f"This does not prove that both {side}s are equally good."
    else:
        yield from _test_result(test, test.p_value, side)
    low, high = (percent(100 * rate, 0) for rate in test.regressions)
    yield f"Of further cases like these, {low} to {high} would pass only on A (95 % interval)."


def _undecided_outcomes(report: ComparisonReport) -> Iterator[str]:
    """Yield such as `B: 2 agent error, 1 not run`, of the pairs without a verdict."""
    pairs = [pair for pair in report.pairs if pair.verdict in _NO_VERDICT]
    for who, outcomes in (
        ("A", [pair.first for pair in pairs]),
        ("B", [pair.second for pair in pairs]),
    ):
        words = Counter(_OPEN.get(outcome) for outcome in outcomes)
        counts = ", ".join(f"{count} {word}" for word, count in words.items() if word)
        if counts:
            yield f"{who}: {counts}"


def _test_result(test: Significance, p_value: float, side: str) -> Iterator[str]:
    differing = test.only_first + test.only_second
    yield (
        f"{plural(test.only_first, 'case')} passed only on A, and {test.only_second} only on B."
        f" If both {side}s were equally good, {plural(differing, 'differing case')} would be split"
        f" at least this unevenly in {percent(100 * p_value, 1 if p_value < SIGNIFICANT else 0)}"
        f" of comparisons (exact McNemar test, p = {p_value:.2g})."
    )
    if p_value <= SIGNIFICANT:
        better = "A" if test.only_first > test.only_second else "B"
        yield f"Luck is an unlikely explanation: {better} is better in cases like these."
        return
    yield f"So they show neither that one {side} is better nor that both are equally good."
    if differing < MIN_DIFFERING:
        yield f"Fewer than {MIN_DIFFERING} differing cases never can: run more cases."


class TotalRow(NamedTuple):
    """A number of both agents as people read it."""

    name: str
    first: str
    second: str
    change: str
    pairs: str


def total_rows(report: ComparisonReport) -> Iterator[TotalRow]:
    """Yield costs, tokens, latency and scores over the pairs for which they are known."""
    unit = report.currency or ""
    formats: list[tuple[str, Total | None, Callable[[float], str]]] = [
        ("cost of the agent", report.cost, lambda amount: money(amount, unit)),
        ("tokens", report.tokens, lambda count: f"{count:,.0f}"),
        ("mean latency", report.latency_ms, lambda elapsed_ms: f"{elapsed_ms:,.0f} ms"),
    ]
    formats += [
        (f"mean score of {name}", numbers, lambda score: f"{score:.2f}")
        for name, numbers in report.scores.items()
    ]
    for name, total, shown in formats:
        if total is not None:
            unknown = f", unknown for {total.unknown}" if total.unknown else ""
            pairs = plural(total.pairs, "pair") + unknown
            yield TotalRow(name, shown(total.first), shown(total.second), _change(total), pairs)


def _change(total: Total) -> str:
    change = total.second - total.first
    if not change:
        return "same"
    if total.interval is not None:
        return "{:+.2f} ({:+.2f} to {:+.2f})".format(change, *total.interval)
    return f"{100 * change / total.first:+.0f}%" if total.first else "new"


def _by_verdict(report: ComparisonReport) -> Iterator[tuple[PairVerdict, list[Pair]]]:
    for verdict in _SHOWN:
        pairs = [pair for pair in report.pairs if pair.verdict is verdict]
        if pairs:
            yield verdict, pairs


def side_label(agent: ComparedAgent) -> str:
    """Return the name of a side and where it comes from."""
    return f"{agent.name} ({agent.source})"


def render_terminal(report: ComparisonReport, *, verbose: bool = False) -> str:
    """Return the summary as text; with `verbose`, it lists every pair that ran, not only those
    that are regressions or undecided."""
    listed = set(_SHOWN) if verbose else {PairVerdict.ONLY_FIRST, PairVerdict.UNDECIDED}
    lines = [
        "",
        "=" * _RULE_COLUMNS,
        f"A: {side_label(report.first)}",
        f"B: {side_label(report.second)}",
    ]
    lines += comparison_notes(report)
    lines += [one_line(difference, _MAX_LINE) for difference in _differences(report)]
    lines += ["", *(f"  {title}: {count}" for title, count in count_rows(report))]
    rows = [(f"  {row.name}", row.first, "→", *row[2:]) for row in total_rows(report)]
    lines += ["", format_table(rows)] if rows else []
    for verdict, pairs in _by_verdict(report):
        if verdict in listed and verdict not in {PairVerdict.SKIPPED, PairVerdict.NOT_RUN}:
            lines += ["", f"{_SHOWN[verdict].title}:"]
            for pair in pairs:
                lines += [f"  {pair_name(pair)}", *(f"    {line}" for line in detail_lines(pair))]
    lines += ["", *conclusions(report), "=" * _RULE_COLUMNS]
    return "\n".join(lines)


def count_rows(report: ComparisonReport) -> Iterator[tuple[str, str]]:
    """Yield how many pairs have each verdict, and whose tool calls are the same."""
    for verdict in PairVerdict:
        count = report.counts[verdict]
        if count or verdict.is_decided:
            yield _SHOWN[verdict].title, str(count)
    pairs = [pair for pair in report.pairs if _has_two_results(pair)]
    for what, states in (
        ("Tool calls", [_STATES[pair.trajectories.state] for pair in pairs]),
        ("Hand-offs", [pair.trajectories.agents for pair in report.pairs]),
    ):
        counts = Counter(state for state in states if state)
        if counts:
            yield what, ", ".join(f"{count} {state}" for state, count in counts.items())


def _differences(report: ComparisonReport) -> Iterator[str]:
    """Yield what differs between the sides, other than results of cases that both have."""
    yield from (f"Changed: {change}" for change in report.changes)
    for what, names in (
        ("New and failing", report.new_failures),
        ("Only in A", report.only_in_first),
        ("Only in B", report.only_in_second),
    ):
        if names:
            yield f"{what}: {', '.join(names)}"


def comparison_notes(report: ComparisonReport) -> Iterator[str]:
    """Yield what readers must know to judge the comparison."""
    first, second = report.first.report, report.second.report
    if first.interrupted or second.interrupted:
        yield "Interrupted: pairs are missing."
    yield from dict.fromkeys(f"Stopped: {side.stopped}" for side in (first, second) if side.stopped)
    if first.selection is not None:
        yield f"Selected: {first.selection}"
    for who, summary in (("A", first.summary), ("B", second.summary)):
        if summary.recordings is not None:
            yield f"{who}: {describe_recordings(summary.recordings)}"
    yield from dict.fromkeys([*first.notes, *second.notes])


def render_markdown(report: ComparisonReport) -> str:
    """Return the comparison as Markdown; no agent response can change how it renders."""
    lines = list(_head(report))
    room = MAX_CHARACTERS - _RESERVE - sum(len(line) + 1 for line in lines)
    for verdict, pairs in _by_verdict(report):
        if verdict not in {PairVerdict.SKIPPED, PairVerdict.NOT_RUN}:
            items = _shown_pairs(pairs, room)
            room -= sum(len(line) + 1 for line in items)
            title = _SHOWN[verdict].title
            is_folded = verdict is PairVerdict.BOTH
            head = [f"## {title}", ""]
            lines += folded(f"{title}: {len(pairs)}", items) if is_folded else head + items
    rows = [_pair_row(pair) for pair in report.pairs]
    pairs_table = table(_PAIR_HEADER, rows)
    if sum(len(line) + 1 for line in pairs_table) <= room:
        lines += folded(f"All pairs: {len(rows)}", pairs_table)
    else:
        lines += ["*The table of all pairs is left out; the JSON report has them.*", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _shown_pairs(pairs: Sequence[Pair], room: int) -> list[str]:
    """Return the pairs that there is room for, and how many more there are."""
    lines: list[str] = []
    for number, pair in enumerate(pairs):
        item = [f"- **{inline(pair_name(pair))}**"]
        item += [f"  - {inline(line, 2 * _MAX_LINE)}" for line in detail_lines(pair)]
        room -= sum(len(line) + 1 for line in item)
        if room < 0:
            lines.append(f"- … and {len(pairs) - number} more; the JSON report has them")
            break
        lines += item
    return [*lines, ""]


def _head(report: ComparisonReport) -> Iterator[str]:
    about = "Runs" if report.is_of_runs else "Agents"
    yield from (f"# Comparison of Two {about}", "")
    for who, agent in (("A", report.first), ("B", report.second)):
        is_named = agent.run is None or agent.run in agent.source
        run = "" if is_named else f", run {code(agent.run or '')}"
        yield f"- **{who}:** {inline(agent.name)}, {code(agent.source)}{run}"
    yield f"- **Generated:** {inline(report.second.report.timestamp)}"
    yield ""
    for note in comparison_notes(report):
        yield from note_lines(note, 1_000)
    differences = [f"- {inline(line, 1_000)}" for line in _differences(report)]
    if differences:
        yield from (*differences, "")
    yield from ("## Summary", "", *table(("Pairs", "Count"), count_rows(report)))
    yield from (*(f"- {inline(line, 1_000)}" for line in conclusions(report)), "")
    rows = [[inline(cell) for cell in row] for row in total_rows(report)]
    if rows:
        yield from ("## Cost, Latency and Scores", "")
        yield from table(("", "A", "B", "Change", "Known for"), rows)


_PAIR_HEADER = ("Case", "A", "B", "Tool Calls", "Latency A", "Latency B", "Tokens A", "Tokens B")


def _pair_row(pair: Pair) -> list[str]:
    outcomes = ((outcome or "–").replace("_", " ") for outcome in (pair.first, pair.second))
    state = _STATES[pair.trajectories.state] if _has_two_results(pair) else "–"
    cells = [pair_name(pair), *outcomes, state]
    for numbers, unit in ((pair.latency_ms, " ms"), (pair.tokens, "")):
        cells += [_number(number, unit) for number in (numbers.first, numbers.second)]
    return [inline(cell) for cell in cells]


def _number(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{value:,.0f}{unit}"


def describe_preferences(preferences: Preferences) -> Iterator[str]:
    """Yield whose answers the judge prefers, and whether that may be luck."""
    yield (
        f"{preferences.judge} prefers the answer of A in {plural(preferences.first, 'case')} and"
        f" that of B in {preferences.second}; {preferences.none} changed with the order,"
        f" {preferences.undecided} undecided ({one_line(preferences.criteria, _MAX_LINE)})."
    )
    if preferences.left_out:
        left_out = plural(preferences.left_out, "pair")
        yield f"{left_out} without two answers to one input left out."
    if preferences.p_value is None:
        return
    test = f"(sign test, p = {preferences.p_value:.2g})"
    if preferences.p_value <= SIGNIFICANT:
        better = "A" if preferences.first > preferences.second else "B"
        yield f"It prefers {better} more often than luck explains {test}."
    else:
        yield f"Luck may explain this difference {test}."
