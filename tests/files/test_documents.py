"""What is read of tables, documents and images, and which part of them."""

import os
import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from holodeck.lib.file_processor import FileProcessor
from holodeck.models.test_case import FileInput
from support.documents import pdf, picture, word
from support.processes import command_of, descendants

SLIDE = "<!-- Slide number: {} -->\n# {}"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    shared = FileProcessor(base_dir=tmp_path_factory.mktemp("files"))
    yield shared
    shared.close()


@pytest.fixture
def read(files):
    """The text of a file with these contents, or its error."""

    def text(contents, kind, **keys):
        if contents is not None:
            (files.base_dir / "file").write_bytes(contents)
        processed = files.process_file(FileInput(path="file", type=kind, **keys))
        return processed.error or processed.markdown_content

    return text


@pytest.mark.parametrize(
    ("contents", "table"),
    [
        ("city,days\nOslo,3\n", "| city | days |\n| --- | --- |\n| Oslo | 3 |"),
        ("a;b\n1,5;2", "| a | b |\n| --- | --- |\n| 1,5 | 2 |"),
        ("a\tb\n\n1\n", "| a | b |\n| --- | --- |\n| 1 |  |"),
        ('a,b\n"x|y","1\n2"\n', "| a | b |\n| --- | --- |\n| x\\|y | 1<br>2 |"),
    ],
    ids=["commas", "semicolons", "tabs", "escaped"],
)
def test_csv_becomes_a_table(read, contents, table):
    assert read(contents.encode(), "csv") == table


def test_json_is_sent_as_it_is_written(read):
    assert read(b'{"a":  [1]}', "json") == '{"a":  [1]}'


def test_a_pdf_has_pages_headings_and_tables(read):
    body = "This is a paragraph of the report, which is long enough to be the text of it."
    document = pdf(
        [(24, "Report"), (10, body), (16, "Costs"), (10, body)],
        [(10, "Nothing but text here, on a page of its own, as long as the others are.")],
        [(16, "Results"), (10, body)],
    )

    whole = read(document, "pdf")

    assert whole.startswith("<!-- Page number: 1 -->\n# Report\n\nThis is a paragraph")
    assert "\n\n## Costs\n\n" in whole
    assert "<!-- Page number: 3 -->\n## Results\n\n" in whole
    assert read(None, "pdf", pages=["2-3"]) == whole[whole.index("<!-- Page number: 2") :]
    assert read(None, "pdf", pages=[1, 3]).count("Page number") == 2
    assert read(None, "pdf", pages=[4]) == "has 3 pages; 'pages' names page 4"


def test_a_table_without_lines_in_a_pdf_keeps_its_rows(read):
    document = pdf([(20, "Invoice"), (10, "Item\tPrice"), (10, "Oslo\t10"), (10, "Rome\t20")])

    assert read(document, "pdf") == (
        "<!-- Page number: 1 -->\n# Invoice\n\n"
        "| Item | Price |\n| --- | --- |\n| Oslo | 10 |\n| Rome | 20 |"
    )


def test_sheets_and_ranges_of_a_workbook_are_read(read, files):
    from openpyxl import Workbook

    book = Workbook()
    book.active.title = "Trips"
    book.active.append(["city", "days", "twice"])
    book.active.append(["Oslo", 3.0, "=B2*2"])
    book.create_sheet("Notes").append(["seen"])
    book.save(files.base_dir / "file")

    trips = "## Trips\n\n| city | days | twice |\n| --- | --- | --- |\n| Oslo | 3 | =B2*2 |"
    assert read(None, "excel") == f"{trips}\n\n## Notes\n\n| seen |\n| --- |"
    assert read(None, "excel", sheet="Trips") == trips
    assert read(None, "excel", range="a1:A2").endswith("| city |\n| --- |\n| Oslo |")
    assert read(None, "excel", sheet="Notes", range="C5:D9") == (
        "has no values in the range C5:D9 of the sheet 'Notes'"
    )
    assert read(None, "excel", sheet="Note") == (
        "has no sheet 'Note', but 'Trips', 'Notes'; did you mean 'Notes'?"
    )


def test_slides_are_read_by_their_numbers(read, files):
    from pptx import Presentation

    slides = Presentation()
    for title in ("One", "<!-- Slide number: 9 -->", "Three"):
        slides.slides.add_slide(slides.slide_layouts[0]).shapes.title.text = title
    slides.save(str(files.base_dir / "file"))

    assert read(None, "powerpoint", pages=[3, 1]) == (
        f"{SLIDE.format(1, 'One')}\n\n{SLIDE.format(3, 'Three')}"
    )
    assert read(None, "powerpoint", pages=[4]) == "has 3 slides; 'pages' names slide 4"


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")
def test_the_text_of_an_image_is_read(read):
    assert read(picture("Order 4711"), "image") == "Order 4711"
    assert read(picture(" "), "image") == "no text could be read from it"


def test_an_image_without_a_program_for_ocr_says_what_to_install(read, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")

    assert read(picture("x"), "image").startswith(
        "reading text from an image needs the program 'tesseract', which is not installed; install"
    )


@pytest.mark.skipif(os.name == "nt", reason="needs a shell")
@pytest.mark.parametrize(
    ("script", "limit", "said"),
    [
        ("exec sleep 100000", 2, "could not be read within 2 s (execution.file_timeout)"),
        ("echo x > leaked", 600, "tesseract cannot read it: it ended with -25"),  # SIGXFSZ
        ("ulimit -v >&2; exit 1", 600, "tesseract cannot read it: 1953125"),
        ("kill -9 $PPID", 600, "cannot be read: its parser was killed by SIGKILL"),
    ],
    ids=["hangs", "writes", "has a limit of memory", "kills"],
)
def test_what_reads_a_file_has_limits_and_leaves_nothing(
    tmp_path, monkeypatch, script, limit, said
):
    program = tmp_path / "tesseract"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.png").write_bytes(picture("x"))
    before = set(descendants(os.getpid()))
    files = FileProcessor(base_dir=tmp_path, processing_timeout_ms=limit * 1000)

    processed = files.process_file(FileInput(path="a.png", type="image"))
    files.close()

    assert said in processed.error
    assert set(descendants(os.getpid())) <= before
    assert sum(one.stat().st_size for one in Path().glob("leaked")) == 0


def readers():
    """The processes below this one that read files."""
    below = descendants(os.getpid())
    return {pid for pid in below if b"holodeck.lib.files.worker" in command_of(pid)}


def test_one_process_reads_the_files_of_a_run_and_ends_with_it(files, read):
    read(word("<w:p><w:r><w:t>one</w:t></w:r></w:p>"), "word")
    first = readers()
    read(word("<w:p><w:r><w:t>two</w:t></w:r></w:p>"), "word")

    assert len(first) == 1
    assert readers() == first
    files.close()
    assert not readers()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"type": "pdf"}, "'path' is missing; write the path of the file, or its 'url'"),
        ({"type": "pdf", "path": "a", "url": "http://a/b"}, "'path' and 'url' are both set"),
        ({"type": "pdf", "url": "file:///etc/passwd"}, "for a file of this machine, write 'path'"),
        (
            {"type": "word", "path": "a", "pages": [1]},
            "'pages' is for files of type pdf and powerp",
        ),
        (
            {"type": "pdf", "path": "a", "sheet": "x"},
            "'sheet' is for files of type excel, and this",
        ),
        ({"type": "pdf", "path": "a", "pages": [0]}, "found 0; expected a page from 1 such as 3"),
        ({"type": "pdf", "path": "a", "pages": ["5-3"]}, "found '5-3'; expected a page from 1"),
        ({"type": "excel", "path": "a", "range": "A1-B2"}, "found 'A1-B2'; expected a range of ce"),
        ({"type": "pdf", "path": "a", "cache": True}, "'cache' is for files with a 'url'; remove"),
        ({"type": "pdf", "path": "a", "on_error": "go"}, "Input should be 'fail' or 'continue'"),
    ],
)
def test_keys_that_do_not_fit_are_refused(keys, said):
    with pytest.raises(ValidationError) as caught:
        FileInput(**keys)

    assert said in str(caught.value)
