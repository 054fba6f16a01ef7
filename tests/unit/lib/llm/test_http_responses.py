"""Whatever comes over a connection is read to the end, or refused in words."""

import gzip
import zlib

import pytest

from holodeck.lib.llm.http_body import MalformedHttp, TooLarge, decode_body
from holodeck.lib.llm.http_connection import ResponseReader

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2;x=1\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: 1\r\n\r\n"
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN


def body_of(data):
    """Return the decoded body of a whole response of at most 100 bytes."""
    reader = ResponseReader(100)
    body = reader.feed(data)
    assert reader.is_complete
    return decode_body(body, reader.head.headers.get("content-encoding"), 100)


@pytest.mark.parametrize("data", [PLAIN, CHUNKED, INTERIM], ids=["length", "chunks", "interim"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_answer_is_read_however_it_is_cut(data, size):
    reader = ResponseReader(100)

    fed = [(reader.feed(data[i : i + size]), reader.is_complete) for i in range(0, len(data), size)]

    assert [is_complete for _, is_complete in fed] == [False] * (len(fed) - 1) + [True]
    assert (reader.head.status, b"".join(piece for piece, _ in fed)) == (200, b"hello")
    assert reader.keeps_alive


def test_an_answer_without_a_length_ends_with_the_connection():
    reader = ResponseReader(100)

    body = reader.feed(b"HTTP/1.1 200 OK\r\n\r\nhel") + reader.feed(b"lo")

    assert not reader.is_complete
    assert reader.end()
    assert body == b"hello"
    assert not reader.keeps_alive


@pytest.mark.parametrize("cut", [0, 10, len(PLAIN) - 1])
def test_half_an_answer_is_none(cut):
    reader = ResponseReader(100)
    for byte in PLAIN[:cut]:
        reader.feed(bytes([byte]))

    assert not reader.end()
    assert reader.has_begun == bool(cut)


@pytest.mark.parametrize(
    "data",
    [
        PLAIN + b"HTTP/1.1 200 OK",
        PLAIN.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"),
        PLAIN.replace(b"1.1", b"1.0"),
    ],
    ids=["more than asked for", "close", "HTTP/1.0"],
)
def test_a_connection_that_is_no_good_any_more_is_not_used_again(data):
    reader = ResponseReader(100)

    assert reader.feed(data) == b"hello"
    assert reader.is_complete
    assert not reader.keeps_alive


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
    ],
    ids=[
        "other protocol", "no colon", "negative", "two lengths", "brotli", "coded twice",
        "not gzip", "coded",
        "no size", "chunk too long", "line too long", "head too long",
    ],
)  # fmt: skip
def test_what_is_no_http_is_refused(data):
    with pytest.raises(MalformedHttp):
        body_of(data)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 101,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n"
        + b"x" * 64
        + b"\r\n40\r\n"
        + b"x" * 37,
    ],
    ids=["announced", "without length", "in chunks"],
)
def test_reading_stops_where_there_is_too_much(data):
    with pytest.raises(TooLarge, match="the answer is too large"):
        ResponseReader(100).feed(data)


def answer_of(body, coding):
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"hello")),
        ("GZIP", gzip.compress(b"hello")),
        ("x-gzip", gzip.compress(b"hel") + gzip.compress(b"lo")),
        ("deflate", zlib.compress(b"hello")),
        ("deflate", zlib.compress(b"hello")[2:-4]),
        ("identity", b"hello"),
        ("", b"hello"),
    ],
    ids=["gzip", "upper case", "two members", "deflate", "bare deflate", "identity", "blank"],
)
def test_an_answer_that_a_gateway_compressed_is_decoded(coding, body):
    assert body_of(answer_of(body, coding)) == b"hello"


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"hello")[:-9]),
        ("deflate", zlib.compress(b"hello")[:-5]),
        ("deflate", zlib.compress(b"hello") + b"more"),
    ],
    ids=["half of gzip", "half of deflate", "more than deflate"],
)
def test_a_compressed_answer_that_is_not_whole_is_refused(coding, body):
    with pytest.raises(MalformedHttp, match=r"data"):
        body_of(answer_of(body, coding))


@pytest.mark.parametrize("size", [100, 101])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "two members"])
def test_a_compressed_answer_is_measured_as_it_is_decoded(coding, size):
    if coding == "two members":
        body, name = gzip.compress(b"x" * 60) + gzip.compress(b"x" * (size - 60)), "gzip"
    else:
        body = {"gzip": gzip.compress, "deflate": zlib.compress}[coding](b"x" * size)
        name = coding

    if size == 100:
        assert len(body_of(answer_of(body, name))) == size
    else:
        with pytest.raises(TooLarge, match="the answer is too large"):
            body_of(answer_of(body, name))
