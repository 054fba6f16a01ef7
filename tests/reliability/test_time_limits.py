"""Every wait ends long before what hangs, with a row that names what took too long."""

import asyncio

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.config.loader import ConfigLoader
from holodeck.models.config import ExecutionConfig
from support import azure_prompt
from support.faults import WAYS, agent_for, run_cases, settings

LIMIT_S = 0.4
LONG_S = 60.0
"""Far longer than the limits, far shorter than what hangs."""
AT_ONCE = 8
CODE = """
import asyncio, time

def block(*_):
    time.sleep(600)
    return 1.0

async def sleep(*_):
    await asyncio.sleep(600)
    return 1.0

def grade(context, judge):
    return judge.ask("Is it polite?")

def wait(seconds: int) -> str:
    time.sleep(600)
    return "waited"

async def doze(seconds: int) -> str:
    await asyncio.sleep(600)
    return "dozed"
"""
CALL = ExecutionConfig(llm_timeout=LIMIT_S)
OTHER_MODELS = ExecutionConfig(llm_timeout=LIMIT_S)
ATTEMPT = ExecutionConfig(attempt_timeout=LIMIT_S, max_retries=0)
CASE = ExecutionConfig(case_timeout=LIMIT_S)
RUN = ExecutionConfig(run_timeout=LIMIT_S)


def drip(_):
    return Reply("x" * 500, fault="drip", drip_s=0.2)


def broken(fault):
    return lambda _: Reply("x" * 200, fault=fault)


def only_the_agent(request):
    """Answers the agent, and hangs for every other model."""
    return Reply("OK", fault=None if request.system == "Be brief." else "hang")


def calling(tool):
    """A model that calls the tool once and is content with whatever comes of it."""
    return lambda request: Reply(
        *(["OK"] if request.tool_results else [None, [(tool, {"seconds": 600})]])
    )


def graded_by(metric, **keys):
    return {"evaluations": {"metrics": [{"metric": f"code:{metric}", "threshold": 0.5} | keys]}}


AGENT = {"timeout": 600}
"""The agent has time, whatever limits its judge has."""


def judged_by(**keys):
    given = {"ground_truth": "gone", "retrieval_context": ["gone"]}
    return {"evaluations": {"metrics": [keys]}, "case": {"input": "go", **given, **AGENT}}


def tools(name, **keys):
    return {
        "tools": [{"type": "function", "name": name, "file": "code.py", "function": name} | keys]
    }


SERVER = {
    f"{fault}, {what}": (answer, limits, {}, said)
    for fault, answer in {
        "silence": broken("hang"),
        "half an answer": broken("half_open"),
        "a byte now and then": drip,
    }.items()
    for what, limits, said in (
        ("limit of the call", CALL, "0.4"),
        ("limit of the attempt", ATTEMPT, "no answer in time"),
        ("limit of the case", CASE, "the case took longer than 0.4 s"),
        ("limit of the run", RUN, "the run exceeded its time limit of 0.4 s"),
    )
}
TOOLS = {
    f"{name}, {what}": (calling(name), limits, tools(name, **keys), said)
    for name in ("wait", "doze")
    for what, limits, keys, said in (
        ("limit of the tool", ExecutionConfig(), {"timeout": LIMIT_S}, "no result within 0.4 s"),
        ("limit of the call", CALL, {}, "0.4"),
    )
}
METRICS = {
    f"{name}, {what}": (Reply("OK"), limits, graded_by(name, **keys), said)
    for name in ("block", "sleep")
    for what, limits, keys, said in (
        ("limit of the metric", ExecutionConfig(), {"timeout_ms": 400}, "timed out after 0.4 s"),
        ("limit of the case", CASE, {}, "the case took longer than 0.4 s"),
    )
}
WAITS = {**SERVER, **TOOLS, **METRICS}
NO_MODEL = {"model": None, "instructions": None}
OWN_CODE = {
    "a function, limit of the call": ("code:block", CALL, "0.4"),
    "an async function, limit of the call": ("code:sleep", CALL, "0.4"),
    "a function, limit of the case": ("code:block", CASE, "the case took longer than 0.4 s"),
}

USER = {"situation": "a desk"}
ATTACKER = USER | {"red_team": {"target": "tell the code"}}
MODELS = {
    f"the model of {name}": (only_the_agent, OTHER_MODELS, fields, said)
    for said in ["no answer within 0.4 s (execution.llm_timeout)"]
    for name, fields in {
        "criteria": {"case": {"input": "go", "criteria": ["is polite"], **AGENT}},
        "a simulated user": {"case": {"simulate": USER, "criteria": ["is polite"], **AGENT}},
        "an attacker": {"case": {"simulate": ATTACKER, "criteria": ["it keeps the code"], **AGENT}},
        "a judge": judged_by(type="judge", name="polite", criteria=["polite"]),
        "a metric of DeepEval": judged_by(type="deepeval", metric="bias"),
        "a class of DeepEval": judged_by(type="deepeval", **{"class": "BiasMetric"}),
        "a metric of Azure": judged_by(metric="relevance"),
        "a class of Azure": judged_by(**azure_prompt.KEYS),
        "a grader": judged_by(type="code", grader="code:grade", judge=True),
    }.items()
}


@pytest.fixture(autouse=True)
async def warm(tmp_path_factory):
    """Loading Semantic Kernel takes seconds the first time, which are nobody's wait."""
    with FakeOpenAI() as server:
        folder = tmp_path_factory.mktemp("warm")
        await run_cases(agent_for(server, folder, 1), folder, settings(ExecutionConfig()))


async def test_no_time_limit_is_outlasted(tmp_path, record_property):
    """Some of them at the same time, each with a server and an agent of its own."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(wait):
        async with slots:
            return await outlasted(tmp_path, *wait)

    (tmp_path / "code.py").write_text(CODE)
    azure_prompt.write_rater(tmp_path)
    waits = (
        {
            (wait, way): (answer, limits, WAYS[way] | fields, said)
            for wait, (answer, limits, fields, said) in WAITS.items()
            for way in WAYS
        }
        | {
            (wait, "own code"): (None, limits, {"backend": backend, **NO_MODEL}, said)
            for wait, (backend, limits, said) in OWN_CODE.items()
        }
        | {
            (wait, "chat"): (answer, limits, WAYS["chat"] | fields, said)
            for wait, (answer, limits, fields, said) in MODELS.items()
        }
    )

    found = await asyncio.gather(*map(one, waits.values()))

    held = [wait for wait, why in zip(waits, found, strict=True) if why is None]
    record_property("counted", f"time limits held: {len(held)}/{len(waits)}")
    assert {wait: why for wait, why in zip(waits, found, strict=True) if why is not None} == {}


async def outlasted(folder, answer, limits, fields, said):
    """None if the wait ended in time for the reason said; else how it ended."""
    own = {} if "evaluations" in fields else {"evaluations": [{"metric": "contains", "value": "x"}]}
    case = fields.pop("case", {"input": "go"} | own)
    with FakeOpenAI(answer) as server:
        cases = [{"name": "waits"} | case]
        agent = agent_for(server, folder, 0, test_cases=cases, **fields)
        if limits is OTHER_MODELS:  # where a file sets it, a case may give its agent more time
            config = ConfigLoader().resolve_execution_config(yaml_config=limits)
        else:
            config = settings(limits, llm_timeout=limits.llm_timeout or 600)
        try:
            async with asyncio.timeout(LONG_S):
                report = await run_cases(agent, folder, config)
        except TimeoutError:
            return "it did not end"
    reasons = list(reasons_of(report))
    if report.summary.passed or not any(said in one for one in reasons):
        return f"{report.summary.passed} passed; {reasons}"
    return None


def reasons_of(report):
    """Everything the report says about why something did not work."""
    yield report.stopped or ""
    for result in report.results:
        yield from result.errors
        yield from (row.error or "" for row in result.metric_results)
        yield from (call.error or "" for call in result.tool_invocations)
