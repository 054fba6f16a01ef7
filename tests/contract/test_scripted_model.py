"""Agents of every framework, whose model is scripted: they need no model, and no key."""

import pytest

import holodeck
from holodeck.errors import BackendError, ConfigError, ExecutionError
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.models.config import ExecutionConfig
from support.frameworks import TOOL, all_rows

ROWS = all_rows()
ONCE = ExecutionConfig(llm_timeout=600, max_retries=0)
LOOKUP, SENT = {"tool_calls": [{TOOL: {"order_id": "7"}}]}, {"text": "It has been sent."}
FAULTS = {
    "delay": ({"delay": 0.01}, [LOOKUP, SENT], "It has been sent."),
    "refusal": ({"refusal": "No."}, [LOOKUP], "No."),
    "status": ({"status": 400}, [LOOKUP], None),
    "cut_off": ({"cut_off": True}, [LOOKUP, SENT], "It has b"),
}
"""Kind → the fault of the second request, the replies, and the response; None for an error."""


async def ask(row, model):
    """The result of a turn of an agent of a framework with that model."""
    subject = row(model)
    try:
        return await CallableBackend(subject.agent, execution=ONCE).invoke_once("Where is it?")
    finally:
        if subject.close is not None:
            await subject.close()


@pytest.mark.parametrize("row", ROWS, ids=[row.__name__ for row in ROWS])
async def test_an_agent_of_every_framework_runs_without_a_model(row):
    with holodeck.scripted_model([LOOKUP, SENT]) as model:
        result = await ask(row, model)

    assert result.response == "It has been sent."
    assert [call["arguments"] for call in result.tool_calls] == [{"order_id": "7"}]
    assert [returned["result"] for returned in result.tool_results] == ["order 7 is shipped"]
    assert result.token_usage is None, "no tokens were used that anybody could count"
    assert len(model.requests) == 2


@pytest.mark.parametrize("row", ROWS, ids=[row.__name__ for row in ROWS])
async def test_faults_reach_an_agent_of_every_framework(row):
    for kind, (fault, replies, response) in FAULTS.items():
        with holodeck.scripted_model(replies, [{"call": 2, **fault}]) as model:
            try:
                answer = (await ask(row, model)).response
            except BackendError:
                answer = None

        # some frameworks raise an error for a response that is cut off
        assert answer == response or (kind == "cut_off" and answer is None), kind


async def test_leaving_a_model_says_what_did_not_happen():
    faults = [{"call": 9, "status": 500}]

    with pytest.raises(ExecutionError) as raised, holodeck.scripted_model([SENT], faults):
        pass

    assert str(raised.value) == (
        "the agent never asked its model; the fault 'status' at call 9 was not delivered\n"
        "the agent never asked its model; 1 of 1 model_replies were not asked for, from"
        ' {"text":"It has been sent."}'
    )


async def test_an_error_of_the_test_is_not_hidden_by_what_did_not_happen():
    with pytest.raises(ZeroDivisionError), holodeck.scripted_model([SENT]):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ({"txt": "Hello."}, "did you mean 'text'"),
        ({"tool_calls": [{"a": {}, "b": {}}]}, "names 2 tools"),
        ({}, "answers nothing"),
    ],
)
def test_a_wrong_reply_is_refused(reply, message):
    with pytest.raises(ConfigError, match=message):
        holodeck.scripted_model([reply])
