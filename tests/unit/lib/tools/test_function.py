import asyncio
import contextvars
import threading
import time

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.tools.base import run_tool
from holodeck.lib.tools.function import load_function_tool
from holodeck.models.tool import FunctionTool

WEATHER = '''
async def weather(city: str, days: int = 1) -> str:
    """Tell the weather
    of a city.

    And more about it.

    Args:
        city: Where, in
            full.
        days (int): How many days.

    Returns:
        A sentence: always.
    """
    return f"{city}: sun for {days + 0} days"
'''

GOOGLE = """Do it.

    Args:
        a: The a,
            long.
        b (str, optional): The b.
"""
NUMPY = """Do it.

    Parameters
    ----------
    a : int
        The a,
        long.
    b : str, optional
        The b.

    Returns
    -------
    int
        It.
"""
SPHINX = """Do it.

    :param a: The a,
        long.
    :param str b: The b.
    :returns: it
"""


@pytest.fixture
def load(tmp_path):
    """A tool made from source text; its function is called f unless said otherwise."""

    def loaded(source, **config):
        (tmp_path / "tool.py").write_text(source)
        given = {"type": "function", "name": "t", "file": "tool.py", "function": "f"} | config
        return load_function_tool(FunctionTool(**given), tmp_path)

    return loaded


def properties(tool):
    return tool.parameters["properties"]


def test_a_function_becomes_a_tool(load):
    tool = load(WEATHER, name="weather", function="weather")

    assert tool.name == "weather"
    assert tool.description == "Tell the weather of a city."
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where, in full."},
            "days": {"type": "integer", "default": 1, "description": "How many days."},
        },
        "required": ["city"],
        "additionalProperties": False,
    }


async def test_arguments_are_converted_and_defaults_apply(load):
    tool = load(WEATHER, function="weather")

    run = await run_tool(tool, {"city": "Oslo", "days": "3"})

    assert (run.result_text, run.error) == ("Oslo: sun for 3 days", None)
    assert (await run_tool(tool, {"city": "Oslo"})).result == "Oslo: sun for 1 days"


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        ("", {}),
        (": 'str | None'", {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (": Optional[int]", {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (": Literal['a', 1]", {"enum": ["a", 1]}),
        (": list[float]", {"type": "array", "items": {"type": "number"}}),
        (": dict[str, bool]", {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (": Colour", {"enum": ["r", "g"], "title": "Colour", "type": "string"}),
        (": Annotated[int, Field(ge=1)]", {"type": "integer", "minimum": 1}),
        (
            ": Point",
            {
                "title": "Point",
                "type": "object",
                "properties": {"x": {"type": "integer"}},
                "required": ["x"],
            },
        ),
        (
            ": Shape",
            {
                "title": "Shape",
                "additionalProperties": False,
                "type": "object",
                "properties": {"x": {"type": "integer"}},
                "required": ["x"],
            },
        ),
        (
            ": Node",
            {
                "title": "Node",
                "type": "object",
                "properties": {"kids": {"type": "array", "items": {}}},
                "required": ["kids"],
            },
        ),
    ],
)
def test_annotations_become_schemas_without_references(load, annotation, schema):
    source = f"""
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal, Optional
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

class Colour(Enum):
    RED = "r"
    GREEN = "g"

@dataclass
class Point:
    x: int

class Shape(TypedDict):
    x: int

class Node(BaseModel):
    kids: "list[Node]"

def f(it{annotation}):
    pass
"""
    assert properties(load(source)) == {"it": schema}


@pytest.mark.parametrize(
    "docstring",
    [
        GOOGLE,
        NUMPY,
        SPHINX,
    ],
    ids=["google", "numpy", "sphinx"],
)
def test_docstrings_of_every_style_describe_parameters(load, docstring):
    tool = load(f'def f(a: int, b: str = "x"):\n    """{docstring}\n    """\n')

    said = {name: schema["description"] for name, schema in properties(tool).items()}
    assert tool.description == "Do it."
    assert said == {"a": "The a, long.", "b": "The b."}


def test_what_the_yaml_says_replaces_description_and_schema(load):
    given = {"city": {"type": "string", "enum": ["Oslo"]}}

    tool = load(WEATHER, function="weather", description="Ask me.", parameters=given)

    assert tool.description == "Ask me."
    assert properties(tool) == given
    assert tool.parameters["required"] == ["city"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "ArgumentError: city is missing"),
        ({"city": "Oslo", "dayz": 1}, "dayz is not an argument; did you mean 'days'?"),
        ({"city": "Oslo", "x": 1}, "x is not an argument; it takes city, days"),
        ({"city": "Oslo", "days": "many"}, "days: Input should be a valid integer"),
        ({"city": None}, "city: Input should be a valid string, not None"),
        ({"city": ["x" * 500]}, "…"),
    ],
    ids=["missing", "misspelt", "unknown", "wrong type", "null", "long"],
)
async def test_arguments_that_do_not_fit_are_an_error_the_model_can_read(load, arguments, said):
    run = await run_tool(load(WEATHER, function="weather"), arguments)

    assert said in run.error
    assert run.result_text == f"Error: {run.error}"
    assert run.result is None


@pytest.mark.parametrize(
    ("source", "arguments", "result"),
    [
        ("def f(a, /, b=2): return [a, b]", {"a": 1}, [1, 2]),
        ("def f(a, /, b=2): return [a, b]", {"a": 1, "b": 3}, [1, 3]),
        ("def f(a=1, /, *rest): return [a, rest]", {}, [1, []]),
        ("def f(*, schema, model_config=0): return [schema, model_config]", {"schema": 1}, [1, 0]),
        ("def f(_a, **more): return [_a, more]", {"_a": 1, "b": 2}, [1, {"b": 2}]),
        ("class F:\n    def __call__(self, a: int): return a\nf = F()", {"a": "1"}, 1),
        ("from functools import partial\ndef g(a, b: int): return [a, b]\nf = partial(g, 1)",
         {"b": "2"}, [1, 2]),
        ("async def g(a): return a\ndef f(a): return g(a)", {"a": 1}, 1),
    ],
    ids=["positional only", "both given", "rest", "model words", "anything", "object", "partial",
         "returns a coroutine"],
)  # fmt: skip
async def test_functions_of_every_shape_are_called(load, source, arguments, result):
    run = await run_tool(load(source), arguments)

    assert (run.error, run.result) == (None, result)


async def test_a_default_is_the_functions_own_object(load):
    tool = load("nothing = object()\ndef f(a=nothing, b=[]):\n    return a is nothing\n")

    assert (await run_tool(tool, {})).result is True
    assert properties(tool) == {"a": {}, "b": {}}


async def test_a_blocking_function_does_not_hold_up_the_loop(load):
    tool = load("import threading\ngo = threading.Event()\ndef f(open=False):\n"
                "    return go.set() if open else go.wait(60)")  # fmt: skip

    waiting = asyncio.create_task(run_tool(tool, {}))
    await run_tool(tool, {"open": True})

    assert (await waiting).result is True


async def test_context_variables_are_seen_in_the_thread(load):
    asking = contextvars.ContextVar("asking")
    asking.set("me")
    tool = load("import contextvars\ndef f():\n"
                "    return [v for k, v in contextvars.copy_context().items()"
                " if k.name == 'asking']")  # fmt: skip

    assert (await run_tool(tool, {})).result == ["me"]


@pytest.mark.parametrize(
    "source",
    [
        "import time\ndef f(): time.sleep(60)",
        "import asyncio\nasync def f(): await asyncio.sleep(60)",
    ],
    ids=["sync", "async"],
)
async def test_a_time_limit_holds(load, source):
    tool = load(source, timeout=0.05)

    run = await run_tool(tool, {})

    assert run.error == "TimeoutError: no result within 0.05 s"
    assert 50 <= run.duration_ms < 30_000


def test_a_function_that_hangs_does_not_keep_the_loop_from_closing(load):
    tool = load("import time\ndef f(): time.sleep(60)", timeout=0.05)
    started = time.monotonic()

    asyncio.run(run_tool(tool, {}))

    assert time.monotonic() - started < 30
    assert all(t.daemon for t in threading.enumerate() if t.name == "holodeck-user-code")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"file": "tol.py"}, r"tol\.py: file not found in .*did you mean 'tool\.py'"),
        ({"function": "weathr"}, r"t\.function: there is no .* 'weathr'.*did you mean 'weather'"),
        ({"function": "number"}, "'number' in tool.py is an int, not a function"),
        ({"function": "Kind"}, "'Kind' in tool.py is a class, not a function"),
        ({"function": "pieces"}, "'pieces' in tool.py yields; a tool returns one value"),
        ({"function": "method"}, "'method' takes 'self'"),
        ({"function": "strange"}, "no schema can be made for 'strange' of tool.py: .*Strange"),
        ({"function": "unknown"}, "no schema can be made .* name 'Nope' is not defined"),
        ({"function": "weather", "parameters": {"town": {}}},
         r"tools\.t\.parameters: the function has no parameter 'town'; it has city, days"),
        ({"function": "weather", "parameters": {"days": {}}}, "'city' is missing"),
    ],
    ids=["file", "name", "value", "class", "generator", "method", "type", "annotation",
         "extra parameter", "missing parameter"],
)  # fmt: skip
def test_what_cannot_be_a_tool_is_a_configuration_error(load, change, said):
    source = f"""{WEATHER}
number = 3
class Kind: pass
class Strange: pass
def pieces(): yield 1
def method(self, a): pass
def strange(a: Strange): pass
def unknown(a: "Nope"): pass
"""
    with pytest.raises(ConfigError, match=said):
        load(source, **change)
