"""Azure Blob Storage: listing and reading blobs, the adapter for azure-storage-blob."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.knowledge.buckets.base import ObjectInfo
from holodeck.lib.redact import Redactor
from holodeck.lib.remote_files import MAX_BYTES
from holodeck.lib.text import one_line

VARIABLE = "AZURE_STORAGE_CONNECTION_STRING"


class AzureContainer:
    """A container.

    Args:
        name: Its name.
        env: The variables, one of which has the address and the key of the account.
        limit_s: Seconds of one request.

    Raises:
        ConfigError: There is no connection string, or it is wrong.
    """

    def __init__(self, name: str, env: Mapping[str, str], limit_s: float) -> None:
        try:
            from azure.storage.blob import ContainerClient, LinearRetry
        except ImportError as error:
            raise MissingExtra("azure-blob", f"az://{name}") from error

        self._source = f"az://{name}"
        self._limit_s = limit_s
        connection = env.get(VARIABLE, "")
        if not connection:
            raise ConfigError(
                self._source, f"needs credentials; set {VARIABLE} to that of the storage account"
            )
        values = dict(part.partition("=")[::2] for part in connection.split(";"))
        secrets = (values.get("AccountKey"), values.get("SharedAccessSignature"), connection)
        self._redactor = Redactor(one for one in secrets if one)
        try:
            self._client: Any = ContainerClient.from_connection_string(
                connection,
                name,
                retry_policy=LinearRetry(backoff=1, retry_total=2, random_jitter_range=0),
                connection_timeout=limit_s,
                read_timeout=limit_s,
            )
        except ValueError as error:
            raise ConfigError(self._source, f"{VARIABLE} is no connection string") from error

    def listing(self, prefix: str) -> Iterator[ObjectInfo]:
        with self._errors():
            for one in self._client.list_blobs(name_starts_with=prefix):
                yield ObjectInfo(one.name, one.size, one.etag)

    def read(self, key: str) -> bytes:
        with self._errors():
            blob = self._client.download_blob(key)
            if blob.size > MAX_BYTES:
                raise ConfigError(self._source, f"{key} is larger than it was listed")
            return bytes(blob.readall())

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the library's errors into one for people."""
        from azure.core.exceptions import AzureError, HttpResponseError

        try:
            yield
        except HttpResponseError as error:
            code = getattr(error, "error_code", None) or f"HTTP {error.status_code}"
            hint = f"; check {VARIABLE}" if error.status_code in {401, 403} else ""
            if error.status_code == 404:
                hint = "; check the name of the container"
            raise ConfigError(self._source, f"{getattr(code, 'value', code)}{hint}") from error
        except AzureError as error:
            reason = self._redactor.redact(one_line(str(error), 200))
            message = f"cannot be reached ({reason}); check {VARIABLE}"
            raise ConfigError(self._source, message) from error
