"""Incremental parser for HTTP/1.1 responses; it trusts nothing in them."""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass

MOST_HEAD_BYTES = 64_000
MOST_CHUNK_LINE_BYTES = 1_000
BODILESS = frozenset({204, 304})
_STATUS = re.compile(r"HTTP/1\.([01]) (\d{3})(?: |$)")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}[ \t]*(?:;.*)?")


class MalformedHttp(Exception):
    """What came is not HTTP/1.1."""


class TooLarge(Exception):
    """More came than is taken."""


def too_large(most_bytes: int) -> str:
    """What is said about an answer of more bytes than that."""
    return f"the answer is too large: more than {most_bytes / 1e6:g} MB (execution.max_answer_mb)"


CODINGS = {
    "gzip": 16 + zlib.MAX_WBITS,
    "x-gzip": 16 + zlib.MAX_WBITS,
    "deflate": zlib.MAX_WBITS,
}
"""Content codings that can be decoded, and what zlib calls them."""


class Decoder:
    """Decodes a body that a gateway compressed, piece by piece, up to so many bytes.

    Args:
        coding: The `content-encoding` header.
        most_bytes: Of the decoded body; a bomb is never unpacked any further.

    Raises:
        MalformedHttp: The coding is unknown.
    """

    def __init__(self, coding: str, most_bytes: int) -> None:
        self._coding = coding.strip().lower()
        if self._coding not in CODINGS:
            raise MalformedHttp(f"its content encoding {coding[:20]!r} is not supported")
        self._most_bytes = self._left = most_bytes
        self._inflater = zlib.decompressobj(CODINGS[self._coding])
        self._has_begun = False

    def feed(self, data: bytes) -> bytes:
        """Return what the next piece decodes to. Raises MalformedHttp, TooLarge."""
        decoded = bytearray()
        while data:
            decoded += self._inflate(data)
            data = self._inflater.unused_data  # gzip allows several members one after the other
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
            raise TooLarge(too_large(self._most_bytes))
        return decoded


def decode_body(body: bytes, coding: str | None, most_bytes: int) -> bytes:
    """Return a body without its content coding, if it has one. Raises MalformedHttp, TooLarge."""
    if not body or coding is None or coding.strip().lower() in {"", "identity"}:
        return body
    decoder = Decoder(coding, most_bytes)
    decoded = decoder.feed(body)
    decoder.end()
    return decoded


@dataclass(frozen=True)
class Response:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    keeps_alive: bool
    """Whether the connection may be used again."""


class ResponseParser:
    """An answer under way, fed with bytes as they come.

    Args:
        most_bytes: Of the body; more raises TooLarge.
        has_body: False for the answer to CONNECT, which is followed by something else.
    """

    def __init__(self, most_bytes: int, *, has_body: bool = True) -> None:
        self.response: Response | None = None
        self._most_bytes = most_bytes
        self._has_body = has_body
        self._buffer = bytearray()
        self._body = bytearray()
        self._left = 0
        self._status, self._headers = 0, dict[str, str]()
        self._keeps_alive = False
        self._step: Callable[[], bool] = self._head

    @property
    def has_begun(self) -> bool:
        """Whether anything came."""
        return bool(self._buffer) or self._status > 0

    def feed(self, data: bytes) -> bool:
        """Take what came; whether the answer is complete. Raises MalformedHttp, TooLarge."""
        self._buffer += data
        while self.response is None and self._step():
            pass
        return self.response is not None

    def end(self) -> bool:
        """Nothing more comes; whether the answer is complete."""
        if self.response is None and self._step == self._until_end:
            self._finish(bytes(self._buffer))
        return self.response is not None

    def _head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or end > MOST_HEAD_BYTES:
            self._refuse_long(MOST_HEAD_BYTES, "its head is too long")
            return False
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        match = _STATUS.match(lines[0])
        if match is None:
            raise MalformedHttp("it does not begin like HTTP/1.1")
        self._status = int(match[2])
        if 100 <= self._status < 200:
            return True
        self._headers = _headers(lines[1:])
        options = self._headers.get("connection", "" if match[1] == "1" else "close").lower()
        self._keeps_alive = "close" not in options
        self._step = self._framing()
        return True

    def _framing(self) -> Callable[[], bool]:
        """The step that reads the body."""
        transfer = self._headers.get("transfer-encoding")
        length = self._headers.get("content-length")
        if not self._has_body or self._status in BODILESS:
            return self._counted
        if transfer is not None:
            if transfer.lower() != "chunked":
                raise MalformedHttp(f"its transfer encoding is {transfer[:20]!r}")
            return self._chunk_size
        if length is None:
            self._keeps_alive = False
            return self._until_end
        if not (length.isascii() and length.isdigit() and len(length) < 16):
            raise MalformedHttp(f"its length is {length[:20]!r}")
        self._left = self._bounded(int(length))
        return self._counted

    def _counted(self) -> bool:
        if len(self._buffer) < self._left:
            return False
        body = bytes(self._buffer[: self._left])
        del self._buffer[: self._left]
        self._finish(body)
        return True

    def _until_end(self) -> bool:
        self._bounded(len(self._buffer))
        return False

    def _chunk_size(self) -> bool:
        line = self._line()
        if line is None:
            return False
        if not _SIZE.fullmatch(line):
            raise MalformedHttp("a chunk of it has no size")
        self._left = int(line.partition(b";")[0], 16)
        self._bounded(len(self._body) + self._left)
        self._step = self._chunk if self._left else self._trailer
        return True

    def _chunk(self) -> bool:
        if len(self._buffer) < self._left + 2:
            return False
        self._body += self._buffer[: self._left]
        if self._buffer[self._left : self._left + 2] != b"\r\n":
            raise MalformedHttp("a chunk of it is longer than its size")
        del self._buffer[: self._left + 2]
        self._step = self._chunk_size
        return True

    def _trailer(self) -> bool:
        line = self._line()
        if line is None:
            return False
        if not line:
            self._finish(bytes(self._body))
        return True

    def _line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            self._refuse_long(MOST_CHUNK_LINE_BYTES, "a line of it is too long")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _finish(self, body: bytes) -> None:
        clean = self._keeps_alive and not (self._buffer and self._step != self._until_end)
        body = decode_body(body, self._headers.get("content-encoding"), self._most_bytes)
        self.response = Response(self._status, self._headers, body, clean)

    def _refuse_long(self, most: int, why: str) -> None:
        if len(self._buffer) > most:
            raise MalformedHttp(why)

    def _bounded(self, size: int) -> int:
        if size > self._most_bytes:
            raise TooLarge(too_large(self._most_bytes))
        return size


def _headers(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        key, text = name.strip().lower(), value.strip()
        if not colon:
            raise MalformedHttp("a header of it has no colon")
        if key == "content-length" and found.get(key, text) != text:
            raise MalformedHttp("it has two lengths")
        found[key] = text
    return found
