"""One turn with an agent: its files, what is said, and what came back."""

import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from holodeck.errors import BackendError, BackendTimeoutError, ConfigError, Refusal
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.exceptions import describe, message_of, raised_by
from holodeck.lib.files.processor import FileProcessor
from holodeck.lib.observability import names, set_content, span
from holodeck.lib.test_runner.tool_checks import pair_tool_calls, refusals
from holodeck.models.evidence import Evidence, evidence
from holodeck.models.outcome import Attempt, RaisedError
from holodeck.models.test_case import RetryKind, TurnModel
from holodeck.models.test_result import (
    Outcome,
    ProcessedFileInput,
    ToolInvocation,
    TurnResult,
)

logger = logging.getLogger(__name__)

Ask = Callable[[str], Awaitable[ExecutionResult]]

ANSWERED_NOTHING = "the agent answered nothing"


@dataclass
class TurnRun:
    """A turn under way: what is said, and what has been seen so far."""

    turn: TurnModel
    files: FileProcessor
    agent_name: str

    processed: list[ProcessedFileInput] = field(default_factory=list)
    answer: ExecutionResult | None = None
    invocations: list[ToolInvocation] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What kept the agent from being run."""
    raised: list[RaisedError] = field(default_factory=list)
    """Where the user's code raised what stands in `errors`."""
    failure: RetryKind | None = None
    """What kept the agent from being run, where another try may help; None where it cannot."""
    is_permanent: bool = False
    """Whether every other case will fail like this one: a wrong key, a spent quota."""
    refusal: Refusal | None = None
    """What the provider objected to; None if it did not."""
    faults: list[str] = field(default_factory=list)
    """What the agent did wrong, whatever the checks say."""
    attempts: list[Attempt] = field(default_factory=list)
    agent_seconds: float | None = None
    """How long the agent took, without the wait for a slot."""
    waited_seconds: float = 0.0
    """For a slot of the endpoint, which is nobody's slowness."""

    @property
    def response(self) -> str | None:
        """The agent's answer; None where there is none."""
        return self.answer.response if self.answer is not None and not self.errors else None

    @property
    def agent_ms(self) -> int | None:
        """How long the agent took, in whole milliseconds."""
        return None if self.agent_seconds is None else round(self.agent_seconds * 1000)

    @property
    def evidence(self) -> Evidence:
        """Who saw what of the turn so far."""
        seen = self.answer
        return evidence(
            tool_calls=None if seen is None or seen.tool_calls is None else seen.source,
            token_usage=None if seen is None or seen.token_usage is None else seen.source,
            history="runner",
            latency=None if self.agent_seconds is None else "runner",
        )

    async def run(self, ask: Ask) -> None:
        """Read the files and ask; what goes wrong is noted."""
        await self._read_files()
        if not self.errors:
            await self._ask(ask)

    def result(self) -> TurnResult:
        """The turn as it went, ungraded."""
        return TurnResult(
            input=self.turn.input,
            outcome=Outcome.AGENT_ERROR if self.errors else None,
            processed_files=self.processed,
            agent_response=self.response,
            tool_invocations=self.invocations,
            expected_tools=self.turn.expected_tools,
            ground_truth=self.turn.ground_truth,
            agent_time_ms=self.agent_ms,
            errors=[*self.errors, *self.faults],
            attempts=self.attempts,
            token_usage=None if self.answer is None else self.answer.token_usage,
            evidence=self.evidence,
        )

    async def _read_files(self) -> None:
        for file in self.turn.files or []:
            processed = await self.files.process_file_async(file)
            self.processed.append(processed)
            if processed.error:
                self.errors.append(f"File error: {file.path}: {processed.error}")

    async def _ask(self, ask: Ask) -> None:
        message = with_files(self.turn.input, self.processed)
        attributes = {names.OPERATION: names.INVOKE_AGENT, names.AGENT_NAME: self.agent_name}
        started = time.perf_counter()
        with span(names.invoke_agent(self.agent_name), attributes, kind="client") as current:
            set_content(current, names.INPUT_MESSAGES, message)
            try:
                self.answer = await ask(message)
                self.waited_seconds = self.answer.waited_ms / 1000
            except Exception as error:  # noqa: BLE001 - an agent may raise what it likes
                logger.debug("agent: %s", traceback.format_exc())
                current.fail(type(error).__name__, message_of(error))
                self._note_failure(error)
                return
            finally:
                self.agent_seconds = time.perf_counter() - started - self.waited_seconds
            set_content(current, names.OUTPUT_MESSAGES, self.answer.response)
            usage = self.answer.token_usage
            if usage is not None:
                current.set({names.INPUT_TOKENS: usage.prompt_tokens})
                current.set({names.OUTPUT_TOKENS: usage.completion_tokens})
        self._note_answer(self.answer)

    def _note_failure(self, error: Exception) -> None:
        self.errors.append(describe(error))
        self.raised += filter(None, [raised_by(error)])
        self.is_permanent = isinstance(error, BackendError) and error.permanent
        self.refusal = error.refusal if isinstance(error, BackendError) else None
        self.failure = None if self.is_permanent else failure_of(error)
        self.attempts = [
            tried for tried in getattr(error, "attempts", ()) if isinstance(tried, Attempt)
        ]
        seen = getattr(error, "seen", None)
        if isinstance(seen, ExecutionResult):
            self.waited_seconds = seen.waited_ms / 1000
            self.answer = seen
            self.invocations = pair_tool_calls(seen.tool_calls or (), seen.tool_results)

    def _note_answer(self, answer: ExecutionResult) -> None:
        self.attempts = answer.attempts
        calls = answer.tool_calls or ()
        self.invocations = pair_tool_calls(calls, answer.tool_results)
        self.faults += [
            f"a tool call could not be carried out: {line}"
            for line in refusals(calls, answer.tool_results)
        ]
        if answer.is_error:
            self.failure = "error"
            self.errors.append(f"Agent error: {answer.error_reason or 'it gave no reason'}")
        elif not answer.response.strip():
            self.faults.append(ANSWERED_NOTHING)


def failure_of(error: Exception) -> RetryKind | None:
    """What retrying calls the error; None for a configuration that is wrong."""
    if isinstance(error, ConfigError):
        return None
    return "timeout" if isinstance(error, BackendTimeoutError | TimeoutError) else "error"


def with_files(said: str, files: Sequence[ProcessedFileInput]) -> str:
    """What the agent is sent: the input, after the text of the files."""
    texts = [
        "\n".join(filter(None, [f"File: {file.original.path}", file.original.description]))
        + f"\n{file.markdown_content}"
        for file in files
    ]
    return "\n\n".join([*texts, said])
