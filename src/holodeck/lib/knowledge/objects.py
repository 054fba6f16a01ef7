"""Documents in object storage: `s3://bucket/folder/` and `az://container/folder/`.

Objects are downloaded to the cache folder under names of their own, so that a key cannot lead
outside of it, and again only if their tag has changed.
"""

import glob
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.files.remote_files import MAX_BYTES
from holodeck.lib.knowledge.documents import MOST_FILES, digest_of
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.files import make_folder, replace_file
from holodeck.lib.support.text import describe, one_line
from holodeck.models.tools.knowledge import S3_ENDPOINTS

EXTRAS = {"s3": "s3", "az": "azure-blob"}
_AZURE = "AZURE_STORAGE_CONNECTION_STRING"
_CREDENTIALS = {
    "s3": "AWS_REGION, and AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "az": _AZURE,
}
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", _AZURE)


@dataclass(frozen=True)
class ObjectInfo:
    """An object as a listing shows it."""

    key: str
    size: int
    tag: str
    """Another one for another content."""


class Bucket:
    """A bucket of S3, or a container of Azure Blob Storage.

    Args:
        scheme: `s3` or `az`.
        name: Its name.
        env: The variables with the credentials.
        limit_s: Seconds of one request.

    Raises:
        ConfigError: The library is missing, or there are no credentials.
    """

    def __init__(self, scheme: str, name: str, env: Mapping[str, str], limit_s: float) -> None:
        self._source = f"{scheme}://{name}"
        self._name = name
        self._credentials = _CREDENTIALS[scheme]
        key = dict(part.partition("=")[::2] for part in env.get(_AZURE, "").split(";"))
        secrets = [key.get("AccountKey"), *(env.get(variable) for variable in _SECRETS)]
        self._redactor = Redactor(secret for secret in secrets if secret)
        open_files = _open_s3 if scheme == "s3" else _open_azure
        with self._errors():
            try:
                self._files = open_files(env, limit_s)
            except ImportError as error:
                raise MissingExtra(EXTRAS[scheme], self._source) from error

    def listing(self, key: str, *, is_folder: bool) -> list[ObjectInfo]:
        """Return the objects whose keys begin with that of a folder, or one. Raises ConfigError."""
        path = f"{self._name}/{key}"
        with self._errors():
            if is_folder:
                found = self._files.find(path, detail=True)
            else:
                found = {path: self._files.info(path)}
        return [
            ObjectInfo(
                key=path.removeprefix(f"{self._name}/"),
                size=info["size"],
                tag=str(info.get("ETag") or info.get("etag") or digest_of([str(info)])),
            )
            for path, info in found.items()
        ]

    def read(self, key: str) -> bytes:
        """Return an object. Raises ConfigError."""
        with self._errors():
            data = bytes(self._files.cat_file(f"{self._name}/{key}"))
        if len(data) > MAX_BYTES:
            raise ConfigError(self._source, f"{key} is larger than it was listed")
        return data

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the libraries' errors into one for people."""
        try:
            yield
        except ConfigError:
            raise
        except FileNotFoundError as error:
            message = f"not found ({self._shown(error)}); check the names of bucket and folder"
            raise ConfigError(self._source, message) from error
        except Exception as error:
            message = f"cannot be read ({self._shown(error)}); check {self._credentials}"
            raise ConfigError(self._source, message) from error

    def _shown(self, error: Exception) -> str:
        return one_line(self._redactor.redact(describe(error.__cause__ or error)), 300)


def _open_s3(env: Mapping[str, str], limit_s: float) -> Any:
    """Return the files of s3fs, which asks AWS's own tools for what is not in the variables."""
    from s3fs import S3FileSystem

    endpoint = next((env[name] for name in S3_ENDPOINTS if env.get(name)), None)
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or None
    limits = {"connect_timeout": limit_s, "read_timeout": limit_s, "retries": {"max_attempts": 2}}
    return S3FileSystem(
        key=env.get("AWS_ACCESS_KEY_ID") or None,
        secret=env.get("AWS_SECRET_ACCESS_KEY") or None,
        token=env.get("AWS_SESSION_TOKEN") or None,
        profile=env.get("AWS_PROFILE") or None,
        endpoint_url=endpoint,
        client_kwargs={"region_name": region},
        # not every service has a host for each bucket
        config_kwargs={**limits, **({"s3": {"addressing_style": "path"}} if endpoint else {})},
        skip_instance_cache=True,
    )


def _open_azure(env: Mapping[str, str], limit_s: float) -> Any:
    """Return the files of adlfs, with a client that gives up in time."""
    from adlfs import AzureBlobFileSystem
    from azure.storage.blob.aio import BlobServiceClient, LinearRetry

    if not env.get(_AZURE):
        raise ConfigError(_AZURE, "is not set; az:// needs the connection string of the account")
    files = AzureBlobFileSystem(connection_string=env[_AZURE], skip_instance_cache=True)
    files.service_client = BlobServiceClient.from_connection_string(
        env[_AZURE],
        retry_policy=LinearRetry(backoff=1, retry_total=2, random_jitter_range=0),
        connection_timeout=limit_s,
        read_timeout=limit_s,
    )
    return files


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
