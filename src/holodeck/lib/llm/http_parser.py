"""Incremental parser for HTTP/1.1 responses; it trusts nothing in them."""

import re
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MAX_HEAD_BYTES = 64_000
MAX_CHUNK_LINE_BYTES = 1_000
STATUS_WITHOUT_BODY = frozenset({204, 304})
_STATUS = re.compile(r"HTTP/1\.([01]) (\d{3})(?: |$)")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}[ \t]*(?:;.*)?")


class MalformedHttp(Exception):
    """A response is not valid HTTP/1.1."""


class TooLarge(Exception):
    """A response is larger than the limit."""


def too_large(max_bytes: int) -> str:
    """Return the message about a response of more bytes than that."""
    return f"the answer is too large: more than {max_bytes / 1e6:g} MB (execution.max_answer_mb)"


CODINGS = {
    "gzip": 16 + zlib.MAX_WBITS,
    "x-gzip": 16 + zlib.MAX_WBITS,
    "deflate": zlib.MAX_WBITS,
}
"""Supported content codings, and the `wbits` of zlib for each."""


class Decoder:
    """Decodes a compressed body piece by piece, up to a limit.

    Args:
        coding: The `content-encoding` header.
        max_bytes: The largest decoded body; decoding stops there.

    Raises:
        MalformedHttp: The coding is unknown.
    """

    def __init__(self, coding: str, max_bytes: int) -> None:
        self._coding = coding.strip().lower()
        if self._coding not in CODINGS:
            raise MalformedHttp(f"its content encoding {coding[:20]!r} is not supported")
        self._max_bytes = self._left = max_bytes
        self._inflater = zlib.decompressobj(CODINGS[self._coding])
        self._has_begun = False

    def feed(self, data: bytes) -> bytes:
        """Return the decoded next piece. Raises MalformedHttp, TooLarge."""
        decoded = bytearray()
        while data:
            decoded += self._inflate(data)
            data = self._inflater.unused_data  # gzip allows several members
            if data and self._coding == "deflate":
                raise MalformedHttp("bytes follow the end of its deflate data")
            if data:
                self._inflater = zlib.decompressobj(CODINGS[self._coding])
        return bytes(decoded)

    def end(self) -> None:
        """Raise MalformedHttp if the compressed data ends too early."""
        if self._has_begun and not self._inflater.eof:
            raise MalformedHttp(f"its {self._coding} data is cut off")

    def _inflate(self, data: bytes) -> bytes:
        if not self._has_begun and self._coding == "deflate" and data[0] & 0x0F != 8:
            self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)  # no zlib header, as IIS sends it
        self._has_begun = True
        try:
            decoded = self._inflater.decompress(data, self._left + 1)
        except zlib.error as error:
            raise MalformedHttp(f"its {self._coding} data cannot be decoded: {error}") from error
        self._left -= len(decoded)
        if self._left < 0:
            raise TooLarge(too_large(self._max_bytes))
        return decoded


def decode_body(body: bytes, coding: str | None, max_bytes: int) -> bytes:
    """Return a body without its content coding, if it has one. Raises MalformedHttp, TooLarge."""
    if not body or coding is None or coding.strip().lower() in {"", "identity"}:
        return body
    decoder = Decoder(coding, max_bytes)
    decoded = decoder.feed(body)
    decoder.end()
    return decoded


@dataclass(frozen=True)
class Head:
    """The head of a response."""

    status: int
    reason: str
    lines: list[tuple[str, str]]
    """Names and values of the headers as they came; a name may occur more than once."""
    headers: dict[str, str]
    """The headers by their names in lower case."""


class ResponseReader:
    """Reads a response, fed with bytes as they arrive, and gives its body piece by piece.

    Args:
        max_bytes: The largest body; more raises TooLarge.
        has_body: False for the response to CONNECT or HEAD.
    """

    def __init__(self, max_bytes: int, *, has_body: bool = True) -> None:
        self.head: Head | None = None
        self.is_complete = False
        self.keeps_alive = False
        """Whether the connection may be used again; known once it is complete."""
        self._max_bytes = max_bytes
        self._has_body = has_body
        self._buffer = bytearray()
        self._body = bytearray()
        """What was read of the body and not returned yet."""
        self._size = 0
        """Bytes of the body so far."""
        self._left = 0
        self._has_interim_head = False
        self._step: Callable[[], bool] = self._read_head
        """Reads the next part; returns False if it needs more data."""

    @property
    def has_begun(self) -> bool:
        """Whether any data has arrived."""
        return bool(self._buffer) or self._has_interim_head or self.head is not None

    def feed(self, data: bytes) -> bytes:
        """Return the next piece of the body, "" if the data holds none.

        A coding of the content is not decoded. Raises MalformedHttp, TooLarge.
        """
        self._buffer += data
        while not self.is_complete and self._step():
            pass
        piece, self._body = bytes(self._body), bytearray()
        return piece

    def end(self) -> bool:
        """Note the end of the data, and return whether the response is complete."""
        if not self.is_complete and self._step == self._read_until_end:
            self.is_complete = True
        return self.is_complete

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEAD_BYTES:
            self._refuse_long(MAX_HEAD_BYTES, "its head is too long")
            return False
        text = self._buffer[:end].decode("latin-1")
        del self._buffer[: end + 4]
        first, *lines = text.split("\r\n")
        if not text.count("\r") == text.count("\n") == len(lines) or "\0" in text:
            raise MalformedHttp("its head holds a control character")
        match = _STATUS.match(first)
        if match is None:
            raise MalformedHttp("it does not begin like HTTP/1.1")
        status = int(match[2])
        if 100 <= status < 200:
            self._has_interim_head = True
            return True
        head = self.head = Head(status, first[match.end() :], *_parse_headers(lines))
        options = head.headers.get("connection", "" if match[1] == "1" else "close").lower()
        self.keeps_alive = "close" not in options
        self._step = self._body_step(head)
        return True

    def _body_step(self, head: Head) -> Callable[[], bool]:
        """Return the step that reads the body."""
        transfer = head.headers.get("transfer-encoding")
        length = head.headers.get("content-length")
        if not self._has_body or head.status in STATUS_WITHOUT_BODY:
            return self._read_counted
        if transfer is not None:
            if transfer.lower() != "chunked":
                raise MalformedHttp(f"its transfer encoding is {transfer[:20]!r}")
            return self._read_chunk_size
        if length is None:
            self.keeps_alive = False
            return self._read_until_end
        if not (length.isascii() and length.isdigit() and len(length) < 16):
            raise MalformedHttp(f"its length is {length[:20]!r}")
        self._expect(int(length))
        return self._read_counted

    def _read_counted(self) -> bool:
        self._take()
        if self._left == 0:
            self._finish()
        return False

    def _read_until_end(self) -> bool:
        self._expect(len(self._buffer))
        self._take()
        return False

    def _read_chunk_size(self) -> bool:
        line = self._read_line()
        if line is None:
            return False
        if not _SIZE.fullmatch(line):
            raise MalformedHttp("a chunk of it has no size")
        self._expect(int(line.partition(b";")[0], 16))
        self._step = self._read_chunk if self._left else self._read_trailer
        return True

    def _read_chunk(self) -> bool:
        self._take()
        if self._left or len(self._buffer) < 2:
            return False
        if self._buffer[:2] != b"\r\n":
            raise MalformedHttp("a chunk of it is longer than its size")
        del self._buffer[:2]
        self._step = self._read_chunk_size
        return True

    def _read_trailer(self) -> bool:
        line = self._read_line()
        if line is None:
            return False
        if not line:
            self._finish()
        return True

    def _read_line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            self._refuse_long(MAX_CHUNK_LINE_BYTES, "a line of it is too long")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _expect(self, size: int) -> None:
        """Expect so many further bytes of the body."""
        self._left = size
        self._size += size
        if self._size > self._max_bytes:
            raise TooLarge(too_large(self._max_bytes))

    def _take(self) -> None:
        """Move what has arrived of the expected bytes to the body."""
        piece = self._buffer[: self._left]
        del self._buffer[: self._left]
        self._body += piece
        self._left -= len(piece)

    def _finish(self) -> None:
        self.keeps_alive = self.keeps_alive and not self._buffer
        self.is_complete = True

    def _refuse_long(self, max_bytes: int, problem: str) -> None:
        if len(self._buffer) > max_bytes:
            raise MalformedHttp(problem)


@dataclass(frozen=True)
class Response:
    """A complete response."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


def _parse_headers(lines: Iterable[str]) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Return the headers as they came, and by their names in lower case."""
    rows: list[tuple[str, str]] = []
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name, text = name.strip(), value.strip()
        key = name.lower()
        if not colon:
            raise MalformedHttp("a header of it has no colon")
        if key == "content-length" and headers.get(key, text) != text:
            raise MalformedHttp("it has two lengths")
        rows.append((name, text))
        headers[key] = text
    return rows, headers
