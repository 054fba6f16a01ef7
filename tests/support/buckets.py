"""Object storage on loopback: servers like S3 and Azure Blob Storage, and Azure's own emulator."""

import hashlib
import hmac
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from support.store_servers import StoreServer, free_port

KEY_ID, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
ACCOUNT, ACCOUNT_KEY = (
    "devstoreaccount1",
    ("Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="),
)
"""What Azurite's documentation says for every installation."""


@dataclass
class S3Server:
    """Buckets of one region; listings have two objects each."""

    objects: dict[str, dict[str, bytes]] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    """Keys that were read."""
    region: str = "eu-central-1"
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def respond(
        self, target: str, headers: dict[str, str], method: str
    ) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(target)
        try:
            self._check(method, parts.path, parts.query, headers)
        except ValueError as error:
            return _error(403, "SignatureDoesNotMatch", str(error))
        scope = re.search(r"Credential=\S+?/\d{8}/([\w-]+)/", headers["authorization"])
        if scope is None or scope[1] != self.region:
            moved = {"x-amz-bucket-region": self.region}
            return _error(400, "AuthorizationHeaderMalformed", "the region is wrong", moved)
        bucket, _, key = unquote(parts.path).removeprefix("/").partition("/")
        if bucket not in self.objects:
            return _error(404, "NoSuchBucket", "The specified bucket does not exist")
        if not key:
            return self._listing(bucket, dict(parse_qsl(parts.query)))
        if key not in self.objects[bucket]:
            return _error(404, "NoSuchKey", "The specified key does not exist.")
        if method == "GET":
            self.reads.append(key)
        data = self.objects[bucket][key]
        return 200, {"etag": f'"{_tag(data)}"'}, data

    def _check(self, method: str, path: str, query: str, headers: dict[str, str]) -> None:
        """Compute the signature as the documentation says. Raises ValueError for another one."""
        match = re.fullmatch(
            rf"AWS4-HMAC-SHA256 Credential={KEY_ID}/(\d{{8}})/([\w-]+)/s3/aws4_request,"
            r" ?SignedHeaders=([\w;-]+), ?Signature=([0-9a-f]{64})",
            headers.get("authorization", ""),
        )
        if match is None:
            raise ValueError("no valid authorization")
        day, region, names, given = match.groups()
        for name in ("host", "x-amz-date", "x-amz-content-sha256"):
            if name not in names.split(";"):
                raise ValueError(f"{name} is not signed")
        pairs = sorted(parse_qsl(query, keep_blank_values=True))
        canonical = "&".join(
            f"{quote(name, safe='-_.~')}={quote(one, safe='-_.~')}" for name, one in pairs
        )
        lines = [f"{name}:{headers[name].strip()}" for name in names.split(";")]
        request = [method, quote(unquote(path), safe="/-_.~"), canonical, *lines, "", names]
        request.append(headers["x-amz-content-sha256"])
        hashed = hashlib.sha256("\n".join(request).encode()).hexdigest()
        scope = f"{day}/{region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{hashed}"
        key = f"AWS4{SECRET}".encode()
        for part in (day, region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        if hmac.digest(key, text.encode(), "sha256").hex() != given:
            raise ValueError("The request signature does not match")

    def _listing(self, bucket: str, query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        if query.get("list-type") != "2":
            return _error(400, "InvalidArgument", "list-type must be 2")
        after = query.get("continuation-token", "")
        encode = quote if query.get("encoding-type") == "url" else escape
        prefix = query.get("prefix", "")
        keys = sorted(one for one in self.objects[bucket] if one.startswith(prefix) and one > after)
        entries = "".join(
            f"<Contents><Key>{encode(key)}</Key><Size>{len(data)}</Size>"
            f"<ETag>&quot;{_tag(data)}&quot;</ETag></Contents>"
            for key in keys[:2]
            if (data := self.objects[bucket][key]) is not None
        )
        token = escape(keys[1]) if len(keys) > 2 else ""
        more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
        more += f"<EncodingType>{query.get('encoding-type', '')}</EncodingType>"
        more += f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>"
        space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
        return 200, {}, f"<ListBucketResult {space}>{entries}{more}</ListBucketResult>".encode()


def _error(
    status: int, code: str, message: str, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    document = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return status, headers or {}, document.encode()


@dataclass
class AzureServer:
    """Containers of one account, in lists of two blobs each; it checks who asks, not signatures."""

    objects: dict[str, dict[str, bytes]] = field(default_factory=dict)
    port: int = 0

    @property
    def connection_string(self) -> str:
        return connection_string(self.port)

    def respond(
        self, target: str, headers: dict[str, str], method: str
    ) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(target)
        _, account, container, *rest = unquote(parts.path).split("/", 3)
        if not headers.get("authorization", "").startswith(f"SharedKey {account}:"):
            return _azure_error(403, "AuthenticationFailed")
        if "x-ms-version" not in headers:
            return _azure_error(400, "MissingRequiredHeader")
        if container not in self.objects:
            return _azure_error(404, "ContainerNotFound")
        if not rest:
            return self._listing(container, dict(parse_qsl(parts.query)))
        if rest[0] not in self.objects[container]:
            return _azure_error(404, "BlobNotFound")
        return self._blob(self.objects[container][rest[0]], headers.get("x-ms-range", ""))

    def _blob(self, data: bytes, asked: str) -> tuple[int, dict[str, str], bytes]:
        day = "Mon, 02 Nov 2026 10:00:00 GMT"
        found = {"etag": f'"{_tag(data)}"', "x-ms-blob-type": "BlockBlob", "last-modified": day}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", asked)
        if wanted is None:
            return 200, found, data
        if not data:
            return _azure_error(416, "InvalidRange")
        piece = data[int(wanted[1]) : int(wanted[2]) + 1]
        shown = f"bytes {wanted[1]}-{int(wanted[1]) + len(piece) - 1}/{len(data)}"
        return 206, {**found, "content-range": shown}, piece

    def _listing(self, container: str, query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        if query == {"restype": "container"}:
            return 200, {"etag": '"1"', "last-modified": "Mon, 02 Nov 2026 10:00:00 GMT"}, b""
        if (query.get("restype"), query.get("comp")) != ("container", "list"):
            return _azure_error(400, "InvalidQueryParameterValue")
        prefix, after = query.get("prefix", ""), query.get("marker", "")
        found = sorted(one for one in self.objects[container] if one.startswith(prefix))
        found = [one for one in found if one > after]
        blobs = "".join(
            f"<Blob><Name>{escape(name)}</Name><Properties><Etag>{_tag(data)}</Etag>"
            f"<Content-Length>{len(data)}</Content-Length><BlobType>BlockBlob</BlobType>"
            "</Properties></Blob>"
            for name in found[:2]
            if (data := self.objects[container][name]) is not None
        )
        marker = escape(found[1]) if len(found) > 2 else ""
        document = (
            f'<EnumerationResults ContainerName="{container}">'
            f"<Prefix>{escape(prefix)}</Prefix><Blobs>{blobs}</Blobs><NextMarker>{marker}</NextMarker>"
            "</EnumerationResults>"
        )
        return 200, {"content-type": "application/xml"}, document.encode()


def _azure_error(status: int, code: str) -> tuple[int, dict[str, str], bytes]:
    document = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
    headers = {"x-ms-error-code": code, "content-type": "application/xml"}
    return status, headers, document.encode()


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def connection_string(port: int) -> str:
    return (
        f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};"
        f"BlobEndpoint=http://127.0.0.1:{port}/{ACCOUNT};"
    )


@contextmanager
def serving(bucket: S3Server | AzureServer) -> Iterator[None]:
    """Serve a bucket from a thread until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, replied, body = bucket.respond(self.path, headers, self.command)
            self.send_response(status)
            for name, value in replied.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    bucket.port = server.server_port
    serve = {"poll_interval": 0.02}
    threading.Thread(target=server.serve_forever, kwargs=serve, daemon=True).start()
    yield
    server.shutdown()
    server.server_close()


@contextmanager
def azurite() -> Iterator[str]:
    """Azure's own emulator, of a package of npm; yields its connection string."""
    program = shutil.which("azurite-blob") or pytest.skip("azurite-blob is not installed (npm)")
    with tempfile.TemporaryDirectory(prefix="holodeck-azurite-") as folder:
        port = free_port()
        options = ["--location", folder, "--blobPort", str(port), "--skipApiVersionCheck"]
        server = StoreServer([program, *options, "--silent"], port)
        yield connection_string(port)
        server.end()
