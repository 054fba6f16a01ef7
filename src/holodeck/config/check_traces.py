"""Static checks of `trace`: can spans arrive at all, and are the patterns valid?"""

from holodeck.config.findings import CheckContext
from holodeck.config.source import KeyPath
from holodeck.errors import ConfigError
from holodeck.lib.support.patterns import compile_pattern
from holodeck.models.backend import A2aBackendConfig, HttpBackendConfig, McpBackendConfig
from holodeck.models.cases.trace_checks import TraceChecks
from holodeck.models.test_case import TestCaseModel

NO_RECEIVER = (
    "the agent behind the URL does not know where to send its spans; write 'observability:"
    " {receiver: {port: 4318}}', and start it with"
    " OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
)


def check_traces(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Report the findings about the checks of spans of a case and its turns."""
    parts = [((), case), *case.checked_turns]
    for at, part in parts:
        if part.trace is None:
            continue
        if not _can_have_spans(context):
            context.error((*path, *at, "trace"), NO_RECEIVER)
        _check_patterns(context, part.trace, (*path, *at, "trace"))


def _can_have_spans(context: CheckContext) -> bool:
    backend, settings = context.agent.backend, context.agent.observability
    is_service = isinstance(backend, HttpBackendConfig | A2aBackendConfig) or (
        isinstance(backend, McpBackendConfig) and backend.url is not None
    )
    return not is_service or (settings is not None and settings.receiver is not None)


def _check_patterns(context: CheckContext, checks: TraceChecks, path: KeyPath) -> None:
    for index, check in enumerate(checks.checks):
        for name, matcher in check.matchers().items():
            if matcher.regex is None:
                continue
            try:
                compile_pattern(matcher.regex)
            except ConfigError as error:
                context.error((*path, "checks", index, "where", name, "regex"), error.message)
