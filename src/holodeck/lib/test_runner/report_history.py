"""The part of the Markdown report with the messages before a case."""

from collections.abc import Iterator

from holodeck.lib.conversation.messages import transcript_of
from holodeck.lib.test_runner.markdown import fenced
from holodeck.models.test_result import TestResult


def history_section(result: TestResult, mark: str) -> Iterator[str]:
    """Yield the messages before the case, none of which is a response of this run."""
    messages = []
    tool_names: dict[str, str] = {}
    for one in result.history:
        message = one.model_dump(mode="json", exclude_none=True)
        tool_names |= {call.id: call.function.name for call in one.tool_calls or ()}
        if one.tool_call_id is not None:
            message["name"] = tool_names[one.tool_call_id]
        messages.append(message)
    if messages:
        yield from (f"{mark} Earlier Messages", "", *fenced(transcript_of(messages)), "")
