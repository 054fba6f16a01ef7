"""What a run tells while it goes on is the same with worker processes: events, spans, judges."""

import json
from collections import Counter, defaultdict

from fakes import FakeOpenAI, Reply, ToolCall
from holodeck.lib.records.run_store import RunStore
from support.checks import results_in
from support.collector import collector
from support.folder import case
from support.tapped_service import serving

TWO = ("test", "--workers", "2", "-o", "report.json")
BOT = """
import logging, os, signal
from pathlib import Path
from opentelemetry import trace

tracer = trace.get_tracer("bot")

def answer(message):
    if "die" in message and not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    with tracer.start_as_current_span("look up"):
        logging.getLogger("holodeck.bot").info("looked up %s", message)
        return message
"""
SCRIPT = [{"user": "hello first"}, "agent", {"user": "hello second"}, "agent", "succeed"]
CHANGING = {"batch_run_id", "scenario_run_id", "timestamp", "run_id", "thread_id"}


def write_bot(agent_dir, *cases, **fields):
    agent_dir.write("bot.py", BOT)
    own = {"model": None, "instructions": None, "backend": "bot:answer"}
    agent_dir.write_agent(**own | fields, test_cases=list(cases))


def events_by_case(agent_dir, file):
    found = defaultdict(list)
    for line in (agent_dir.path / file).read_text().splitlines():
        event = json.loads(line)
        found[event["scenario_id"]].append(event)
    return dict(found)


def without_changing(event):
    kept = {key: value for key, value in event.items() if key not in CHANGING}
    if "result" in kept:  # times, and ids that are compared on their own
        kept["result"] = kept["result"]["outcome"], kept["result"]["success"]
    return kept


def test_events_and_shown_conversations_of_a_case_are_those_of_one_process(agent_dir):
    write_bot(
        agent_dir,
        case("one", "hello one", contains="hello"),
        case("fails", "hello two", contains="absent"),
        {"name": "turns", "turns": [{"input": "hello a"}, {"input": "hello b"}]},
        {"name": "script", "script": SCRIPT},
    )

    several = agent_dir.run(*TWO, "--verbose", "--events", "several.jsonl")
    one = agent_dir.run("test", "--workers", "1", "--verbose", "--events", "one.jsonl")

    ours = events_by_case(agent_dir, "several.jsonl")
    theirs = events_by_case(agent_dir, "one.jsonl")
    assert several.code == one.code == 1
    assert json.loads((agent_dir.path / "report.json").read_text())["notes"] == []
    for name in ("one", "fails", "turns", "script"):
        assert [*map(without_changing, ours[name])] == [*map(without_changing, theirs[name])]
        assert len({event["scenario_run_id"] for event in ours[name]}) == 1
    events = [event for of_case in ours.values() for event in of_case]
    assert len({event["batch_run_id"] for event in events}) == 1
    [run_id] = {event["run_id"] for event in events}
    assert run_id in RunStore(agent_dir.path).ids()
    for ran in (several, one):  # several conversations at once are shown with their names
        said = [line.removeprefix("[script] ") for line in ran.stderr.splitlines()]
        firsts = [said.index(f"User: hello {word}") for word in ("first", "second")]
        assert firsts == sorted(firsts)
        assert said.index("Agent: hello first") < said.index("Agent: hello second")


def test_a_case_whose_worker_ends_is_an_error_in_the_events_and_begins_again(agent_dir):
    write_bot(agent_dir, case("dies", "die once", contains="die"))

    ran = agent_dir.run(*TWO, "--events", "events.jsonl")

    events = events_by_case(agent_dir, "events.jsonl")["dies"]
    assert ran.code == 0, ran.stderr
    assert [event["type"] for event in events if "run" in event["type"]] == [
        *("run_started", "run_finished"),
        *("run_started", "run_finished"),
    ]
    ends = [event for event in events if event["type"] == "run_finished"]
    assert [end["status"] for end in ends] == ["ERROR", "SUCCESS"]
    assert "SIGKILL" in ends[0]["result"]["error"]
    assert ends[0]["scenario_run_id"] == ends[0]["result"]["scenario_run_id"]


def test_a_judge_that_fails_for_all_workers_together_is_given_up_by_all(agent_dir):
    """Ten failures in a row, of which no worker has more than about half."""
    with FakeOpenAI(Reply(status=500)) as server:
        write_bot(
            agent_dir,
            *(case(f"c{n}", f"say {n}", criteria=["is polite"]) for n in range(40)),
            evaluations={"model": agent_dir.model(endpoint=server.url)},
            execution={"max_retries": 0},
        )
        ran = agent_dir.run(*TWO, "-j", "2")
        asked = len(server.requests)

    assert ran.code == 4, ran.stderr
    assert 10 <= asked <= 12, "each worker may have one more under way"
    assert ran.stderr.count("the judge is not asked any more") <= 2
    errors = Counter(one["outcome"] for one in report_of(agent_dir)["results"])
    assert errors == {"metric_error": 40}


def report_of(agent_dir):
    return json.loads((agent_dir.path / "report.json").read_text())


def test_spans_and_log_records_of_all_workers_belong_to_the_trace_of_the_run(agent_dir):
    with collector() as got:
        write_bot(
            agent_dir,
            *(case(f"c{n}", f"say {n}", contains="say") for n in range(6)),
            observability={"enabled": True, "exporters": {"otlp": {"endpoint": got.url}}},
        )
        ran = agent_dir.run(*TWO)

    cases = [span for span in got.spans if span.name == "holodeck.case"]
    run = got.span("holodeck.run")
    assert (ran.code, ran.stderr) == (0, "")
    assert len(cases) == 6
    assert {span.trace_id for span in got.spans} == {run.trace_id}
    assert {span.parent_span_id for span in cases} == {run.span_id}
    assert got.resource["service.instance.id"]
    looked_up = [one for one in got.logs if "looked up" in one.body.string_value]
    assert sorted(one.body.string_value for one in looked_up) == [
        f"looked up say {n}" for n in range(6)
    ]
    assert {one.trace_id for one in looked_up} == {run.trace_id}
    assert report_of(agent_dir)["notes"] == []


def test_spans_that_cases_check_are_seen_by_the_worker_of_the_case(agent_dir):
    checks = {"require": {"look up": 1}}
    write_bot(agent_dir, *(case(f"c{n}", f"say {n}", trace=checks) for n in range(4)))

    ran = agent_dir.run(*TWO)

    assert ran.code == 0, ran.stdout + ran.stderr
    assert report_of(agent_dir)["notes"] == []


def test_a_tap_of_each_worker_sees_what_its_agent_asks_for(agent_dir):
    call = ToolCall("delete_order", {"id": 7}, id="call_1")
    agent_dir.server.when(
        lambda request: "Delete" in request.prompt and len(request.body["messages"]) == 1,
        Reply(tool_calls=[call]),
    ).otherwise("Done.")
    with serving() as url:
        request = {"question": "{input}", "model_url": "{tap_url}/openai/v1"}
        agent_dir.write_agent(
            model=None,
            instructions=None,
            backend={"type": "http", "url": url, "tap": True, "request": request},
            test_cases=[
                case("deletes", "Delete order 7.", forbidden_tools=["delete_order"]),
                case("does not", "Where is order 7?", forbidden_tools=["delete_order"]),
            ],
        )
        ran = agent_dir.run(*TWO, env={"OPENAI_BASE_URL": agent_dir.server.url})

    results = results_in(agent_dir.path / "report.json")
    assert ran.code == 1, ran.stderr
    assert [one["outcome"] for one in results.values()] == ["failed", "passed"]
    assert {one["evidence"]["tool_calls"] for one in results.values()} == {"tap"}
    assert report_of(agent_dir)["notes"] == []
