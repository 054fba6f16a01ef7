"""Whatever comes over a connection is read to the end, or refused in words."""

import pytest

from holodeck.lib.chat.http import MalformedHttp, Reading, TooLarge

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2;x=1\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: 1\r\n\r\n"
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN


@pytest.mark.parametrize("data", [PLAIN, CHUNKED, INTERIM], ids=["length", "chunks", "interim"])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_answer_is_read_however_it_is_cut(data, size):
    reading = Reading(100)

    complete = [reading.feed(data[i : i + size]) for i in range(0, len(data), size)]

    assert complete == [False] * (len(complete) - 1) + [True]
    assert (reading.response.status, reading.response.body) == (200, b"hello")
    assert reading.response.keeps_alive


def test_an_answer_without_a_length_ends_with_the_connection():
    reading = Reading(100)

    assert not reading.feed(b"HTTP/1.1 200 OK\r\n\r\nhel")
    assert not reading.feed(b"lo")
    assert reading.end()
    assert reading.response.body == b"hello"
    assert not reading.response.keeps_alive


@pytest.mark.parametrize("cut", [0, 10, len(PLAIN) - 1])
def test_half_an_answer_is_none(cut):
    reading = Reading(100)
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
    reading = Reading(100)

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
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000,
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
    ],
    ids=[
        "other protocol", "no colon", "negative", "two lengths", "compressed", "coded",
        "no size", "chunk too long", "line too long", "head too long",
    ],
)  # fmt: skip
def test_what_is_no_http_is_refused(data):
    with pytest.raises(MalformedHttp):
        Reading(100).feed(data)


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
        Reading(100).feed(data)
