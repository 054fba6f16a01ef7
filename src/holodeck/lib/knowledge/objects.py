"""Documents in object storage: `s3://bucket/folder/` and `az://container/folder/`.

Objects are downloaded to the cache folder under names of their own, so that a key cannot lead
outside of it, and again only if their tag has changed.
"""

import glob
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from holodeck.errors import ConfigError
from holodeck.lib.files.remote_files import MAX_BYTES
from holodeck.lib.knowledge.documents import MOST_FILES, digest_of
from holodeck.lib.support.private_files import make_folder, replace_file

if TYPE_CHECKING:
    from holodeck.lib.knowledge.buckets import Bucket, ObjectInfo

SCHEMES = ("s3", "az")
MOST_BYTES = 500_000_000
"""Size of all objects of a source."""


@dataclass(frozen=True)
class ObjectSource:
    """What a source in object storage names."""

    scheme: str
    bucket: str
    key: str
    """The key of an object, or what the keys of a folder begin with, up to a slash."""
    is_folder: bool


@dataclass(frozen=True)
class StoredObject:
    """An object that is on this machine."""

    url: str
    file: Path


def is_object_source(source: str) -> bool:
    """Whether a source is in object storage."""
    return source.partition("://")[0].lower() in SCHEMES and "://" in source


def object_source(source: str, suffixes: tuple[str, ...]) -> ObjectSource:
    """Return what a source names. Raises ConfigError."""
    scheme, _, rest = source.partition("://")
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise ConfigError(source, f"has no bucket; write {scheme}://BUCKET/FOLDER/")
    if glob.has_magic(rest):
        raise ConfigError(source, "patterns work for paths only; name the folder, or one file")
    is_folder = PurePosixPath(key).suffix.lower() not in suffixes or key.endswith("/")
    if is_folder and key:
        key = f"{key.rstrip('/')}/"
    return ObjectSource(scheme.lower(), bucket, key, is_folder)


def fetch_objects(
    source: str,
    suffixes: tuple[str, ...],
    folder: Path,
    env: Mapping[str, str],
    limit_s: float,
) -> list[StoredObject]:
    """Return the objects of a source, downloaded to the folder; files of others are removed.

    Args:
        source: The source.
        suffixes: How the keys of its files end.
        folder: The folder, of this source only.
        env: The variables with the credentials.
        limit_s: Seconds of one request.

    Raises:
        ConfigError: The source has no files, or cannot be read.
    """
    wanted = object_source(source, suffixes)
    # Imported here because few sources are in object storage.
    from holodeck.lib.knowledge.buckets import Bucket  # noqa: PLC0415

    return _fetch(
        source, wanted, suffixes, Bucket(wanted.scheme, wanted.bucket, env, limit_s), folder
    )


def _fetch(
    source: str,
    wanted: ObjectSource,
    suffixes: tuple[str, ...],
    bucket: "Bucket",
    folder: Path,
) -> list[StoredObject]:
    found = list["ObjectInfo"]()
    for one in bucket.listing(wanted.key, is_folder=wanted.is_folder):
        if not _is_wanted(one.key, wanted, suffixes):
            continue
        found.append(one)
        if len(found) > MOST_FILES:
            raise ConfigError(source, f"has more than {MOST_FILES:,} files; name a smaller folder")
    _check_sizes(source, found)
    if not found:
        raise ConfigError(source, f"has no file that ends with {', '.join(suffixes)}")
    make_folder(folder)
    stored = [
        StoredObject(f"{wanted.scheme}://{wanted.bucket}/{one.key}", folder / _name(one))
        for one in sorted(found, key=lambda one: one.key)
    ]
    _remove_others(folder, {one.file.name for one in stored})
    for one in found:
        file = folder / _name(one)
        if not file.exists():
            replace_file(file, [bucket.read(one.key)])
    return stored


def _is_wanted(key: str, wanted: ObjectSource, suffixes: tuple[str, ...]) -> bool:
    if not wanted.is_folder:
        return key == wanted.key
    if not key.startswith(wanted.key):
        return False
    inner = PurePosixPath(key.removeprefix(wanted.key))
    is_hidden = any(part.startswith(".") for part in inner.parts)
    return inner.suffix.lower() in suffixes and not is_hidden and not key.endswith("/")


def _check_sizes(source: str, found: "list[ObjectInfo]") -> None:
    for one in found:
        if one.size > MAX_BYTES:
            raise ConfigError(
                source,
                f"{one.key} is {one.size / 1e6:,.1f} MB large; at most {MAX_BYTES / 1e6:,.0f} MB"
                " are read",
            )
    total = sum(one.size for one in found)
    if total > MOST_BYTES:
        raise ConfigError(
            source,
            f"its files have {total / 1e6:,.0f} MB; at most {MOST_BYTES / 1e6:,.0f} MB are"
            " downloaded; name a smaller folder",
        )


def _name(one: "ObjectInfo") -> str:
    return f"{digest_of([one.key, one.tag, one.size])}{PurePosixPath(one.key).suffix.lower()}"


def _remove_others(folder: Path, names: set[str]) -> None:
    for file in folder.iterdir():
        if file.name not in names:
            with suppress(FileNotFoundError):  # another run may do the same
                file.unlink()
