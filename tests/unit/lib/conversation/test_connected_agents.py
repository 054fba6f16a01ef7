"""Functions with a name and `invoke` as agents of a scenario."""

from dataclasses import dataclass
from typing import Any

import pytest

from holodeck import scenario
from holodeck.scenario.connected_agent import ConnectedAgentAdapter, read_reply
from support.participants import a_user, texts_of


@dataclass
class Reply:
    output: Any
    session: Any = None


class Desk:
    name = "desk"

    def __init__(self):
        self.calls = []

    def __call__(self, text):
        return text

    async def invoke(self, call):
        self.calls.append(call)
        return Reply(f"answer {len(self.calls)}", session={"turns": len(self.calls)})


async def test_a_connected_function_is_an_agent_that_gets_its_session_back():
    desk = Desk()
    steps = [scenario.user("one"), scenario.agent(), scenario.user("two"), scenario.agent()]

    result = await scenario.arun(
        "case", "…", [a_user(), desk], script=[*steps, scenario.succeed()], parameters={"shop": 3}
    )

    assert texts_of(result.messages) == ["one", "answer 1", "two", "answer 2"]
    assert [one.session for one in desk.calls] == [None, {"turns": 1}]
    assert [one.parameters for one in desk.calls] == [{"shop": 3}] * 2
    assert [one.thread_id for one in desk.calls] == [result.thread_id] * 2
    assert texts_of(desk.calls[1].turn_fields()["new_messages"]) == ["two"]


@pytest.mark.parametrize(
    ("reply", "wanted"),
    [
        ("text", ("text", None)),
        (Reply("text", 1), ("text", 1)),
        ({"output": "text", "session": 1}, ("text", 1)),
        ({"role": "assistant", "content": "x"}, ({"role": "assistant", "content": "x"}, None)),
        (None, ("", None)),
        (7, ("7", None)),
    ],
    ids=str,
)
def test_a_reply_is_its_output_and_session(reply, wanted):
    assert read_reply(reply) == wanted


@pytest.mark.parametrize(
    "value",
    [object(), Desk, lambda: None, a_user()],
    ids=["object", "class", "function", "participant"],
)
def test_what_has_no_name_and_invoke_is_refused(value):
    with pytest.raises(TypeError, match="has no `name` and `invoke"):
        ConnectedAgentAdapter(value)
