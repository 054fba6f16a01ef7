"""Reading text files as text, and nothing else as text."""

import codecs

_BY_MARK = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def decoded(data: bytes) -> str:
    """The text: UTF-8, or what its byte order mark says. Raises ValueError with the reason."""
    encoding = next((name for mark, name in _BY_MARK if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"is not UTF-8 text (byte 0x{data[error.start]:02x} at offset {error.start});"
            " save it as UTF-8"
        ) from error
    if "\0" in text:
        raise ValueError(f"is not text: there is a NUL at character {text.index(chr(0))}")
    return text.replace("\r\n", "\n")
