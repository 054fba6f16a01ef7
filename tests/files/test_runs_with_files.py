"""Runs whose cases have files: what the agent gets, and what becomes of hostile files."""

import io
import json
import os
import struct
import zipfile

import pytest

from holodeck import TestExecutor
from holodeck.lib.test_runner.options import RunOptions
from support.documents import pdf, word
from support.file_server import FileServer, answer, drip, endless
from support.processes import descendants

LAUGHS = """<!DOCTYPE w:document [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>"""


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server():
    with FileServer() as running:
        yield running


async def run(folder, files, server, seen, **execution):
    """The results of one case per file, whose agent notes what it gets."""
    settings = {"allowed_hosts": [server.host], "cache_dir": "cache", **execution}
    cases = [
        {
            "input": f"read {at}",
            "files": [one],
            "evaluations": [{"metric": "contains", "value": "done"}],
        }
        for at, one in enumerate(files)
    ]
    model = {"provider": "openai", "name": "x", "api_key": "not-a-real-key"}
    written = {"name": "a", "model": model, "instructions": {"inline": "hi"}}
    text = json.dumps({**written, "execution": settings, "test_cases": cases})
    (folder / "agent.yaml").write_text(text)

    def agent(message: str) -> str:
        seen.append(message)
        return "done"

    options = RunOptions(is_checked=True)
    executor = TestExecutor(str(folder / "agent.yaml"), backend=agent, options=options)
    return (await executor.execute_tests()).results


def rewritten(document, change):
    """The archive with the content of its last part changed."""
    with (
        zipfile.ZipFile(io.BytesIO(document)) as old,
        io.BytesIO() as stream,
    ):
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as new:
            for name in old.namelist():
                text = old.read(name)
                new.writestr(name, change(text) if name.endswith("document.xml") else text)
        return stream.getvalue()


def bomb_that_lies():
    """A document that unpacks to more than it says."""
    packed = bytearray(rewritten(word("x"), lambda text: text + b" " * 3_000_000))
    start = packed.rindex(b"PK\x01\x02") + 24
    packed[start : start + 4] = struct.pack("<I", 10)
    return bytes(packed)


def crowd():
    """An archive of too many parts."""
    with io.BytesIO() as stream:
        with zipfile.ZipFile(stream, "w") as archive:
            for at in range(10_001):
                archive.writestr(str(at), b"")
        return stream.getvalue()


async def test_hostile_files_are_one_error_row_each_and_leave_nothing(tmp_path, server):
    folder = tmp_path / "agent"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    with (folder / "sparse.txt").open("wb") as file:
        file.truncate(1_000_000_000)
    contents = {
        "lies.docx": bomb_that_lies(),
        "huge.docx": rewritten(word("x"), lambda text: text + b" " * 201_000_000),
        "laughs.docx": word("x", head=LAUGHS),
        "crowd.docx": crowd(),
        "html.pdf": b"<html>Log in",
        "word.xlsx": word("x"),
        "cut.pdf": pdf([(12, "x")])[:200],
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    server.pages = {
        "/endless": endless,
        "/metadata": answer(status="302 Found", Location="http://169.254.169.254/latest"),
        "/file": answer(status="302 Found", Location="file:///etc/passwd"),
        "/loop": answer(status="302 Found", Location="/loop"),
    }
    rows = [
        ({"path": "lies.docx", "type": "word"}, "is damaged: Bad CRC-32"),
        ({"path": "huge.docx", "type": "word"}, "one of its parts unpacks to more than 200 MB"),
        ({"path": "laughs.docx", "type": "word"}, "declares a document type"),
        ({"path": "crowd.docx", "type": "word"}, "has 10,001 parts; at most 10,000 are read"),
        ({"path": "html.pdf", "type": "pdf"}, "is not a PDF file; found an HTML page"),
        ({"path": "word.xlsx", "type": "excel"}, "cannot be read as .xlsx: "),
        ({"path": "cut.pdf", "type": "pdf"}, "cannot be read as .pdf: "),
        ({"path": "sparse.txt", "type": "text"}, "is 1,000.0 MB large; at most 50 MB are read"),
        ({"path": "../secret.txt", "type": "text"}, "lies outside of the agent's folder"),
        ({"path": "link.txt", "type": "text"}, "lies outside of the agent's folder"),
        ({"path": "missing.txt", "type": "text"}, "file not found in"),
        ({"url": server.url("/endless"), "type": "text"}, "is too large: at most 50 MB are read"),
        ({"url": server.url("/metadata"), "type": "text"}, "is a link-local address, from which"),
        ({"url": server.url("/file"), "type": "text"}, "only http:// and https:// are downloaded"),
        ({"url": server.url("/loop"), "type": "text"}, "is redirected more than 5 times"),
        ({"url": "http://localhost:1/a", "type": "text"}, "'localhost' is a loopback address"),
    ]
    before, seen = set(descendants(os.getpid())), []
    found = sorted(folder.iterdir())

    results = await run(folder, [file for file, _ in rows], server, seen, download_timeout=600)

    for (file, said), result in zip(rows, results, strict=True):
        [error] = result.errors
        assert error.startswith(f"File error: {file.get('path') or file['url']}: "), error
        assert said in error
        assert result.outcome == "agent_error"
    assert seen == []
    assert sorted(folder.iterdir()) == sorted([*found, folder / "agent.yaml"])
    assert set(descendants(os.getpid())) <= before


async def test_a_remote_file_is_downloaded_once_and_shown_without_its_secrets(tmp_path, server):
    server.pages = {"/a.csv": [answer(b"a,b\n1,2", ETag='"1"'), answer(status="304 OK")]}
    file = {"url": server.url("/a.csv?key=secret"), "type": "csv", "description": "Numbers"}
    seen = []

    for cached in (False, True):
        [result] = await run(tmp_path, [file], server, seen)

        [processed] = result.processed_files
        assert result.passed, result.errors
        assert "secret" not in result.model_dump_json()
        assert processed.cached_path.startswith(str(tmp_path / "cache" / "files"))
        assert len(server.requests) == 1 + cached
    table = "| a | b |\n| --- | --- |\n| 1 | 2 |"
    assert seen == [f"File: {server.url('/a.csv')}?…\nNumbers\n{table}\n\nread 0"] * 2


async def test_a_download_that_trickles_ends_at_its_limit(tmp_path, server):
    server.pages = {"/drip": drip}

    [result] = await run(
        tmp_path, [{"url": server.url("/drip"), "type": "pdf"}], server, [], download_timeout=0.5
    )

    assert "could not be downloaded within 0.5 s (execution.download_timeout)" in result.errors[0]


async def test_a_case_may_go_on_without_a_file_that_cannot_be_read(tmp_path, server):
    file = {"url": server.url("/missing"), "type": "text", "on_error": "continue"}
    seen = []

    [result] = await run(tmp_path, [file], server, seen)

    assert (result.passed, result.errors, seen) == (True, [], ["read 0"])
    assert result.processed_files[0].error == "the server answered HTTP 404 (Not Found)"


async def test_cache_false_keeps_no_file(tmp_path, server):
    server.pages = {"/a": answer(b"text", ETag='"1"')}
    file = {"url": server.url("/a"), "type": "text", "cache": False}

    [result] = await run(tmp_path, [file], server, [])

    assert (result.passed, result.processed_files[0].cached_path) == (True, None)
    assert not (tmp_path / "cache").exists()
