"""What is prepared during the first requests, while this process has nothing else to do."""

import asyncio
import gc

FIRST_REQUESTS_S = 0.02
"""How long the first requests get to be sent; sending them is more urgent."""
NEW_OBJECTS = 10_000
"""How many new objects cause a collection. Python's 700 are a few test cases, whose objects are
still needed."""


async def prepare_results() -> None:
    """Build the schemas of results, records and reports, then let Python collect garbage.

    Each schema would otherwise be built with its first value, that is between an answer and the
    exit. What exists by now lives until the exit, so no collection needs to look at it.
    """
    await asyncio.sleep(FIRST_REQUESTS_S)
    from holodeck.models.outcome import ModelCost
    from holodeck.models.record import CaseFinished, RunFinished
    from holodeck.models.test_result import MetricResult, ReportSummary, TestReport, TestResult

    models = (MetricResult, TestResult, CaseFinished, ModelCost, ReportSummary, TestReport)
    for model in (*models, RunFinished):
        model.model_rebuild()
        await asyncio.sleep(0)  # what has arrived meanwhile comes first
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)
    gc.enable()
