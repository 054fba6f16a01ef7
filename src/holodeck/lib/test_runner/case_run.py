"""One test case from its files to its verdict."""

import logging
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from holodeck.errors import BackendError, HoloDeckError
from holodeck.lib.backends.base import AgentBackend, ExecutionResult
from holodeck.lib.evaluators.base import Observation
from holodeck.lib.files.processor import FileProcessor
from holodeck.lib.limiter import time_limit
from holodeck.lib.observability import names, set_content, span
from holodeck.lib.test_runner.grading import Check, grade
from holodeck.lib.test_runner.observer import Answered, Observer
from holodeck.lib.test_runner.tool_checks import check_tools
from holodeck.lib.test_runner.tool_invocation_builder import pair_tool_calls, refusals
from holodeck.lib.test_runner.verdict import verdict
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import (
    Attempt,
    MetricResult,
    Outcome,
    ProcessedFileInput,
    TestResult,
    ToolCheck,
    ToolInvocation,
)

logger = logging.getLogger(__name__)

ANSWERED_NOTHING = "the agent answered nothing"


@dataclass
class CaseRun:
    """A case under way: what it is run with, and what has been seen so far."""

    case: TestCaseModel
    backend: AgentBackend
    files: FileProcessor
    checks: Sequence[Check]
    observer: Observer
    agent_name: str = "agent"
    time_limit_s: float | None = None
    """Seconds for the whole case, files and metrics included; None for no limit."""

    processed: list[ProcessedFileInput] = field(default_factory=list)
    answer: ExecutionResult | None = None
    invocations: list[ToolInvocation] = field(default_factory=list)
    tool_checks: list[ToolCheck] = field(default_factory=list)
    rows: list[MetricResult] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    """What kept the agent from being run."""
    is_hopeless: bool = False
    """Whether every other case will fail like this one: a wrong key, a spent quota."""
    faults: list[str] = field(default_factory=list)
    """What the agent did wrong, whatever the checks say."""
    attempts: list[Attempt] = field(default_factory=list)
    agent_seconds: float | None = None
    """How long the agent took, without the wait for a slot."""
    waited_seconds: float = 0.0
    """For a slot of the endpoint, which is nobody's slowness."""
    """How long the agent took, without the wait for a slot."""

    async def result(self) -> TestResult:
        """Run the case. Only cancellation and configuration errors come out of it."""
        started = time.perf_counter()
        with span(names.CASE, {names.CASE_NAME: self.case.name}) as current:
            try:
                async with time_limit(self.time_limit_s) as limit:
                    await self._steps()
            except TimeoutError as error:
                if not limit.expired():
                    self.errors.append(_in_words(error))
                else:
                    self.errors.append(f"the case took longer than {self.time_limit_s:g} s")
            except Exception as error:  # noqa: BLE001 - the border: a case that breaks is a row
                logger.debug("case %s: %s", self.case.name, traceback.format_exc())
                self.errors.append(_in_words(error))
            elapsed = time.perf_counter() - started - self.waited_seconds
            result = self._as_result(_ms(elapsed))
            current.set({names.CASE_STATUS: "pass" if result.passed else "fail"})
        return result

    async def _steps(self) -> None:
        await self._read_files()
        if self.errors:
            return
        await self._ask()
        self._check_tools()
        if self.answer is not None and not self.errors:
            self.rows = await grade(self.checks, self._observation(self.answer))

    async def _read_files(self) -> None:
        for file in self.case.files or []:
            processed = await self.files.process_file_async(file)
            self.processed.append(processed)
            if processed.error:
                self.errors.append(f"File error: {file.path}: {processed.error}")

    async def _ask(self) -> None:
        message = self._message()
        attributes = {names.OPERATION: names.INVOKE_AGENT, names.AGENT_NAME: self.agent_name}
        started = time.perf_counter()
        with span(names.invoke_agent(self.agent_name), attributes, kind="client") as current:
            set_content(current, names.INPUT_MESSAGES, message)
            try:
                self.answer = await self.backend.invoke_once(message)
                self.waited_seconds = self.answer.waited_ms / 1000
            except Exception as error:  # noqa: BLE001 - an agent may raise what it likes
                logger.debug("agent: %s", traceback.format_exc())
                current.fail(type(error).__name__, str(error))
                self._note_failure(error)
                return
            finally:
                self.agent_seconds = time.perf_counter() - started - self.waited_seconds
            set_content(current, names.OUTPUT_MESSAGES, self.answer.response)
            current.set(
                {
                    names.INPUT_TOKENS: self.answer.token_usage.prompt_tokens,
                    names.OUTPUT_TOKENS: self.answer.token_usage.completion_tokens,
                }
            )
        self._note_answer(self.answer)

    def _message(self) -> str:
        """The input, after the text of the files."""
        texts = [
            "\n".join(filter(None, [f"File: {file.original.path}", file.original.description]))
            + f"\n{file.markdown_content}"
            for file in self.processed
        ]
        return "\n\n".join([*texts, self.case.input])

    def _note_failure(self, error: Exception) -> None:
        self.errors.append(_in_words(error))
        self.is_hopeless = isinstance(error, BackendError) and error.hopeless
        self.attempts = [
            tried for tried in getattr(error, "attempts", ()) if isinstance(tried, Attempt)
        ]
        seen = getattr(error, "seen", None)
        if isinstance(seen, ExecutionResult):
            self.waited_seconds = seen.waited_ms / 1000
            self.answer = seen
            self.invocations = pair_tool_calls(seen.tool_calls, seen.tool_results)

    def _note_answer(self, answer: ExecutionResult) -> None:
        self.attempts = answer.attempts
        self.invocations = pair_tool_calls(answer.tool_calls, answer.tool_results)
        self.faults += [
            f"a tool call could not be carried out: {line}"
            for line in refusals(answer.tool_calls, answer.tool_results)
        ]
        if answer.is_error:
            self.errors.append(f"Agent error: {answer.error_reason or 'it gave no reason'}")
        elif not answer.response.strip():
            self.faults.append(ANSWERED_NOTHING)

    def _check_tools(self) -> None:
        if self.answer is not None:
            self.tool_checks = check_tools(self.case, self.invocations)

    def _observation(self, answer: ExecutionResult) -> Observation:
        took = None if self.agent_seconds is None else self.agent_seconds * 1000
        seen = Answered(answer.response, self.invocations, self.processed, took)
        return self.observer.observation(self.case, seen)

    def _outcome(self) -> Outcome:
        if self.errors:
            return Outcome.AGENT_ERROR
        return verdict(self.faults, self.tool_checks, self.rows, self.checks)

    def _as_result(self, elapsed_ms: int) -> TestResult:
        outcome = self._outcome()
        answer = self.answer
        checked = self.tool_checks
        return TestResult(
            test_name=self.case.name,
            test_input=self.case.input,
            processed_files=self.processed,
            agent_response=answer.response if answer is not None and not self.errors else None,
            tool_calls=[call.name for call in self.invocations],
            tool_invocations=self.invocations,
            expected_tools=self.case.expected_tools,
            tools_matched=all(check.passed for check in checked) if checked else None,
            tool_checks=checked,
            metric_results=self.rows,
            ground_truth=self.case.ground_truth,
            passed=outcome is Outcome.PASSED,
            outcome=outcome,
            execution_time_ms=elapsed_ms,
            agent_time_ms=None if self.agent_seconds is None else _ms(self.agent_seconds),
            errors=[*self.errors, *self.faults],
            attempts=self.attempts,
            timestamp=datetime.now(UTC).isoformat(timespec="milliseconds"),
            token_usage=None if answer is None else answer.token_usage,
        )


def _in_words(error: Exception) -> str:
    text = ""
    with suppress(Exception):  # an exception of the user's may fail to say what it is
        text = " ".join(str(error).split())
    if isinstance(error, HoloDeckError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
