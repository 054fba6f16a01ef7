"""What is prepared during the first requests, while this process has nothing else to do."""

import asyncio

from holodeck.lib.garbage import collect_from_now_on

FIRST_REQUESTS_S = 0.02
"""How long the first requests get to be sent; sending them is more urgent."""


async def prepare_results() -> None:
    """Build the schemas of results, records and reports, then let Python collect garbage.

    Each schema would otherwise be built with its first value, that is between an answer and the
    exit.
    """
    await asyncio.sleep(FIRST_REQUESTS_S)
    from holodeck.models.outcome import ModelCost
    from holodeck.models.record import CaseFinished, RunFinished
    from holodeck.models.test_result import MetricResult, ReportSummary, TestReport, TestResult

    models = (MetricResult, TestResult, CaseFinished, ModelCost, ReportSummary, TestReport)
    for model in (*models, RunFinished):
        model.model_rebuild()
        await asyncio.sleep(0)  # what has arrived meanwhile comes first
    collect_from_now_on()
