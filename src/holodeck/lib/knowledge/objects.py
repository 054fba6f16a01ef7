"""Documents in object storage: `s3://bucket/folder/` and `az://container/folder/`.

Objects are downloaded to the cache folder under names of their own, so that a key cannot lead
outside of it, and again only if their tag has changed.
"""

import glob
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
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
MOST_BYTES = 500_000_000
"""Size of all objects of a source."""
_AZURE = "AZURE_STORAGE_CONNECTION_STRING"
_CREDENTIALS = {
    "s3": "AWS_REGION, and AWS_ACCESS_KEY_ID with AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "az": _AZURE,
}
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", _AZURE)


@dataclass(frozen=True)
class ObjectSource:
    """What a source in object storage names."""

    scheme: str
    bucket: str
    key: str
    """The key of an object, or what the keys of a folder begin with, up to a slash."""
    is_folder: bool

    @property
    def bucket_url(self) -> str:
        return f"{self.scheme}://{self.bucket}"

    def contains(self, path: str, suffixes: tuple[str, ...]) -> bool:
        """Whether the path of an object, after the bucket's name, is a file of the source."""
        if not self.is_folder:
            return path == f"{self.bucket}/{self.key}"
        folder = f"{self.bucket}/{self.key}"
        inner = PurePosixPath(path.removeprefix(folder))
        is_hidden = any(part.startswith(".") for part in inner.parts)
        is_file = inner.suffix.lower() in suffixes and not path.endswith("/")
        return path.startswith(folder) and is_file and not is_hidden


@dataclass(frozen=True)
class StoredObject:
    """An object that is on this machine."""

    url: str
    file: Path


def is_object_source(source: str) -> bool:
    """Whether a source is in object storage."""
    scheme, separator, _ = source.partition("://")
    return bool(separator) and scheme.lower() in EXTRAS


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
        limit_s: Seconds of a request.

    Raises:
        ConfigError: The source has no files, or cannot be read.
    """
    place = object_source(source, suffixes)
    storage_errors = partial(_storage_errors, place, env)
    with storage_errors():
        storage = (_open_s3 if place.scheme == "s3" else _open_azure)(env, limit_s)
        path = f"{place.bucket}/{place.key}"
        found = storage.find(path, detail=True) if place.is_folder else {path: storage.info(path)}
    objects = {path: found[path] for path in sorted(found) if place.contains(path, suffixes)}
    if not objects:
        raise ConfigError(source, f"has no file that ends with {', '.join(suffixes)}")
    _check_sizes(source, objects)
    make_folder(folder)
    files = {path: folder / _name(path, info) for path, info in objects.items()}
    for file in set(folder.iterdir()).difference(files.values()):
        with suppress(FileNotFoundError):  # another run may do the same
            file.unlink()
    for path, file in files.items():
        if file.exists():
            continue
        with storage_errors():
            data = bytes(storage.cat_file(path))
        if len(data) > MAX_BYTES:
            raise ConfigError(place.bucket_url, f"{path} is larger than it was listed")
        replace_file(file, [data])
    return [StoredObject(f"{place.scheme}://{path}", file) for path, file in files.items()]


@contextmanager
def _storage_errors(place: ObjectSource, env: Mapping[str, str]) -> Iterator[None]:
    """Turn the errors of the storage's library into one for people, without secrets."""
    values = dict(part.partition("=")[::2] for part in env.get(_AZURE, "").split(";"))
    secrets = [values.get("AccountKey"), *(env.get(variable) for variable in _SECRETS)]
    try:
        yield
    except ConfigError:
        raise
    except ImportError as error:
        raise MissingExtra(EXTRAS[place.scheme], place.bucket_url) from error
    except Exception as error:
        redactor = Redactor(secret for secret in secrets if secret)
        reason = one_line(redactor.redact(describe(error.__cause__ or error)), 300)
        message = f"cannot be read ({reason}); check {_CREDENTIALS[place.scheme]}"
        if isinstance(error, FileNotFoundError):
            message = f"not found ({reason}); check the names of bucket and folder"
        raise ConfigError(place.bucket_url, message) from error


def _check_sizes(source: str, objects: Mapping[str, Mapping[str, Any]]) -> None:
    if len(objects) > MOST_FILES:
        raise ConfigError(source, f"has more than {MOST_FILES:,} files; name a smaller folder")
    largest = max(objects, key=lambda path: objects[path]["size"])
    if objects[largest]["size"] > MAX_BYTES:
        raise ConfigError(
            source,
            f"{largest} is {objects[largest]['size'] / 1e6:,.1f} MB large; at most"
            f" {MAX_BYTES / 1e6:,.0f} MB are read",
        )
    total = sum(info["size"] for info in objects.values())
    if total > MOST_BYTES:
        raise ConfigError(
            source,
            f"its files have {total / 1e6:,.0f} MB; at most {MOST_BYTES / 1e6:,.0f} MB are"
            " downloaded; name a smaller folder",
        )


def _name(path: str, info: Mapping[str, Any]) -> str:
    """Return the name of the file for an object: another one for another content."""
    tag = str(info.get("ETag") or info.get("etag") or digest_of([str(info)]))
    return f"{digest_of([path, tag, info['size']])}{PurePosixPath(path).suffix.lower()}"


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
