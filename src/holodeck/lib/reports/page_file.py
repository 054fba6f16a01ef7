"""The file of a page: markup, style and scripts, and results that the page decompresses on demand.

The texts of the results are only in compressed blocks, which the page reads as data and shows as
text. The policy in its head permits the page's own style and scripts by their hashes, and nothing
else: a text that became markup could neither run nor load anything.
"""

import json
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from typing import NamedTuple

from pydantic import BaseModel

from holodeck.lib.support.text import inert_xml, one_line, plural
from holodeck.models.base import Json, model_json

Row = dict[str, Json]
"""What the list shows of a case, and filters and sorts it by."""
CHUNK_CHARACTERS = 500_000
"""About how much a block of cases holds; opening a case decompresses its block."""
_SCRIPTS = (
    "text.js", "data.js", "filter.js", "list.js", "parts.js", "case.js", "compare.js", "runs.js",
    "live.js", "main.js",
)  # fmt: skip
_INDEX = (
    "kind", "title", "verdict", "counts", "thing", "facts", "figures", "notes", "conclusions",
    "currency", "metrics", "outcomes",
)  # fmt: skip
"""What a page says before its cases."""
_MAX_NAME = 200
MAX_LISTED = 100
"""Cases that a page lists for browsers without scripts."""


class PageCase(NamedTuple):
    """A case of a page."""

    row: Row
    line: str
    """Everything about it, as JSON without line ends."""


@dataclass(frozen=True)
class Page:
    """What a page shows."""

    title: str
    verdict: str
    """One word, such as "passed"."""
    counts: str
    cases: Iterable[PageCase]
    not_passed: int = 0
    """How many of them did not pass."""
    listed: Sequence[Row] = ()
    """Those that readers without scripts see, too: at least the first `MAX_LISTED`."""
    kind: str = "report"
    """"report", "comparison" or "runs"."""
    thing: str = "test case"
    facts: Sequence[tuple[str, str]] = ()
    """Label → value: what ran."""
    figures: Sequence[tuple[str, str]] = ()
    """Label → number, of the whole run."""
    notes: Sequence[str] = ()
    """What readers must know to judge the results."""
    conclusions: Sequence[str] = ()
    """What the numbers show."""
    currency: str | None = None
    metrics: Sequence[Mapping[str, Json]] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict)
    more: Mapping[str, Json] = field(default_factory=dict)
    """What only this kind of page shows."""
    is_live: bool = False
    """Whether the page asks the server that it comes from for cases that end later."""


def render_page(page: Page) -> str:
    """Return the page as an HTML document."""
    head, tail = _parts()
    summary = "".join(_summary(page))
    live = " data-live" if page.is_live else ""
    code = _code(page.is_live)
    parts = [head.substitute(title=_text(page.title), summary=summary, live=live, **code)]
    index, cases = _Block("index"), _Block("cases")
    index.add(json.dumps(index_of(page))[:-1] + ', "rows": [')
    starts: list[int] = []
    size = 0
    for number, case in enumerate(page.cases):
        index.add(f"{', ' if number else ''}{json.dumps(case.row)}")
        if cases.is_empty:
            starts.append(number)
        cases.add(case.line if cases.is_empty else "\n" + case.line)
        size += len(case.line)
        if size >= CHUNK_CHARACTERS:
            parts.append(cases.end())
            cases, size = _Block("cases"), 0
    if not cases.is_empty:
        parts.append(cases.end())
    index.add(f'], "starts": {json.dumps(starts)}}}')
    return "".join((*parts, index.end(), tail.substitute(code)))


def index_of(page: Page) -> dict[str, Json]:
    """Return what the page is about, without its cases."""
    return {**{name: getattr(page, name) for name in _INDEX}, **page.more}


class _Block:
    """A block of data, which is compressed as it comes."""

    def __init__(self, name: str) -> None:
        self._name = name
        # As gzip, without the time, so that the same results are the same file.
        self._compressor = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS | 16)
        self._data = bytearray()
        self.is_empty = True

    def add(self, text: str) -> None:
        """Add a text."""
        self._data += self._compressor.compress(text.encode("utf-8", "backslashreplace"))
        self.is_empty = False

    def end(self) -> str:
        """Return the block as markup, to which nothing can be added any more."""
        data = b64encode(self._data + self._compressor.flush()).decode()
        return f'<script type="text/plain" data-block="{self._name}">{data}</script>\n'


def json_line(model: BaseModel, **more: Json) -> str:
    """Return a model without its defaults and with further keys, as JSON on a single line."""
    line = model_json(model, exclude_defaults=True)
    return line if not more else f"{line[:-1]}{',' if line != '{}' else ''}{json.dumps(more)[1:]}"


def _summary(page: Page) -> Iterator[str]:
    """Yield what readers without scripts see."""
    yield f"<h1>{_text(page.title)}</h1>"
    yield f"<p><strong>{_text(page.verdict.capitalize())}:</strong> {_text(page.counts)}</p>"
    for note in (*page.notes, *page.conclusions):
        yield f"<p>{'<br>'.join(_text(line, 2_000) for line in note.splitlines())}</p>"
    yield "<dl>"
    for label, value in (*page.figures, *page.facts):
        yield f"<dt>{_text(label)}</dt><dd>{_text(value, 1_000)}</dd>"
    yield "</dl>"
    if page.not_passed:
        listed = "".join(map(_list_item, page.listed[:MAX_LISTED]))
        yield f"<h2>Not passed</h2><ul>{listed}</ul>"
    left = page.not_passed - MAX_LISTED
    if left > 0:
        yield f"<p>{plural(left, 'further case')} did not pass.</p>"
    yield "<p>Everything else on this page needs JavaScript.</p>"


def _list_item(row: Row) -> str:
    name = row.get("name") or row.get("id") or row.get("input") or ""
    name = " › ".join([*(row[key] for key in ("agent", "suite") if key in row), name])
    return (
        f"<li><strong>{_text(name)}</strong> {_text(row.get('outcome', ''))}:"
        f" {_text(row.get('reason', ''), 500)}</li>"
    )


def _text(text: str, limit: int = _MAX_NAME) -> str:
    """Return a text on a single line, without markup."""
    return inert_xml(escape(one_line(text, limit)))


@cache
def _parts() -> tuple[Template, Template]:
    """Return the markup before and after the results."""
    head, _, tail = _read("page.html").partition("<!-- results -->\n")
    return Template(head), Template(tail)


@cache
def _code(is_live: bool) -> dict[str, str]:
    """Return style and scripts, and the policy that permits nothing else.

    A live page may also ask the server that it comes from.
    """
    style = "\n" + _read("page.css")
    script = "\n" + "".join(map(_read, _SCRIPTS))
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src 'sha256-{_hash(script)}'",
            f"style-src 'sha256-{_hash(style)}'",
            *(["connect-src 'self'"] if is_live else []),
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    return {"policy": policy, "style": style, "script": script}


def _read(name: str) -> str:
    return files("holodeck.lib.reports").joinpath("page", name).read_text("utf-8")


def _hash(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()
