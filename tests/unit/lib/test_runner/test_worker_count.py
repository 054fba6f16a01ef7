"""How many workers a run takes."""

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.test_runner.workers import lane as workers
from holodeck.lib.test_runner.workers.lane import MIN_CASES, count_workers
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig

MODEL = {"provider": "openai", "name": "gpt-4o", "api_key": "k"}
KERNEL = Agent(name="a", model=MODEL, instructions={"inline": "Help."})
CHAT = KERNEL.model_copy(update={"backend": "chat"})
FUNCTION = Agent(name="a", backend="bot:answer")


@pytest.fixture
def count(monkeypatch):
    """Counts the workers on a machine with four cores."""
    monkeypatch.setattr(workers.LocalProcesses, "cores", 4)
    notes = []

    def counted(agent, cases, *, of_caller=None, needs_child=False, **settings):
        config = ExecutionConfig(**settings)
        return count_workers(
            agent, config, cases, of_caller=of_caller, needs_child=needs_child, note=notes.append
        )

    counted.notes = notes
    return counted


def test_auto_takes_a_core_each_where_every_worker_has_enough_cases(count):
    enough = [0, 2, 4, 4]
    cases = [2 * MIN_CASES - 1, 2 * MIN_CASES, 4 * MIN_CASES, 100 * MIN_CASES]

    assert [count(KERNEL, one, workers="auto") for one in cases] == enough


@pytest.mark.parametrize("agent", [CHAT, FUNCTION], ids=["chat", "a function"])
def test_auto_leaves_other_agents_in_this_process(count, agent):
    assert count(agent, 100 * MIN_CASES, workers="auto") == 0


def test_a_number_is_taken_as_it_is_but_for_workers_without_a_case(count):
    assert [count(CHAT, cases, workers=3) for cases in (2, 3, 50)] == [2, 3, 3]
    assert count(CHAT, 50, workers=1) == 0


def test_what_needs_this_process_is_noted_where_a_number_was_given(count):
    assert count(KERNEL, 5000, workers="auto", of_caller="a person") == 0
    assert count.notes == []
    assert count(KERNEL, 5000, workers=3, of_caller="an object") == 0
    [note] = count.notes
    assert note.startswith("the cases ran in one process, not in 3 workers: an object")


OTLP = {"otlp": {"endpoint": "http://127.0.0.1:4318"}}
TAPPED = {
    "type": "http",
    "url": "http://127.0.0.1:8000",
    "tap": True,
    "request": {"input": "{input}", "model_url": "{tap_url}/openai/v1"},
}
SPANS = [{"name": "a", "input": "a", "trace": {"require": {"look up": 1}}}]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"observability": {"enabled": True}}, "telemetry is written to the console"),
        (
            {"observability": {"enabled": True, "exporters": OTLP | {"console": {}}}},
            "telemetry is written to the console",
        ),
        (
            {"observability": {"receiver": {"port": 4318}}, "test_cases": SPANS},
            "the spans that cases check arrive at one port, 4318",
        ),
        ({"observability": {"enabled": True, "exporters": OTLP}}, None),
        ({"observability": {"receiver": {"port": 4318}}}, None),
        ({"test_cases": SPANS}, None),
        ({"backend": TAPPED}, None),
    ],
)
def test_telemetry_that_one_process_must_write_or_receive_needs_one_process(count, fields, reason):
    agent = Agent.model_validate({"name": "a", "backend": "bot:answer"} | fields)

    assert count(agent, 50, workers=2) == (2 if reason is None else 0)
    assert [note.partition(": ")[2] for note in count.notes] == ([reason] if reason else [])


def test_a_tap_for_a_url_needs_the_machine_of_the_agent(count):
    with pytest.raises(ConfigError, match="the agent reaches the tap on this machine only"):
        count(Agent(name="a", backend=TAPPED), 50, run_on="ray")


def test_ray_takes_a_worker_per_core_and_refuses_what_needs_this_process(count):
    assert count(KERNEL, 50, run_on="ray") is None
    assert count(KERNEL, 50, run_on="ray", workers=2) == 2
    with pytest.raises(ConfigError, match="'run_on' has no effect"):
        count(KERNEL, 50, run_on="ray", of_caller="an object")


def test_cases_that_need_another_process_get_a_worker_or_the_reason_against_it(count):
    assert count(FUNCTION, 50, needs_child=True) == 1
    assert count(FUNCTION, 50, needs_child=True, workers=3) == 3
    with pytest.raises(ConfigError, match="rename the modules"):
        count(FUNCTION, 50, needs_child=True, of_caller="an object")
