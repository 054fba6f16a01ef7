"""Bodies of HTTP messages: their largest size, and their content coding."""

import zlib


class MalformedHttp(Exception):
    """A message is not valid HTTP/1.1."""


class TooLarge(Exception):
    """A body is larger than the limit."""


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
