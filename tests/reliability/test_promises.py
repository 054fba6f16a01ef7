"""Every promise has its row, and every row its tests."""

import re

import pytest

from support.promises import ROOT, promises

PROMISED = {
    *(f"D{n}" for n in range(1, 10)),
    *(f"F{n}" for n in range(1, 13)),
    *(f"C{n}" for n in range(1, 11)),
    *(f"A{n}" for n in range(1, 9)),
}


def test_every_promise_has_one_row():
    ids = [promise.id for promise in promises()]

    assert set(ids) == PROMISED
    assert len(ids) == len(PROMISED)


@pytest.mark.parametrize("promise", promises(), ids=lambda promise: promise.id)
def test_every_row_names_tests_that_exist_or_says_that_it_comes_later(promise):
    missing = [f"{file}::{name}" for file, name in promise.tests if not _exists(file, name)]

    assert missing == []
    assert bool(promise.tests) != promise.comes_later


def _exists(file, name):
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    return re.search(rf"^((async )?def {name}\(|{name} = )", text, re.MULTILINE)
