from types import SimpleNamespace

import pytest

from holodeck.errors import BackendInitError, ConfigError
from holodeck.lib.tools.base import run_tool
from holodeck.lib.tools.toolbox import Toolbox, ToolContext
from holodeck.models.agent import Agent
from holodeck.models.tool import FunctionTool


def toolbox(tmp_path, *names, error=None, functions=()):
    (tmp_path / "t.py").write_text("def f() -> int:\n    return 1\n")
    notes = []
    tools = [
        SimpleNamespace(
            type="support.tool_sources:NotedSource",
            name=name,
            notes=notes,
            error=None,
            defer_loading=True,
            side_effects=False,
        )
        for name in names
    ]
    if error is not None:
        tools[-1].error = error
    tools += [
        FunctionTool(type="function", name=name, file="t.py", function="f") for name in functions
    ]
    agent = Agent.model_construct(tools=tools).with_base_dir(tmp_path)
    return Toolbox(ToolContext(agent)), notes


def test_functions_are_known_before_it_is_opened(tmp_path):
    box, _ = toolbox(tmp_path, functions=["f"])
    assert [tool.name for tool in box.tools] == ["f"]


async def test_sources_are_opened_once_and_their_tools_keep_the_order_of_the_file(tmp_path):
    box, notes = toolbox(tmp_path, "a", "b", functions=["f"])
    assert box.tools is None
    assert [tool.name for tool in await box.open()] == ["a", "b", "f"]
    await box.open()
    assert sorted(notes) == ["open a", "open b"]
    await box.close()
    assert sorted(notes) == ["close a", "close b", "open a", "open b"]
    assert box.tools is None


async def test_a_source_that_fails_to_open_leaves_none_open(tmp_path):
    box, notes = toolbox(tmp_path, "a", "b", error=BackendInitError("b is down"))
    with pytest.raises(BackendInitError, match="b is down"):
        await box.open()
    assert notes[-2:] == ["close a", "close b"]


async def test_two_tools_of_one_name_are_an_error(tmp_path):
    box, _ = toolbox(tmp_path, "a", functions=["a"])
    with pytest.raises(ConfigError, match="two tools have the name 'a'"):
        await box.open()


async def test_the_passages_of_a_reply_are_kept_one_by_one(tmp_path):
    box, _ = toolbox(tmp_path, "a")
    [tool] = await box.open()
    outcome = await run_tool(tool, {})
    assert (outcome.result_text, outcome.result) == ("two chunks", "two chunks")
    assert outcome.passages == ("one", "two")
