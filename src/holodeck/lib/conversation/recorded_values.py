"""Values of recorded responses as JSON; values that JSON cannot hold as signed pickles."""

from __future__ import annotations

import base64
import hmac
import os
import pickle
import secrets
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from holodeck.errors import ConfigError
from holodeck.lib.conversation.types import EndConversation
from holodeck.lib.exceptions import describe
from holodeck.lib.private_files import make_folder, open_file

_KEY_BYTES = 32
_COLLECTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}


class Signer:
    """Signs pickles with a key that only this user can read, so that only our own are loaded.

    Args:
        path: The file of the key; made when it is first needed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def sign(self, data: bytes) -> str:
        """Return the signature of data. Raises OSError if there can be no key."""
        return hmac.digest(self._key(), data, "sha256").hex()

    def matches(self, data: bytes, signature: str) -> bool:
        """Whether it is a signature of ours."""
        return self._path.exists() and hmac.compare_digest(self.sign(data), signature)

    def _key(self) -> bytes:
        make_folder(self._path.parent)
        draft = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}")
        if not self._path.exists():
            handle = open_file(draft, os.O_WRONLY | os.O_EXCL)
            try:
                os.write(handle, secrets.token_bytes(_KEY_BYTES))
            finally:
                os.close(handle)
            try:
                os.link(draft, self._path)  # unlike a rename, keeps a key made meanwhile
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        stat = self._path.stat()
        if sys.platform != "win32" and (stat.st_uid != os.getuid() or stat.st_mode & 0o077):
            raise PermissionError(f"{self._path} must be a file that only its owner can read")
        return self._path.read_bytes()


def pack(value: Any, function: str, name: str, signer: Signer | None) -> dict[str, Any]:
    """Return a response as JSON. Raises ConfigError if it cannot be recorded.

    Args:
        value: The response.
        function: The function that returned it, for the error.
        name: The name of the recording; the signature of a pickle holds for this one only.
        signer: Signs pickles; None where there must be none, as in a folder that people share.
    """
    if isinstance(value, EndConversation):
        return {"end": {"farewell": value.farewell, "reason": value.reason}}
    if isinstance(value, BaseModel):
        model = f"{type(value).__module__}:{type(value).__qualname__}"
        return {"model": model, "value": value.model_dump(mode="json")}
    if not isinstance(value, list) and _is_json(value):
        return {"value": value}
    if type(value) is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    return _pack_collection(value, function, name, signer)


def _pack_collection(value: Any, function: str, name: str, signer: Signer | None) -> dict[str, Any]:
    kind = "list" if isinstance(value, list) else type(value).__name__
    if kind == "list" or _COLLECTIONS.get(kind) is type(value):
        return {kind: [pack(one, function, name, signer) for one in value]}
    if type(value) is dict:
        items = [[pack(one, function, name, signer) for one in pair] for pair in value.items()]
        return {"items": items}
    return _pack_pickle(value, function, name, signer)


def _pack_pickle(value: Any, function: str, name: str, signer: Signer | None) -> dict[str, Any]:
    returned = f"returns a {type(value).__name__}, which @scenario.cache cannot record"
    if signer is None:
        raise ConfigError(
            function,
            f"{returned} in a folder of your own: only a pickle could hold it, and pickles are"
            " loaded from holodeck's cache folder alone; return a text, a message, a pydantic"
            " model, bytes or collections of these, or leave out cache_dir",
        )
    try:
        data = pickle.dumps(value)
        signature = signer.sign(name.encode() + data)
    except Exception as error:
        raise ConfigError(function, f"{returned}: {describe(error)}") from error
    return {"pickle": base64.b64encode(data).decode(), "signature": signature}


def unpack(packed: dict[str, Any], name: str, signer: Signer | None) -> Any:
    """Return the response.

    Raises ValueError if its class is missing or has changed, or for a pickle that is not ours.
    """
    if "value" in packed and "model" not in packed:
        return packed["value"]
    if "model" in packed:
        return _unpack_model(packed["model"], packed["value"])
    if "end" in packed:
        return EndConversation(**packed["end"])
    if "bytes" in packed:
        return base64.b64decode(packed["bytes"], validate=True)
    if "pickle" in packed:
        return _unpack_pickle(packed, name, signer)
    return _unpack_collection(packed, name, signer)


def _unpack_collection(packed: dict[str, Any], name: str, signer: Signer | None) -> Any:
    if "items" in packed:
        return dict([unpack(one, name, signer) for one in pair] for pair in packed["items"])
    [(kind, values)] = packed.items()
    return _COLLECTIONS[kind]([unpack(one, name, signer) for one in values])


def _unpack_model(name: str, value: Any) -> Any:
    module, _, path = name.partition(":")
    # Only from modules that are imported already: reading a file must not run code.
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        raise ValueError(f"it needs {name}, which is not imported")  # noqa: TRY004 - of a file
    try:
        return found.model_validate(value)
    except ValidationError as error:
        raise ValueError(f"it no longer fits {name}: {error.errors()[0]['msg']}") from error


def _unpack_pickle(packed: dict[str, Any], name: str, signer: Signer | None) -> Any:
    data = base64.b64decode(packed["pickle"], validate=True)
    if signer is None or not signer.matches(name.encode() + data, str(packed["signature"])):
        raise ValueError("it is a pickle that was not written here, by this user for this call")
    try:
        return pickle.loads(data)  # noqa: S301 - one that we signed
    except Exception as error:
        raise ValueError(f"its pickle cannot be restored: {describe(error)}") from error


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and _is_json(one) for key, one in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or type(value) in (str, int, float, bool)
