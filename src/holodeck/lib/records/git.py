"""The commit that is checked out, read without git."""

from contextlib import suppress
from pathlib import Path


def commit_of(folder: Path) -> str | None:
    """The commit checked out around `folder`; None outside of git or where it cannot be told."""
    for parent in (folder, *folder.parents):
        marker = parent / ".git"
        if marker.exists():
            with suppress(OSError, ValueError):
                return _head(_git_folder(marker))
            return None
    return None


def _git_folder(marker: Path) -> Path:
    """The folder itself, or the one that the file of a linked working tree points to."""
    if marker.is_dir():
        return marker
    return marker.parent / marker.read_text(encoding="utf-8").removeprefix("gitdir:").strip()


def _head(git: Path) -> str | None:
    head = (git / "HEAD").read_text(encoding="utf-8").strip()
    if not head.startswith("ref:"):
        return head
    name = head.removeprefix("ref:").strip()
    shared = git / "commondir"
    common = git / shared.read_text(encoding="utf-8").strip() if shared.is_file() else git
    for folder in (git, common):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8").strip()
    return _packed(common / "packed-refs", name)


def _packed(file: Path, name: str) -> str | None:
    if not file.is_file():
        return None
    pairs = (line.split(" ", 1) for line in file.read_text(encoding="utf-8").splitlines())
    return next((pair[0] for pair in pairs if len(pair) == 2 and pair[1] == name), None)
