"""Downloads from real servers on loopback, polite and hostile ones."""

import ipaddress
import socket

import pytest

from holodeck.lib.file_processor import FileProcessor
from holodeck.lib.files.remote_files import (
    DownloadError,
    DownloadRules,
    _kind_if_not_public,
    download,
    shown_url,
)
from holodeck.models.config import ExecutionConfig
from support.file_server import FileServer, answer, drip, endless


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server():
    with FileServer() as running:
        yield running


def rules(server, **options):
    options.setdefault("max_retries", 0)
    return DownloadRules(allowed_hosts=(server.host,), **options)


async def test_a_file_is_downloaded_with_its_type_and_where_it_was_found(server):
    server.pages = {
        "/a": answer(status="302 Found", Location="/b?c=ü"),
        "/b": answer(b"text", Content_Type="text/CSV; charset=utf-8"),
    }

    found = await download(server.url("/a"), rules(server))

    assert (found.data, found.media_type) == (b"text", "text/csv")
    assert found.url == server.url("/b?c=%C3%BC")
    assert (found.cached_path, found.is_from_cache) == (None, False)


@pytest.mark.parametrize(
    ("page", "options", "said"),
    [
        (answer(status="404 Not Found"), {}, "the server answered HTTP 404 (Not Found)"),
        (answer(b"x" * 11), {"max_bytes": 10}, "is too large: at most 1e-05 MB are read"),
        (endless, {"max_bytes": 10**6}, "is too large: at most 1 MB are read"),
        (drip, {"timeout": 0.2}, "could not be downloaded within 0.2 s (execution.download_timeo"),
        (b"nonsense\r\n\r\n", {}, "the server's answer is not valid HTTP"),
        (answer(status="302 Found", Location="file:///etc/passwd"), {}, "begins with 'file:'"),
        (answer(status="302 Found", Location="http://169.254.169.254/latest"), {},
         "169.254.169.254 is a link-local address, from which nothing is downloaded unless"),
        (answer(status="302 Found", Location="http://2130706433/"), {}, "is a loopback address"),
        (answer(status="302 Found", Location="/page"), {}, "is redirected more than 5 times"),
        (answer(status="302 Found"), {}, "HTTP 302 without a location"),
    ],
    ids=["missing", "large", "endless", "slow", "not http", "file", "link-local", "number", "loop",
         "nowhere"],
)  # fmt: skip
async def test_what_is_not_downloaded_says_why(server, page, options, said):
    server.pages = {"/page": page}

    with pytest.raises(DownloadError) as caught:
        await download(server.url("/page"), rules(server, **options))

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://example.com/a", "begins with 'ftp:'; only http:// and https:// are downloaded"),
        ("http:///a", "has no valid host"),
        ("http://a b/", "has no valid host"),
        ("http://a:99999/", "its URL is invalid"),
        ("http://[::1]:{port}/",  "::1 is a loopback address, from"),
        ("http://localhost:{port}/", "of 'localhost' is a loopback address"),
        ("http://127.0.0.1:{port}/", "127.0.0.1 is a loopback address"),
        ("http://[::1]:{port}/", "write 'execution: {{allowed_hosts: [\"[::1]:{port}\"]}}'"),
        ("http://10.1.2.3/", "10.1.2.3 is a private address"),
    ],
)  # fmt: skip
async def test_a_url_that_is_not_allowed_is_not_requested(server, url, said):
    with pytest.raises(DownloadError) as caught:
        await download(url.replace("{port}", str(server.port)))

    assert said.format(port=server.port) in str(caught.value)
    assert server.requests == []


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("93.184.216.34", None),
        ("2606:2800:220:1::1", None),
        ("::ffff:127.0.0.1", "loopback"),
        ("2002:7f00:1::", "loopback"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("0.0.0.0", "reserved"),
        ("100.64.0.1", "private"),
        ("224.0.0.1", "multicast"),
        ("fe80::1", "link-local"),
        ("fd00::1", "private"),
    ],
)
def test_addresses_that_are_not_public_are_known_in_every_form(address, kind):
    assert _kind_if_not_public(ipaddress.ip_address(address)) == kind


async def test_a_name_is_looked_up_once_so_that_it_cannot_change_after_the_check(
    server, monkeypatch
):
    server.pages = {"/": answer(b"ok")}
    names = []

    def lookup(host, port, *_, **__):
        names.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    allowed = DownloadRules(allowed_hosts=("files.test",))

    assert (await download(f"http://files.test:{server.port}/", allowed)).data == b"ok"
    assert names == ["files.test"]
    assert server.requests[0][1]["host"] == f"files.test:{server.port}"


@pytest.mark.parametrize("status", ["503 Service Unavailable", "429 Too Many Requests"])
async def test_what_can_pass_is_tried_again(server, status):
    server.pages = {"/a": [answer(status=status, Retry_After="0"), b"", answer(b"ok")]}

    found = await download(server.url("/a"), rules(server, max_retries=2, timeout=600))

    assert (found.data, len(server.requests)) == (b"ok", 3)


async def test_what_cannot_pass_is_not_tried_again(server):
    with pytest.raises(DownloadError, match="404"):
        await download(server.url("/a"), rules(server, max_retries=2))

    assert len(server.requests) == 1


async def test_a_wait_beyond_the_limit_is_not_begun(server):
    server.pages = {"/a": answer(status="429 Slow Down", Retry_After="3600")}

    with pytest.raises(DownloadError, match="HTTP 429"):
        await download(server.url("/a"), rules(server, max_retries=2))

    assert len(server.requests) == 1


async def test_a_cached_file_is_used_once_the_server_confirms_it(server, tmp_path):
    server.pages = {
        "/a": [
            answer(b"one", ETag='"1"', Last_Modified="Mon, 01 Jan 2024 00:00:00 GMT"),
            answer(status="304 Not Modified"),
            answer(b"two", ETag='"2"'),
            answer(status="304 Not Modified"),
        ]
    }
    cached = rules(server, cache_dir=tmp_path)

    found = [await download(server.url("/a"), cached) for _ in range(4)]

    assert [(one.data, one.is_from_cache) for one in found] == [
        (b"one", False),
        (b"one", True),
        (b"two", False),
        (b"two", True),
    ]
    sent = [headers for _, headers in server.requests]
    assert [one.get("if-none-match") for one in sent] == [None, '"1"', '"1"', '"2"']
    assert sent[1]["if-modified-since"] == "Mon, 01 Jan 2024 00:00:00 GMT"
    assert [one.cached_path for one in found] == list(tmp_path.iterdir()) * 4


@pytest.mark.parametrize("headers", [{}, {"ETag": '"1"', "Cache_Control": "no-store"}])
async def test_what_cannot_be_confirmed_or_must_not_be_stored_is_not_cached(
    server, tmp_path, headers
):
    server.pages = {"/a": answer(b"one", **headers)}

    found = await download(server.url("/a"), rules(server, cache_dir=tmp_path))

    assert (found.data, found.cached_path, [*tmp_path.iterdir()]) == (b"one", None, [])


async def test_a_damaged_file_of_the_cache_is_downloaded_again(server, tmp_path):
    server.pages = {"/a": answer(b"one", ETag='"1"')}
    cached = rules(server, cache_dir=tmp_path)
    path = (await download(server.url("/a"), cached)).cached_path
    path.write_bytes(path.read_bytes() + b"more")

    assert (await download(server.url("/a"), cached)).data == b"one"
    assert [headers.get("if-none-match") for _, headers in server.requests] == [None, None]


async def test_credentials_in_a_url_reach_its_own_host_only(server):
    with FileServer({"/b": answer(b"ok")}) as other:
        server.pages = {"/a": answer(status="302 Found", Location=other.url("/b"))}
        allowed = DownloadRules(allowed_hosts=("127.0.0.1",))

        found = await download(f"http://me:p%40ss@{server.host}/a", allowed)

        assert server.requests[0][1]["authorization"] == "Basic bWU6cEBzcw=="
        assert "authorization" not in other.requests[0][1]
        assert found.url == other.url("/b")


async def test_a_proxy_gets_names_that_are_not_known_here(server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url(""))
    server.pages = {"http://files.invalid/a": answer(b"ok")}

    assert (await download("http://files.invalid/a")).data == b"ok"
    with pytest.raises(DownloadError, match="link-local"):
        await download("http://169.254.169.254/a")


def test_messages_show_no_secrets_of_a_url():
    assert shown_url("https://me:secret@host/a?key=secret#x") == "https://host/a?…"


def test_the_rules_come_from_the_settings(tmp_path):
    settings = ExecutionConfig(download_timeout=2, allowed_hosts="a, b:80", cache_dir=str(tmp_path))

    processor = FileProcessor.from_execution_config(settings)

    assert (processor.download_timeout_ms, processor.allowed_hosts) == (2000, ("a", "b:80"))
    assert processor.cache_dir == str(tmp_path / "files")
    off = FileProcessor.from_execution_config(ExecutionConfig(cache_enabled=False))
    assert off.cache_dir is None
