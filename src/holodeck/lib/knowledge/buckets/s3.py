"""S3 and what speaks like it: listing and reading objects, with signature version 4."""

import configparser
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree as ET

from holodeck.errors import ConfigError
from holodeck.lib.knowledge.buckets.base import ObjectInfo
from holodeck.lib.redact import Redactor
from holodeck.lib.remote_files import MAX_BYTES
from holodeck.lib.text import one_line

if TYPE_CHECKING:
    from httpx2 import Client, Response

_DEFAULT_REGION = "us-east-1"
_EMPTY_HASH = hashlib.sha256(b"").hexdigest()
_NEEDED = (
    "needs credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, for example with"
    " 'aws configure export-credentials --format env'"
)


@dataclass(frozen=True)
class S3Access:
    """Where S3 is, and who asks."""

    key_id: str
    secret: str
    token: str
    region: str
    endpoint: str
    """Of another service than that of AWS; else empty."""


def s3_access(env: Mapping[str, str], source: str) -> S3Access:
    """Return what the variables of AWS and the files of its tools say. Raises ConfigError."""
    profile = env.get("AWS_PROFILE") or "default"
    saved = _profile(env, profile)
    if env.get("AWS_ACCESS_KEY_ID"):
        saved = {
            "aws_access_key_id": env["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": env.get("AWS_SECRET_ACCESS_KEY", ""),
            "aws_session_token": env.get("AWS_SESSION_TOKEN", ""),
            "region": saved.get("region", ""),
        }
    if not saved.get("aws_access_key_id") or not saved.get("aws_secret_access_key"):
        raise ConfigError(source, _NEEDED)
    regions = (env.get("AWS_REGION"), env.get("AWS_DEFAULT_REGION"), saved.get("region"))
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or ""
    return S3Access(
        key_id=saved["aws_access_key_id"],
        secret=saved["aws_secret_access_key"],
        token=saved.get("aws_session_token", ""),
        region=next((one for one in regions if one), _DEFAULT_REGION),
        endpoint=endpoint.rstrip("/"),
    )


def _profile(env: Mapping[str, str], profile: str) -> dict[str, str]:
    """Return what the files of AWS's tools say about a profile."""
    home = Path(env.get("HOME") or Path.home()) / ".aws"
    files = (
        (env.get("AWS_CONFIG_FILE") or home / "config", f"profile {profile}"),
        (env.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials", profile),
    )
    found = dict[str, str]()
    for file, section in files:
        parser = configparser.ConfigParser(interpolation=None, default_section="")
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            raise ConfigError(str(file), "is no configuration of AWS's tools") from error
        for name in (section, profile):
            if parser.has_section(name):
                found |= dict(parser[name])
                break
    return found


def sign(
    method: str, url: str, access: S3Access, now: datetime, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the headers of a request without a body, with its signature.

    Path and query of the URL must be encoded, and the query sorted.
    """
    parts = urlsplit(url)
    time = now.strftime("%Y%m%dT%H%M%SZ")
    headers = {
        "host": parts.netloc,
        "x-amz-content-sha256": _EMPTY_HASH,
        "x-amz-date": time,
        **(extra or {}),
        **({"x-amz-security-token": access.token} if access.token else {}),
    }
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join([method, parts.path or "/", parts.query, lines, names, _EMPTY_HASH])
    scope = f"{time[:8]}/{access.region}/s3/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", time, scope, digest])
    key = f"AWS4{access.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"Credential={access.key_id}/{scope}"
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 {credential},SignedHeaders={names},Signature={signature}"
    )
    return headers


class S3Bucket:
    """A bucket.

    Args:
        name: Its name.
        access: Where it is, and who asks.
        limit_s: Seconds of one request.
    """

    def __init__(self, name: str, access: S3Access, limit_s: float) -> None:
        self._access = access
        self._source = f"s3://{name}"
        self._limit_s = limit_s
        self._redactor = Redactor([access.secret, access.token])
        if access.endpoint:
            self._url = f"{access.endpoint}/{quote(name)}"
        elif "." in name:  # no certificate covers it as a part of the host
            self._url = f"https://s3.{access.region}.amazonaws.com/{quote(name)}"
        else:
            self._url = f"https://{name}.s3.{access.region}.amazonaws.com"
        self._client: Client | None = None

    def listing(self, prefix: str) -> Iterator[ObjectInfo]:
        query = {"list-type": "2", "prefix": prefix}
        while True:
            encoded = "&".join(
                f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
                for name, value in sorted(query.items())
            )
            document = self._document(self._send(f"{self._url}/?{encoded}"))
            for one in document.findall("{*}Contents"):
                yield ObjectInfo(
                    key=one.findtext("{*}Key", ""),
                    size=int(one.findtext("{*}Size", "0")),
                    tag=one.findtext("{*}ETag", ""),
                )
            following = document.findtext("{*}NextContinuationToken")
            if not following:
                return
            query["continuation-token"] = following

    def read(self, key: str) -> bytes:
        return self._send(f"{self._url}/{quote(key, safe='-_.~/')}")

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    def _send(self, url: str) -> bytes:
        import httpx2

        if self._client is None:
            self._client = httpx2.Client(timeout=self._limit_s, follow_redirects=False)
        headers = sign("GET", url, self._access, datetime.now(UTC))
        try:
            with self._client.stream("GET", url, headers=headers) as response:
                data = bytearray()
                for piece in response.iter_bytes():
                    data += piece
                    if len(data) > MAX_BYTES:
                        raise ConfigError(self._source, "an object is larger than it was listed")
                if response.status_code != 200:
                    raise ConfigError(self._source, self._problem(response, bytes(data)))
                return bytes(data)
        except httpx2.TimeoutException as error:
            message = f"no answer within {self._limit_s:g} s (execution.download_timeout)"
            raise ConfigError(self._source, message) from error
        except httpx2.HTTPError as error:
            reason = self._redactor.redact(one_line(str(error), 200))
            raise ConfigError(self._source, f"{urlsplit(url).netloc}: {reason}") from error

    def _document(self, data: bytes) -> ET.Element:
        try:
            return ET.fromstring(data)  # noqa: S314 - expat limits what entities expand to
        except ET.ParseError as error:
            raise ConfigError(self._source, "the listing is no XML document") from error

    def _problem(self, response: "Response", data: bytes) -> str:
        """Return what an error of the service means, and what to change."""
        try:
            document = ET.fromstring(data)  # noqa: S314 - as above
        except ET.ParseError:
            document = ET.Element("Error")
        code = document.findtext("{*}Code") or f"HTTP {response.status_code}"
        message = one_line(document.findtext("{*}Message") or "", 200)
        region = response.headers.get("x-amz-bucket-region") or document.findtext("{*}Region")
        found = f"{code}: {message}" if message else code
        if region and region != self._access.region:
            found += f"; the bucket is in {region}, set AWS_REGION={region}"
        elif code == "NoSuchBucket":
            found += "; check the name of the bucket"
        elif response.status_code in {401, 403}:
            found += "; check the credentials (AWS_ACCESS_KEY_ID) and what they may read"
        return self._redactor.redact(found)
