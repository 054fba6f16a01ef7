"""Test cases from the conversations of a recorded run."""

from collections.abc import Sequence

from holodeck.lib.case_import.case import Imported, ImportedCase, LoggedCall, LoggedTurn
from holodeck.lib.case_import.messages import ConversationReader
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import TestResult, ToolInvocation, TurnResult


def read_results(run: str, results: Sequence[TestResult], imported: Imported) -> None:
    """Add a case for each recorded result."""
    for number, result in enumerate(results, 1):
        location = f"{run}: test {number}" + (f" ({result.location})" if result.location else "")
        shown = result.repeats.runs[-1] if result.repeats and result.repeats.runs else result
        if shown.outcome is Outcome.SKIPPED:
            imported.note(location, "left out: it was not run")
            continue
        if shown.processed_files or any(turn.processed_files for turn in shown.turns):
            imported.note(location, "files are not imported")
        turns = [_turn(part) for part in shown.parts]
        imported.cases.append(
            ImportedCase(
                location=location,
                turns=turns,
                name=result.test_name,
                tags=list(result.tags),
                history=_history(shown, location, imported),
            )
        )


def _history(result: TestResult, location: str, imported: Imported) -> list[LoggedTurn]:
    """Return the turns before the case."""
    if not result.history:
        return []
    earlier = Imported()
    messages = ((location, one.model_dump(exclude_none=True)) for one in result.history)
    ConversationReader(location, earlier).read(messages)
    for note in earlier.notes:
        imported.note(note.location, f"'history': {note.text}")
    return earlier.cases[0].turns if earlier.cases else []


def _turn(part: TestResult | TurnResult) -> LoggedTurn:
    calls = [_call(call) for call in part.tool_invocations]
    return LoggedTurn(part.input, part.agent_response, calls)


def _call(call: ToolInvocation) -> LoggedCall:
    arguments = None if "args" in call.unknown else dict(call.args)
    result = str(call.result) if call.is_result_known and call.error is None else call.error
    return LoggedCall(call.full_name, arguments, None, result)
