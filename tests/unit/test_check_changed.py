"""`scripts/check --fast`: which tests run for a change, and what it says of the others."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    loader = SourceFileLoader("check_changed", str(ROOT / "scripts" / "check_changed"))
    spec = spec_from_loader("check_changed", loader)
    module = sys.modules["check_changed"] = module_from_spec(spec)
    loader.exec_module(module)
    return module


FILES = {
    "src/holodeck/__init__.py": "",
    "src/holodeck/low.py": "def f(): ...",
    "src/holodeck/middle.py": "from holodeck.low import f\ndef g(): f()",
    "src/holodeck/table.py": "ROWS = {'low': 'holodeck.low:f'}",
    "src/holodeck/other.py": "",
    "tests/conftest.py": "",
    "tests/fakes.py": "from support.backend import Fake\nfrom support.server import Server",
    "tests/support/backend.py": "import holodeck.low\nclass Fake: ...",
    "tests/support/server.py": "class Server: ...",
    "tests/unit/test_low.py": "from holodeck.low import f\ndef test_a(): ...",
    "tests/unit/test_direct.py": "def test_a():\n    from holodeck import low",
    "tests/unit/test_middle.py": "from holodeck.middle import g\ndef test_a(): ...",
    "tests/unit/test_table.py": "from holodeck.table import ROWS\ndef test_a(): ...",
    "tests/unit/test_fake.py": "from fakes import Fake\ndef test_a(): ...",
    "tests/unit/test_server.py": "from fakes import Server\ndef test_a(): ...",
    "tests/unit/test_other.py": "from holodeck import other\ndef test_a(): ...",
    "tests/e2e/test_program.py": "PROGRAM = 'import holodeck.middle; run()'\ndef test_a(): ...",
}


@pytest.fixture
def root(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def selected(script, root, *changed, limit=1000):
    graph = script.ImportGraph(root)
    selection = script.select_tests(graph, [root / name for name in changed], limit)
    return [path.stem for path in selection.run], [path.stem for path in selection.left_out]


def test_tests_that_import_a_changed_module_run_nearest_first(script, root):
    run, left_out = selected(script, root, "src/holodeck/low.py")

    assert run == [
        "test_low",
        "test_direct",
        "test_fake",
        "test_middle",
        "test_table",
        "test_program",
    ]
    assert left_out == []


def test_a_name_that_is_passed_on_leads_to_where_it_is_defined(script, root):
    assert selected(script, root, "tests/support/server.py")[0] == ["test_server"]


def test_a_module_that_passes_names_on_leads_to_all_who_use_it(script, root):
    assert set(selected(script, root, "tests/fakes.py")[0]) == {"test_fake", "test_server"}


def test_a_changed_conftest_leads_to_the_tests_in_its_folder(script, root):
    run, _ = selected(script, root, "tests/conftest.py")

    assert len(run) == 8


def test_a_changed_test_runs_whatever_it_costs(script, root):
    assert selected(script, root, "tests/e2e/test_program.py", limit=0)[0] == ["test_program"]


def test_what_exceeds_the_limit_is_left_out_and_named(script, root, capsys):
    run, left_out = selected(script, root, "src/holodeck/low.py", limit=3)

    assert run == ["test_low", "test_direct", "test_fake"]
    assert left_out == ["test_middle", "test_table", "test_program"]
    names = [script.ROOT / "tests" / "unit" / f"{stem}.py" for stem in left_out]
    script.print_left_out(["README.md"], script.Selection(left_out=names))
    assert "NOT RUN: 3 files of tests" in capsys.readouterr().out
