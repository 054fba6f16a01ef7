import gc
import sys
from itertools import count
from pathlib import Path
from types import ModuleType

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.user_code.code_root import import_file
from holodeck.lib.user_code.registry import load_attribute


def written(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def test_a_file_is_imported_once(tmp_path):
    written(tmp_path, tool="value = object()")

    assert import_file(Path("tool.py"), tmp_path) is import_file(tmp_path / "tool.py", tmp_path)


def test_a_changed_file_is_imported_anew(tmp_path):
    written(tmp_path, tool="value = 1")
    before = import_file(Path("tool.py"), tmp_path)

    written(tmp_path, tool="value = 1 + 1")

    assert (before.value, import_file(Path("tool.py"), tmp_path).value) == (1, 2)


def test_a_file_imports_its_neighbours_by_plain_name(tmp_path):
    written(tmp_path / "tools", tool="from helpers import x", helpers="x = 7")

    assert import_file(Path("tools/tool.py"), tmp_path).x == 7


def test_a_function_may_import_a_neighbour_when_it_is_called(tmp_path):
    written(tmp_path, tool="def f():\n    from late_one import x\n    return x", late_one="x = 7")

    assert import_file(Path("tool.py"), tmp_path).f() == 7


def test_neighbours_of_two_folders_are_two_modules(tmp_path):
    one = written(tmp_path / "one", tool="from helpers import x", helpers="x = 1")
    two = written(tmp_path / "two", tool="from helpers import x", helpers="x = 2")

    assert [import_file(Path("tool.py"), folder).x for folder in (one, two)] == [1, 2]


def test_neighbours_keep_their_module_so_that_types_resolve(tmp_path):
    shape = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    shape += "@dataclass\nclass A:\n    b: B\n@dataclass\nclass B:\n    n: int\n"
    written(tmp_path, tool="from shapes_here import A", shapes_here=shape)
    from pydantic import TypeAdapter

    adapter = TypeAdapter(import_file(Path("tool.py"), tmp_path).A)

    assert adapter.validate_python({"b": {"n": "3"}}).b.n == 3


def test_a_neighbour_does_not_hide_the_standard_library(tmp_path):
    written(tmp_path, tool="import calendar\nx = calendar.isleap(2000)", calendar="raise OSError")

    assert import_file(Path("tool.py"), tmp_path).x is True


def test_the_folder_comes_first_while_it_is_imported_and_last_from_then_on(tmp_path):
    written(tmp_path, tool="import sys\npath = list(sys.path)", click="x = 1")
    before = [entry for entry in sys.path if not entry.startswith(str(tmp_path.parent))]

    path = import_file(Path("tool.py"), tmp_path).path

    folder = str(tmp_path)
    installed = [entry for entry in path if entry.endswith("site-packages")]
    assert path.index(folder) < path.index(installed[0])
    assert sys.path[: len(before)] == before
    assert folder in sys.path[len(before) :]


def test_paths_that_the_code_adds_stay(tmp_path):
    written(tmp_path, tool="import sys\nsys.path.insert(0, '/nowhere/of/mine')")

    import_file(Path("tool.py"), tmp_path)

    assert "/nowhere/of/mine" in sys.path
    sys.path.remove("/nowhere/of/mine")


def test_a_file_is_the_module_that_others_import_by_its_name(tmp_path):
    written(tmp_path / "shop_tools", orders="PLACED = []")
    written(tmp_path, checker="from shop_tools.orders import PLACED\nfrom shop_tools import orders")

    tool = import_file(Path("shop_tools/orders.py"), tmp_path)

    assert import_file(Path("checker.py"), tmp_path).orders is tool


def test_a_file_in_a_package_is_the_module_of_that_package(tmp_path):
    package = written(tmp_path / "src" / "shop_package", __init__="", stock="LEFT = 3")
    written(package / "agents", __init__="", bot="from ..stock import LEFT\nfrom . import bot")

    bot = import_file(Path("bot.py"), package / "agents")

    assert (bot.__name__, bot.LEFT, bot.bot) == ("shop_package.agents.bot", 3, bot)


@pytest.mark.parametrize("layout", ["", "src"])
def test_the_code_of_the_project_around_the_folder_is_found(tmp_path, layout):
    (tmp_path / "pyproject.toml").touch()
    name = f"project_code_{layout or 'flat'}"
    written(tmp_path / layout / name, __init__="", stock="LEFT = 3")
    written(tmp_path / "evals", grader=f"from {name}.stock import LEFT")

    assert import_file(Path("grader.py"), tmp_path / "evals").LEFT == 3
    assert load_attribute(f"{name}.stock:LEFT", tmp_path / "evals") == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ny = nope\n", r"tool\.py:2: cannot be imported: NameError: name 'nope'"),
        ("x = 1\n\ndef f(:\n", r"tool\.py:3: cannot be imported: SyntaxError"),
        ("import sys\nsys.exit(3)\n", r"tool\.py:2: cannot be imported: SystemExit: 3"),
        ("import no_such_module_at_all", r"tool\.py:1: .*No module named 'no_such_module_at_all'"),
    ],
    ids=["exception", "syntax", "exit", "missing module"],
)
def test_a_file_that_cannot_be_imported_names_its_line(tmp_path, text, said):
    written(tmp_path, tool=text)

    with pytest.raises(ConfigError, match=said):
        import_file(Path("tool.py"), tmp_path)


def test_a_failed_import_leaves_no_module_behind(tmp_path):
    written(tmp_path, tool="raise ValueError")
    before = set(sys.modules)

    with pytest.raises(ConfigError):
        import_file(Path("tool.py"), tmp_path)

    assert set(sys.modules) == before


def test_a_file_outside_of_the_folder_is_refused(tmp_path):
    written(tmp_path, secret="x = 1")

    with pytest.raises(ConfigError, match="outside of the agent's folder"):
        import_file(Path("../secret.py"), written(tmp_path / "agent"))


def test_a_file_is_loaded_while_other_code_imports_modules(tmp_path):
    """The garbage collector runs code while a list is made, as another thread would."""
    written(tmp_path, rater="RATING = 4")
    names = (f"imported_meanwhile_{number}" for number in count())
    imported = []

    def import_another(_phase, _info):
        name = next(names)
        sys.modules[name] = ModuleType(name)
        imported.append(name)

    thresholds = gc.get_threshold()
    gc.callbacks.append(import_another)
    gc.set_threshold(1)
    try:
        value = load_attribute("rater:RATING", tmp_path, location="class")
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(import_another)
        for name in imported:
            del sys.modules[name]

    assert value == 4
    assert imported
