import json
import sys
from pathlib import Path

import click
import pytest

from holodeck.errors import ConfigError
from holodeck.lib.user_code.registry import Registry, load_attribute, load_callable


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def codecs() -> Registry[object]:
    return Registry("codec", {"json": "json:loads", "csv": "csv:reader"})


def test_a_name_of_the_table_is_imported_when_asked_for(codecs):
    assert codecs.load("json") is json.loads


def test_a_module_and_attribute_may_stand_for_a_name(codecs):
    assert codecs.load("click:echo") is click.echo


def test_an_unknown_name_is_answered_with_the_nearest_and_all_known_ones(codecs):
    with pytest.raises(ConfigError) as caught:
        codecs.load("jsn", location="codecs[2]")

    assert caught.value.field == "codecs[2]"
    assert "'jsn'; did you mean 'json'? known: csv, json" in caught.value.message


def test_an_entry_point_of_an_installed_package_adds_a_name(tmp_path, codecs):
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[holodeck.codec]\ntext = json:dumps\nbroken = no_such_module_here:x\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        assert codecs.load("text") is json.dumps
        with pytest.raises(ConfigError, match="no_such_module_here"):
            codecs.load("broken")
    finally:
        sys.path.remove(str(tmp_path))


def test_a_file_beside_the_agent_is_found(tmp_path):
    write(tmp_path, graders="def check(): return 'mine'")

    assert load_callable("graders:check", tmp_path)() == "mine"


def test_a_file_beside_the_agent_wins_over_an_installed_module(tmp_path):
    write(tmp_path, click="def echo(): return 'mine'")

    assert load_callable("click:echo", tmp_path)() == "mine"
    assert load_callable("click:echo") is click.echo


def test_an_installed_module_is_found_when_the_folder_has_none(tmp_path):
    assert load_callable("click:echo", tmp_path) is click.echo


def test_files_of_the_same_name_of_two_agents_are_two_modules(tmp_path):
    one = write(tmp_path / "one", graders="def check(): return 1")
    two = write(tmp_path / "two", graders="def check(): return 2")

    checks = [load_callable("graders:check", folder) for folder in (one, two, one)]

    assert [check() for check in checks] == [1, 2, 1]
    assert checks[0] is checks[2]


def test_a_module_may_import_its_neighbours_and_they_do_not_collide(tmp_path):
    for number in ("1", "2"):
        write(
            tmp_path / number,
            graders="import sizes_of_ours\ndef check(): return sizes_of_ours.SIZE",
            sizes_of_ours=f"SIZE = {number}",
        )

    found = [load_callable("graders:check", tmp_path / number)() for number in ("1", "2")]

    assert found == [1, 2]


@pytest.mark.parametrize("extra", [{}, {"pkg/__init__": ""}])
def test_a_dotted_module_is_a_file_in_a_folder(tmp_path, extra):
    write(
        tmp_path,
        **{"pkg/graders": "class Checks:\n    @staticmethod\n    def size(): return 7"},
        **extra,
    )

    assert load_callable("pkg.graders:Checks.size", tmp_path)() == 7


def test_a_package_beside_the_agent_may_import_relatively(tmp_path):
    for number in ("1", "2"):
        write(
            tmp_path / number,
            **{"pkg/__init__": "from .graders import check"},
            **{"pkg/graders": "from .sizes import SIZE\ndef check(): return SIZE"},
            **{"pkg/sizes": f"SIZE = {number}"},
        )

    found = [
        load_callable(target, tmp_path / number)()
        for target in ("pkg:check", "pkg.graders:check")
        for number in ("1", "2")
    ]

    assert found == [1, 2, 1, 2]


def test_a_package_beside_the_agent_may_import_itself_and_is_loaded_once(tmp_path):
    write(tmp_path, **{"own_package/__init__": "", "own_package/state": "SEEN = []"})
    text = "from own_package.state import SEEN\nimport own_package.main as me\n"
    write(tmp_path, **{"own_package/main": f"{text}def check(): return SEEN, me.check"})

    check = load_callable("own_package.main:check", tmp_path)

    assert check()[0] is load_attribute("own_package.state:SEEN", tmp_path)
    assert check()[1] is check


def test_neighbours_in_a_folder_without_init_do_not_collide_either(tmp_path):
    for number in ("1", "2"):
        write(
            tmp_path / number,
            graders="from shapes_of_ours.box import SIDES\ndef check(): return SIDES",
            **{"shapes_of_ours/box": f"SIDES = {number}"},
        )

    found = [load_callable("graders:check", tmp_path / number)() for number in ("1", "2")]

    assert found == [1, 2]


def test_a_library_below_the_agents_folder_is_imported_once_for_all(tmp_path):
    write(tmp_path, **{"lib/shared_of_ours": "class Shared: ..."})
    write(tmp_path, graders="from shared_of_ours import Shared\ndef check(): return Shared")
    sys.path.append(str(tmp_path / "lib"))
    try:
        found = load_callable("graders:check", tmp_path)()

        assert found is load_attribute("shared_of_ours:Shared")
    finally:
        sys.path.remove(str(tmp_path / "lib"))
        sys.modules.pop("shared_of_ours", None)


def test_a_module_that_uses_its_own_name_works(tmp_path):
    write(
        tmp_path,
        models="from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from typing import ClassVar\n@dataclass\nclass Point:\n    x: int\n"
        "    n: ClassVar[int] = 1",
    )

    assert load_callable("models:Point", tmp_path)(3).x == 3


def test_a_file_that_leads_outside_of_the_folder_is_refused(tmp_path):
    write(tmp_path, secret="def check(): return 1")
    agent = tmp_path / "agent"
    agent.mkdir()
    (agent / "graders.py").symlink_to(tmp_path / "secret.py")

    with pytest.raises(ConfigError, match="outside of the agent's folder"):
        load_callable("graders:check", agent)


@pytest.mark.parametrize(
    "target", ["graders", "graders:", ":check", "../graders:check", "graders.py:a b", "a/b:c", ""]
)
def test_what_is_not_module_and_attribute_is_refused(tmp_path, target):
    with pytest.raises(ConfigError, match="is not 'module:attribute'"):
        load_attribute(target, tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import not_there_at_all", "not_there_at_all"),
        ("def check(:", "SyntaxError"),
        ("1/0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_module_that_cannot_be_imported_says_why(tmp_path, text, reason):
    write(tmp_path, graders=text)

    with pytest.raises(ConfigError, match=reason) as caught:
        load_callable("graders:check", tmp_path, location="metrics[0]")

    assert caught.value.field == "metrics[0]"


def test_a_module_that_is_nowhere_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_callable("no_such_graders:check", tmp_path)

    assert str(tmp_path) in caught.value.message


def test_a_misspelt_attribute_is_answered_with_the_nearest(tmp_path):
    write(tmp_path, graders="def check_length(): ...")

    with pytest.raises(ConfigError, match="did you mean 'check_length'"):
        load_callable("graders:check_lenght", tmp_path)


def test_what_cannot_be_called_is_refused(tmp_path):
    write(tmp_path, graders="LIMIT = 3")

    with pytest.raises(ConfigError, match="is an int and cannot be called"):
        load_callable("graders:LIMIT", tmp_path)
