"""How objects of frameworks are recognised, without importing any framework."""

import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import get_args

import pytest

from holodeck.lib.backends import frameworks
from holodeck.lib.backends.frameworks import FRAMEWORKS, adapt, find_framework
from holodeck.lib.backends.frameworks.base import Capability, TurnRecord
from holodeck.lib.processes import process_guard
from holodeck.lib.support import stubs


@pytest.mark.parametrize("value", [None, 3, "text", print, object(), Path, lambda message: message])
def test_what_no_framework_made_has_no_adapter(value):
    assert find_framework(value) is None
    assert adapt(value) is None


def test_an_object_of_another_package_of_google_has_no_adapter():
    from google.protobuf.struct_pb2 import Struct

    assert adapt(Struct()) is None


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda one: one.package)
def test_every_framework_says_which_objects_it_takes_and_what_is_read(framework):
    for adapter in framework.adapters():
        assert adapter.objects
        assert adapter.reads <= set(get_args(Capability))
    assert framework.adapters()


def test_the_adapters_need_two_modules_of_holodeck_and_no_framework(tmp_path):
    """The Python of a process backend may have nothing else installed."""
    folder = Path(frameworks.__file__).parent
    package = tmp_path / "holodeck" / "lib" / "backends" / "frameworks"
    shutil.copytree(folder, package, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "holodeck" / "lib" / "processes").mkdir()
    shutil.copy(process_guard.__file__, tmp_path / "holodeck" / "lib" / "processes")
    (tmp_path / "holodeck" / "lib" / "support").mkdir()
    shutil.copy(stubs.__file__, tmp_path / "holodeck" / "lib" / "support")
    code = dedent(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from importlib import import_module
        from pkgutil import iter_modules
        import holodeck.lib.backends.frameworks as package
        assert package.__file__.startswith({str(tmp_path)!r})
        for module in iter_modules(package.__path__):
            import_module(f"{{package.__name__}}.{{module.name}}")
    """)

    # Without -S, installed packages could be imported, holodeck among them.
    command = [sys.executable, "-I", "-S", "-c", code]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_result_belongs_to_the_call_with_its_id():
    turn = TurnRecord()
    turn.add_call("a", "{}", "1")
    turn.add_call("b", "{}", "2")

    turn.add_result("2", "second")
    turn.add_result("1", "first", is_error=True)

    assert [(one["name"], one["result"]) for one in turn.tool_results] == [
        ("b", "second"),
        ("a", "first"),
    ]
    assert turn.tool_results[1]["is_error"] is True


def test_a_result_without_id_belongs_to_the_oldest_open_call_of_its_name():
    turn = TurnRecord()
    for name in ("a", "b", "b"):
        turn.add_call(name, {})

    turn.add_result(None, "one", name="b")
    turn.add_result(None, "two", name="b")

    assert [one["call_id"] for one in turn.tool_results] == ["call_2", "call_3"]


def test_a_result_of_an_unknown_call_is_left_out():
    turn = TurnRecord()

    turn.add_result("9", "what?")

    assert turn.tool_results == []


def test_one_request_of_unknown_usage_makes_the_sum_unknown():
    turn = TurnRecord()

    turn.add_usage(10, 5)
    turn.add_usage(None, None)
    turn.add_usage(10, 5)

    assert turn.usage is None


def test_the_token_usage_is_a_sum():
    turn = TurnRecord()

    turn.add_usage(10, 5)
    turn.add_usage(1, 2)

    assert turn.usage == {"prompt_tokens": 11, "completion_tokens": 7}


def test_an_agent_that_goes_on_speaking_is_named_once():
    turn = TurnRecord()

    for name in ("triage", "triage", None, "billing", "triage"):
        turn.add_agent(name)

    assert turn.agents == ["triage", "billing", "triage"]
