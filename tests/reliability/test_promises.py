"""Every promise has its row, and every row its tests."""

import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import yaml

from support.promises import PAGE, ROOT, TESTS, promises

PROMISED = {
    *(f"D{n}" for n in range(1, 10)),
    *(f"F{n}" for n in range(1, 13)),
    *(f"C{n}" for n in range(1, 13)),
    *(f"A{n}" for n in range(1, 9)),
}


def test_every_promise_has_one_row():
    ids = [promise.id for promise in promises()]

    assert sorted(ids) == sorted(PROMISED)
    assert yaml.safe_load(TESTS.read_text(encoding="utf-8")).keys() == PROMISED


def test_every_row_names_tests_that_exist():
    named = [(promise.id, test) for promise in promises() for test in promise.tests]

    assert [(id_, *test) for id_, test in named if not _exists(*test)] == []
    assert [promise.id for promise in promises() if not promise.tests] == []


def test_the_table_of_limits_says_what_the_code_says():
    loader = SourceFileLoader("docs_script", str(ROOT / "scripts" / "docs"))
    script = module_from_spec(spec_from_loader("docs_script", loader))
    loader.exec_module(script)

    assert PAGE.read_text(encoding="utf-8") == script.promises_text(), "run scripts/docs"


def test_no_promise_says_that_a_feature_is_to_come():
    assert (
        re.findall(r"(?i)not yet[^|]*|not available[^|]*", PAGE.read_text(encoding="utf-8")) == []
    )


def _exists(file, name):
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    return re.search(rf"^((async )?def {name}\(|{name} = )", text, re.MULTILINE)
