"""`holodeck.stub`: stubs in tests that are written in Python, and in scenarios."""

import pytest

import holodeck
from holodeck import scenario
from holodeck.scenario import AgentAdapter, AgentRole


@holodeck.stubbed
def get_order(order_id: int, *, brief: bool = False) -> dict:
    """Look up an order."""
    return {"id": order_id, "status": "real"}


@holodeck.stubbed
async def refund(order_id: int) -> str:
    return "really refunded"


class Shop(AgentAdapter):
    role = AgentRole.AGENT

    async def call(self, input):  # noqa: A002 - what adapters call it
        return f"{get_order(7)['status']}, {await refund(order_id=7)}"


async def test_marked_functions_are_called_as_they_are_without_stubs():
    assert get_order(7) == {"id": 7, "status": "real"}
    assert await refund(7) == "really refunded"
    assert get_order.__doc__ == "Look up an order."


async def test_stubs_take_the_calls_within_the_block():
    stubs = {
        "get_order": [{"when": {"order_id": 7}, "returns": {"status": "lost"}}],
        "refund": [{"call": 1, "raises": "timeout"}, {"returns": "done"}],
    }

    with holodeck.stub(stubs) as seen:
        assert get_order(7, brief=True) == {"status": "lost"}
        assert get_order(8)["status"] == "real"
        with pytest.raises(TimeoutError):
            await refund(7)
        assert await refund(7) == "done"

    assert [(call.tool, call.kind) for call in seen.calls] == [
        ("get_order", "returns"),
        ("get_order", None),
        ("refund", "raises"),
        ("refund", "returns"),
    ]
    assert get_order(7)["status"] == "real"


@pytest.mark.parametrize(
    ("stubs", "reason"),
    [
        ({"refund": [{"raises": "x"}]}, "refund was never called; the fault 'raises'"),
        ({"get_order": [{"call": 2, "returns": 1}]}, "called once; 'returns' at call 2 was not"),
        ({"get_order": [{"truncated": 500}]}, "'truncated' changes nothing of"),
    ],
)
def test_a_stub_that_is_not_delivered_is_an_error(stubs, reason):
    with pytest.raises(holodeck.ExecutionError, match=reason), holodeck.stub(stubs):
        get_order(7)


def test_a_sealed_call_without_a_stub_is_an_error():
    stubs = {"get_order": [{"when": {"order_id": 8}, "returns": 1, "optional": True}]}

    with (
        pytest.raises(holodeck.ExecutionError, match=r"get_order\(\{'order_id': 7\}\) has no stub"),
        holodeck.stub(stubs, sealed=True),
    ):
        assert "was not run" in get_order(7)


def test_a_sealed_function_does_not_run_for_a_stub_that_changes_its_result():
    with (
        pytest.raises(holodeck.ExecutionError, match="has no stub that keeps the tool"),
        holodeck.stub({"get_order": [{"delay": 0.01}]}, sealed=True),
    ):
        assert "was not run" in get_order(7)


def test_an_error_of_the_test_itself_goes_first():
    with pytest.raises(ZeroDivisionError), holodeck.stub({"refund": [{"raises": "x"}]}):
        _ = 1 / 0


def test_a_wrong_stub_says_what_is_wrong():
    with (
        pytest.raises(holodeck.ConfigError, match="unknown key; did you mean 'returns'"),
        holodeck.stub({"refund": [{"return": 1}]}),
    ):
        pass


async def test_scenarios_call_the_stubs():
    stubs = {"get_order": [{"returns": {"status": "lost"}}], "refund": [{"returns": "refunded"}]}

    with holodeck.stub(stubs, sealed=True):
        result = await scenario.run(
            name="refund",
            description="A customer wants a refund.",
            agents=[Shop()],
            script=[scenario.agent(), scenario.succeed()],
        )

    assert result.success
    assert result.messages[-1]["content"] == "lost, refunded"
