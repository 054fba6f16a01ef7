"""Whatever comes over a connection is read to the end, or refused in words."""

import gzip
import zlib

import pytest

from holodeck.lib.llm.http_parser import MalformedHttp, ResponseParser, TooLarge

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2;x=1\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: 1\r\n\r\n"
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN


@pytest.mark.parametrize("data", [PLAIN, CHUNKED, INTERIM], ids=["length", "chunks", "interim"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_answer_is_read_however_it_is_cut(data, size):
    reading = ResponseParser(100)

    complete = [reading.feed(data[i : i + size]) for i in range(0, len(data), size)]

    assert complete == [False] * (len(complete) - 1) + [True]
    assert (reading.response.status, reading.response.body) == (200, b"hello")
    assert reading.response.keeps_alive


def test_an_answer_without_a_length_ends_with_the_connection():
    reading = ResponseParser(100)

    assert not reading.feed(b"HTTP/1.1 200 OK\r\n\r\nhel")
    assert not reading.feed(b"lo")
    assert reading.end()
    assert reading.response.body == b"hello"
    assert not reading.response.keeps_alive


@pytest.mark.parametrize("cut", [0, 10, len(PLAIN) - 1])
def test_half_an_answer_is_none(cut):
    reading = ResponseParser(100)
    reading.feed(PLAIN[:cut])

    assert not reading.end()
    assert reading.has_begun == bool(cut)


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
    reading = ResponseParser(100)

    assert reading.feed(data)
    assert reading.response.body == b"hello"
    assert not reading.response.keeps_alive


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
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
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
        ResponseParser(100).feed(data)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 101,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n" + b"x" * 64 + b"\r\n40\r\n",
    ],
    ids=["announced", "without length", "in chunks"],
)
def test_reading_stops_where_there_is_too_much(data):
    with pytest.raises(TooLarge, match="the answer is too large"):
        ResponseParser(100).feed(data)


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
    reading = ResponseParser(100)

    assert reading.feed(answer_of(body, coding))
    assert reading.response.body == b"hello"


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
        ResponseParser(100).feed(answer_of(body, coding))


@pytest.mark.parametrize("size", [100, 101])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "two members"])
def test_a_compressed_answer_is_measured_as_it_is_decoded(coding, size):
    if coding == "two members":
        body, name = gzip.compress(b"x" * 60) + gzip.compress(b"x" * (size - 60)), "gzip"
    else:
        body = {"gzip": gzip.compress, "deflate": zlib.compress}[coding](b"x" * size)
        name = coding
    reading = ResponseParser(100)

    if size == 100:
        assert reading.feed(answer_of(body, name))
        assert len(reading.response.body) == size
    else:
        with pytest.raises(TooLarge, match="the answer is too large"):
            reading.feed(answer_of(body, name))
