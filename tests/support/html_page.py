"""Reads the page of a report: what its policy permits, what it says, and its results."""

import base64
import gzip
import hashlib
import json
import re
from functools import cached_property
from html.parser import HTMLParser
from typing import Any

VOID = frozenset({"meta", "input"})
BASE64 = re.compile(r"[A-Za-z0-9+/=]+")


class HtmlPage(HTMLParser):
    """The elements of a page with their attributes, and its texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, Any]]] = []
        self.contents: list[tuple[str, dict[str, Any], str]] = []
        """Of scripts and styles: tag, attributes, content."""
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    @property
    def text(self) -> str:
        """What readers without scripts see."""
        return "".join(self.texts)

    @property
    def scripts(self) -> list[str]:
        """The scripts that run."""
        return [text for tag, at, text in self.contents if tag == "script" and "type" not in at]

    @property
    def style(self) -> str:
        [style] = [text for tag, _, text in self.contents if tag == "style"]
        return style

    def _blocks(self, name: str) -> list[str]:
        found = [text for _, at, text in self.contents if at.get("data-block") == name]
        assert all(map(BASE64.fullmatch, found))
        return [gzip.decompress(base64.b64decode(one)).decode() for one in found]

    @cached_property
    def index(self) -> dict[str, Any]:
        """What the page is about, and a row for each case."""
        [found] = self._blocks("index")
        return dict(json.loads(found))

    @cached_property
    def cases(self) -> list[dict[str, Any]]:
        """Everything about each case."""
        return [json.loads(line) for one in self._blocks("cases") for line in one.split("\n")]

    def of(self, tag: str) -> list[dict[str, Any]]:
        """The attributes of every element with a tag."""
        return [attributes for name, attributes in self.elements if name == tag]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in {"script", "style"}:
            self.contents.append((*self.elements[-1], data))
        else:
            self.texts.append(data)

    def require_harmless(self) -> None:
        """Assert that it loads nothing, runs only its own script, and leads nowhere else."""
        tags = {tag for tag, _ in self.elements}
        assert tags.isdisjoint({"img", "link", "iframe", "object", "base"})
        names = {name for _, attributes in self.elements for name in attributes}
        assert not [one for one in names if one.startswith("on") or one in {"src", "style"}]
        assert all(one["href"].startswith("#") for one in self.of("a"))
        [policy] = [one["content"] for one in self.of("meta") if "http-equiv" in one]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        [script] = self.scripts
        for kind, text in (("script", script), ("style", self.style)):
            assert f"{kind}-src 'sha256-{sha256(text)}';" in policy
        assert "url(" not in self.style
        assert "@import" not in self.style


def sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
