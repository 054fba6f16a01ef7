import asyncio
import io
import os
import zipfile
from functools import partial

import pytest

from holodeck.lib.file_processor import FileProcessor, load_file
from holodeck.lib.files.remote_files import MAX_BYTES
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_case import FileInput
from support.documents import pdf, word


@pytest.fixture(scope="module")
def files():
    """A processor, whose process reads the documents of all tests."""
    shared = FileProcessor()
    yield shared
    shared.close()


@pytest.fixture
def process(files, tmp_path):
    """What becomes of a file with the given contents."""
    files.base_dir = tmp_path

    def processed(contents, kind="text", name="file", **keys):
        if contents is not None:
            (tmp_path / name).write_bytes(contents)
        return files.process_file(FileInput(path=name, type=kind, **keys))

    return processed


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        ("naïve\r\ntext".encode(), "naïve\ntext"),
        ("naïve".encode("utf-8-sig"), "naïve"),
        ("naïve".encode("utf-16"), "naïve"),
    ],
    ids=["utf-8", "with a mark", "utf-16 with a mark"],
)
@pytest.mark.parametrize("kind", ["text", "markdown"])
def test_text_is_read_as_it_is(process, kind, contents, text):
    processed = process(contents, kind)

    assert (processed.markdown_content, processed.error) == (text, None)
    assert processed.metadata == {"path": "file", "type": kind, "size_bytes": len(contents)}


@pytest.mark.parametrize(
    ("contents", "kind", "said"),
    [
        (b"caf\xe9", "text", "is not UTF-8 text (byte 0xe9 at offset 3); save it as UTF-8"),
        (b"a\0b", "text", "is not text: there is a NUL at character 1"),
        (b"", "text", "is empty"),
        (b" \n", "csv", "no text could be read from it"),
        (b"hello", "pdf", "is not a PDF file"),
        (b"<!DOCTYPE html><p>Log in", "pdf", "is not a PDF file; found an HTML page"),
        (b'{"a": }', "json", "is not valid JSON: Expecting value at line 1, column 7"),
        (b'a,"b\n', "csv", "is not valid CSV: unexpected end of data"),
        (b"hello", "image", "is not an image; PNG, JPEG, GIF, WebP, BMP and TIFF are read"),
        (b"%PDF-1.7 and nothing else", "pdf", "cannot be read as .pdf: "),
        (b"hello", "word", "is not a .docx file"),
        (b"\xd0\xcf\x11\xe0more", "excel", "is encrypted or of an old format; save it as plain"),
        (b"PK\x03\x04broken", "powerpoint", "is damaged: "),
        (None, "text", "file not found in "),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_why(process, contents, kind, said):
    processed = process(contents, kind)

    assert processed.error.startswith(said)
    assert processed.markdown_content == ""


def test_a_zip_that_is_no_document_is_an_error(process):
    with io.BytesIO() as stream:
        with zipfile.ZipFile(stream, "w") as archive:
            archive.writestr("a.txt", "hello")
        packed = stream.getvalue()

    assert process(packed, "word").error.startswith("cannot be read as .docx")


def test_a_zip_bomb_is_refused(process):
    packed = bytearray(word("hello"))
    size_of_the_first_entry = packed.index(b"PK\x01\x02") + 24
    packed[size_of_the_first_entry : size_of_the_first_entry + 4] = (10**9).to_bytes(4, "little")

    assert process(bytes(packed), "word").error == "unpacks to 1,000 MB; at most 500 are read"


def test_a_file_that_is_too_large_is_refused(process, tmp_path):
    with (tmp_path / "file").open("wb") as file:
        file.truncate(MAX_BYTES + 1)

    assert process(None).error == "is 50.0 MB large; at most 50 MB are read"


def test_a_file_outside_of_the_folder_is_refused(process, tmp_path):
    (tmp_path.parent / "secret.txt").write_text("secret")

    processed = process(None, name="../secret.txt")

    assert "outside of the agent's folder" in processed.error
    assert processed.markdown_content == ""


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_only_regular_files_are_read(process, tmp_path, make):
    make(tmp_path / "thing")

    assert process(None, name="thing").error == "is not a regular file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_an_error(process, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "file").chmod(0)

    assert process(None).error == "cannot be read: Permission denied"


def test_a_word_document_is_read(process):
    text = "<w:p><w:r><w:t>Hello from Word</w:t></w:r></w:p>"

    assert process(word(text), "word").markdown_content == "Hello from Word"


def test_a_document_without_text_is_an_error(process):
    assert process(word(""), "word").error == "no text could be read from it"


def test_a_spreadsheet_is_read(process, tmp_path):
    from openpyxl import Workbook

    book = Workbook()
    book.active.append(["city", "days"])
    book.active.append(["Oslo", 3])
    book.save(tmp_path / "book.xlsx")

    text = process(None, "excel", name="book.xlsx").markdown_content
    assert "| Oslo | 3 |" in text


def test_slides_are_read(process, tmp_path):
    from pptx import Presentation

    slides = Presentation()
    slides.slides.add_slide(slides.slide_layouts[0]).shapes.title.text = "Hello slides"
    slides.save(str(tmp_path / "a.pptx"))

    assert "Hello slides" in process(None, "powerpoint", name="a.pptx").markdown_content


def test_a_pdf_is_read(process):
    text = process(pdf([(24, "Hello from PDF")]), "pdf").markdown_content

    assert text == "<!-- Page number: 1 -->\nHello from PDF"


def test_a_time_limit_holds(tmp_path):
    (tmp_path / "slow.pdf").write_bytes(pdf([(24, ") Tj (".join(["Hello"] * 5000))]))
    files = FileProcessor(base_dir=tmp_path, processing_timeout_ms=10)

    processed = files.process_file(FileInput(path="slow.pdf", type="pdf"))

    assert processed.error == "could not be read within 0.01 s (execution.file_timeout)"


async def test_reading_beside_the_loop_gives_the_same(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    files = FileProcessor(base_dir=tmp_path)
    file = FileInput(path="a.txt", type="text")

    read = partial(load_file, files, file, accepts_images=False)
    both = [loaded.processed for loaded in await asyncio.gather(read(), read())]

    assert [one.markdown_content for one in both] == ["hello", "hello"]


def test_the_time_limit_comes_from_the_settings():
    made = FileProcessor.from_execution_config(ExecutionConfig(file_timeout=1.5))

    assert (made.processing_timeout_ms, made.base_dir) == (1500, None)
