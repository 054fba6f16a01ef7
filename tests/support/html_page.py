"""Reads an HTML page as a browser would, and refuses elements that are not closed."""

from html.parser import HTMLParser
from typing import Any

VOID = frozenset({"meta"})


class HtmlPage(HTMLParser):
    """The elements of a page with their attributes, and its texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, Any]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    @property
    def text(self) -> str:
        return "".join(self.texts)

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
        self.texts.append(data)

    def require_harmless(self) -> None:
        """Assert that it loads nothing, runs nothing and leads nowhere else."""
        tags = {tag for tag, _ in self.elements}
        assert tags.isdisjoint({"script", "img", "link", "iframe", "object", "form", "base"})
        names = {name for _, attributes in self.elements for name in attributes}
        assert not [one for one in names if one.startswith("on") or one in {"src", "style"}]
        assert all(one["href"].startswith("#") for one in self.of("a"))
        [policy] = [one for one in self.of("meta") if "http-equiv" in one]
        assert policy["content"].startswith("default-src 'none'")

    def require_accessible(self) -> None:
        """Assert language, landmarks, headings, scopes, and that every reference is resolved."""
        assert self.of("html") == [{"lang": "en"}]
        assert [tag for tag, _ in self.elements if tag in {"title", "h1", "main"}] == [
            "title", "h1", "main",
        ]  # fmt: skip
        assert any(one.get("name") == "viewport" for one in self.of("meta"))
        assert all("scope" in one for one in self.of("th"))
        ids = [attributes["id"] for _, attributes in self.elements if "id" in attributes]
        assert len(ids) == len(set(ids))
        labels = [one["aria-labelledby"] for _, one in self.elements if "aria-labelledby" in one]
        links = [one["href"].removeprefix("#") for one in self.of("a")]
        assert {*labels, *links} <= set(ids)
