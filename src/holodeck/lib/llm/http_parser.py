"""Incremental parser for HTTP/1.1 responses; it trusts nothing in them."""

import re
import zlib
from collections.abc import Callable
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
class Response:
    """A complete response."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    keeps_alive: bool
    """Whether the connection may be used again."""


class ResponseParser:
    """Parses one response, fed with bytes as they arrive.

    Args:
        max_bytes: The largest body; more raises TooLarge.
        has_body: False for the response to CONNECT, which other data follows.
    """

    def __init__(self, max_bytes: int, *, has_body: bool = True) -> None:
        self.response: Response | None = None
        self._max_bytes = max_bytes
        self._has_body = has_body
        self._buffer = bytearray()
        self._body = bytearray()
        self._left = 0
        self._status, self._headers = 0, dict[str, str]()
        self._keeps_alive = False
        self._step: Callable[[], bool] = self._read_head
        """Parses the next part; returns False if it needs more data."""

    @property
    def has_begun(self) -> bool:
        """Whether any data has arrived."""
        return bool(self._buffer) or self._status > 0

    def feed(self, data: bytes) -> bool:
        """Parse data, and return whether the response is complete.

        Raises MalformedHttp, TooLarge.
        """
        self._buffer += data
        while self.response is None and self._step():
            pass
        return self.response is not None

    def end(self) -> bool:
        """Note the end of the data, and return whether the response is complete."""
        if self.response is None and self._step == self._read_until_end:
            self._finish(bytes(self._buffer))
        return self.response is not None

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 or end > MAX_HEAD_BYTES:
            self._refuse_long(MAX_HEAD_BYTES, "its head is too long")
            return False
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        match = _STATUS.match(lines[0])
        if match is None:
            raise MalformedHttp("it does not begin like HTTP/1.1")
        self._status = int(match[2])
        if 100 <= self._status < 200:
            return True
        self._headers = _parse_headers(lines[1:])
        options = self._headers.get("connection", "" if match[1] == "1" else "close").lower()
        self._keeps_alive = "close" not in options
        self._step = self._body_step()
        return True

    def _body_step(self) -> Callable[[], bool]:
        """Return the step that reads the body."""
        transfer = self._headers.get("transfer-encoding")
        length = self._headers.get("content-length")
        if not self._has_body or self._status in STATUS_WITHOUT_BODY:
            return self._read_counted
        if transfer is not None:
            if transfer.lower() != "chunked":
                raise MalformedHttp(f"its transfer encoding is {transfer[:20]!r}")
            return self._read_chunk_size
        if length is None:
            self._keeps_alive = False
            return self._read_until_end
        if not (length.isascii() and length.isdigit() and len(length) < 16):
            raise MalformedHttp(f"its length is {length[:20]!r}")
        self._left = self._check_size(int(length))
        return self._read_counted

    def _read_counted(self) -> bool:
        if len(self._buffer) < self._left:
            return False
        body = bytes(self._buffer[: self._left])
        del self._buffer[: self._left]
        self._finish(body)
        return True

    def _read_until_end(self) -> bool:
        self._check_size(len(self._buffer))
        return False

    def _read_chunk_size(self) -> bool:
        line = self._read_line()
        if line is None:
            return False
        if not _SIZE.fullmatch(line):
            raise MalformedHttp("a chunk of it has no size")
        self._left = int(line.partition(b";")[0], 16)
        self._check_size(len(self._body) + self._left)
        self._step = self._read_chunk if self._left else self._read_trailer
        return True

    def _read_chunk(self) -> bool:
        if len(self._buffer) < self._left + 2:
            return False
        self._body += self._buffer[: self._left]
        if self._buffer[self._left : self._left + 2] != b"\r\n":
            raise MalformedHttp("a chunk of it is longer than its size")
        del self._buffer[: self._left + 2]
        self._step = self._read_chunk_size
        return True

    def _read_trailer(self) -> bool:
        line = self._read_line()
        if line is None:
            return False
        if not line:
            self._finish(bytes(self._body))
        return True

    def _read_line(self) -> bytes | None:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            self._refuse_long(MAX_CHUNK_LINE_BYTES, "a line of it is too long")
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line

    def _finish(self, body: bytes) -> None:
        keeps_alive = self._keeps_alive and not (
            self._buffer and self._step != self._read_until_end
        )
        body = decode_body(body, self._headers.get("content-encoding"), self._max_bytes)
        self.response = Response(self._status, self._headers, body, keeps_alive)

    def _refuse_long(self, max_bytes: int, problem: str) -> None:
        if len(self._buffer) > max_bytes:
            raise MalformedHttp(problem)

    def _check_size(self, size: int) -> int:
        if size > self._max_bytes:
            raise TooLarge(too_large(self._max_bytes))
        return size


def _parse_headers(lines: list[str]) -> dict[str, str]:
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
