"""The cache of downloaded files: one per URL, used if the server confirms that it is current."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from holodeck.lib.llm.http_parser import Response
from holodeck.lib.support.private_files import replace_file

CONDITIONS = frozenset({"If-None-Match", "If-Modified-Since"})
"""Headers by which a server answers only if the file has changed."""


@dataclass(frozen=True)
class _Facts:
    """What is known about a file besides its content; the first line of its cache file."""

    url: str
    """Where the file was found, after redirects."""
    media_type: str | None
    etag: str | None
    last_modified: str | None
    sha256: str


@dataclass(frozen=True)
class Entry:
    """A downloaded file with its validators."""

    url: str
    data: bytes
    media_type: str | None
    etag: str | None
    last_modified: str | None
    may_be_stored: bool = True

    @property
    def can_be_confirmed(self) -> bool:
        """Whether the server can say that the file has not changed."""
        return self.etag is not None or self.last_modified is not None

    def conditions(self) -> dict[str, str]:
        """Return the headers of a request for the file, if it has changed."""
        pairs = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in pairs.items() if value is not None}


def entry_of(url: str, response: Response) -> Entry:
    """Return the entry for a response that holds the file."""
    headers = response.headers
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return Entry(
        url,
        response.body,
        media_type or None,
        headers.get("etag"),
        headers.get("last-modified"),
        may_be_stored="no-store" not in headers.get("cache-control", "").lower(),
    )


class DownloadCache:
    """Downloaded files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path_of(self, url: str) -> Path:
        """Return the cache file of a URL."""
        return self._folder / f"{hashlib.sha256(url.encode()).hexdigest()}.download"

    def read(self, url: str) -> Entry | None:
        """Return what is cached for a URL; None if nothing is, or if it is damaged."""
        try:
            head, _, data = self.path_of(url).read_bytes().partition(b"\n")
            facts = _Facts(**json.loads(head))
        except (OSError, TypeError, ValueError):
            return None
        if facts.sha256 != hashlib.sha256(data).hexdigest():
            return None
        return Entry(facts.url, data, facts.media_type, facts.etag, facts.last_modified)

    def write(self, url: str, entry: Entry) -> Path | None:
        """Store a file atomically, and return its path; None if it is not to be stored.

        A file that no later request could confirm is not stored, nor where that is impossible,
        such as on a full disk: the run has the file anyway.
        """
        path = self.path_of(url)
        if not (entry.may_be_stored and entry.can_be_confirmed):
            path.unlink(missing_ok=True)
            return None
        digest = hashlib.sha256(entry.data).hexdigest()
        facts = _Facts(entry.url, entry.media_type, entry.etag, entry.last_modified, digest)
        try:
            replace_file(path, [json.dumps(asdict(facts)).encode(), b"\n", entry.data])
        except OSError:
            return None
        return path
