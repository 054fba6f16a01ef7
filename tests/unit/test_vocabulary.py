"""`scripts/vocabulary` refuses names and phrases that the code has left behind."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def vocabulary():
    """The script as a module."""
    loader = SourceFileLoader("vocabulary", str(ROOT / "scripts" / "vocabulary"))
    module = module_from_spec(spec_from_loader("vocabulary", loader))
    loader.exec_module(module)
    return module


def test_a_replaced_name_and_phrase_are_found_with_the_words_to_use(vocabulary, tmp_path):
    file = tmp_path / "shelf.py"
    file.write_text('"""Text that comes to nothing."""\nShelf = 1\nshelf_life = "Shelf"\n')

    found = vocabulary.find_replaced([file])

    assert found == [
        f"{file}: rename the module to 'run_store'",
        f"{file}:1: 'comes to': write 'results in'",
        f"{file}:2: 'Shelf' is now 'RunStore'",
    ]


def test_in_docs_only_the_text_outside_of_code_counts(vocabulary, tmp_path):
    file = tmp_path / "page.md"
    file.write_text(
        "The Shelf keeps `Shelf` and plays a door.\n\n```python\nShelf\n```\n\nIt comes to ten.\n"
    )

    assert vocabulary.find_replaced([file]) == [
        f"{file}:1: 'Shelf' is now 'RunStore'",
        f"{file}:1: 'door' is now 'adapter'",
        f"{file}:7: 'comes to': write 'results in'",
    ]


def test_the_source_and_the_docs_have_none_of_them(vocabulary):
    files = vocabulary.files_to_check()

    assert {one.suffix for one in files} == {".py", ".md"}
    assert vocabulary.find_replaced(files) == []
