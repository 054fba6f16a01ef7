"""Files that are text already: plain text, Markdown, JSON and CSV."""

import csv
import io
import json

from holodeck.lib.files.tables import markdown_table
from holodeck.lib.text import bom_encoding

PLAIN_TYPES = frozenset({"text", "markdown", "json", "csv"})
_DELIMITERS = (",", ";", "\t")


def plain_as_markdown(data: bytes, kind: str) -> str:
    """Return the text of a file of a plain type. Raises ValueError with the reason."""
    text = decode_plain_text(data)
    if kind == "csv":
        return _csv_as_table(text)
    if kind == "json":
        _check_json(text)
    return text


def decode_plain_text(data: bytes) -> str:
    """Decode UTF-8 text, or as its byte order mark says. Raises ValueError with the reason."""
    encoding = bom_encoding(data) or "utf-8"
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


def _csv_as_table(text: str) -> str:
    """Return CSV as a Markdown table; its delimiter is the most frequent one of the first line."""
    first_line = text.lstrip("\n").partition("\n")[0]
    delimiter = max(_DELIMITERS, key=first_line.count)
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise ValueError(f"is not valid CSV: {error}") from error
    return markdown_table([row for row in rows if any(map(str.strip, row))])


def _check_json(text: str) -> None:
    """Raise ValueError if the text is not JSON, or nested too deep."""
    try:
        json.loads(text)
    except RecursionError as error:
        raise ValueError("is nested too deep to be read as JSON") from error
    except json.JSONDecodeError as error:
        location = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"is not valid JSON: {error.msg} at {location}") from error
