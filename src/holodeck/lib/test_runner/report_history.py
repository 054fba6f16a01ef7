"""The part of the Markdown report that tells what was said before a case."""

from collections.abc import Iterator

from holodeck.lib.conversation.messages import EARLIER, transcript_of
from holodeck.lib.test_runner.history import to_judge_messages
from holodeck.lib.test_runner.markdown import fenced
from holodeck.models.test_result import TestResult


def history_section(result: TestResult, mark: str) -> Iterator[str]:
    """The earlier messages, none of which is an answer of this run."""
    if result.history:
        said = transcript_of([{**one, EARLIER: False} for one in to_judge_messages(result.history)])
        yield from (f"{mark} Earlier Messages", "", *fenced(said), "")
