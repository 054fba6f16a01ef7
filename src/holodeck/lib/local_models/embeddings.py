"""What texts mean, as vectors: a model of embeddings in the process.

Texts of up to 1000 characters give the vectors of the published model; longer ones, of which that
would leave out the end, give the mean over their pieces.
"""

import atexit
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import mul
from pathlib import Path
from typing import ClassVar

from holodeck.errors import BackendSessionError, EvaluationError
from holodeck.lib.local_models.runtime import JsonObject, RuntimeSettings, open_embeddings

Vector = tuple[float, ...]

PIECE = 1000
"""Characters of a text that are understood at once: some 200 tokens of English, of which the
model was made for 256."""
MOST_CHARACTERS = 20_000
"""Longest text: about four seconds on one core."""

_SETTINGS = RuntimeSettings(context=512, batch=512, embeds=True)
_STOP_SECONDS = 10.0
_DIGITS = 6
"""The model computes with seven, so that a text is like itself by 1 and not almost."""
_TOO_LONG = "too large to process"
"""What llama.cpp says of a text with too many tokens; it has no code of its own."""


class EmbeddingModel:
    """One loaded model; any thread may ask it, and each waits for its turn.

    Asking blocks, for milliseconds to seconds: coroutines ask through `in_thread`.
    """

    _loaded: ClassVar[dict[Path, "EmbeddingModel"]] = {}
    _loading: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def load(cls, path: Path) -> "EmbeddingModel":
        """The model of a GGUF file, loaded once per process.

        Raises MissingExtra without llama.cpp, and ModelStoreError for a file that it cannot load.
        """
        key = path.resolve()
        with cls._loading:
            if key not in cls._loaded:
                cls._loaded[key] = cls(key)
            return cls._loaded[key]

    def __init__(self, path: Path) -> None:
        """Use `load`, which shares models."""
        self.path = path
        self._answer: Callable[[JsonObject], JsonObject] | None = open_embeddings(
            path, _SETTINGS, "comparing meanings"
        )
        self._turn = threading.Lock()
        # At exit, because a thread must not be inside llama.cpp when Python goes away.
        atexit.register(self.close)

    def likeness(self, one: str, other: str) -> float:
        """How alike two texts are in meaning, from 0 to 1; a blank one is like no other.

        It is the cosine of their vectors, and 0 where that is negative.
        """
        if not one.strip() or not other.strip():
            return 0.0
        first, second = self.embed((one, other))
        return min(1.0, max(0.0, round(cosine(first, second), _DIGITS)))

    def embed(self, texts: Iterable[str]) -> list[Vector]:
        """The vector of each text, of length 1. Raises EvaluationError for a text too long.

        A long text is understood piece by piece, and its vector is the mean of theirs.
        """
        return [self._vector(text) for text in texts]

    def close(self) -> None:
        """Free the model's memory, once nobody is being answered."""
        atexit.unregister(self.close)
        with self._loading:
            self._loaded.pop(self.path, None)
        if self._turn.acquire(timeout=_STOP_SECONDS):
            self._answer = None
            self._turn.release()

    def _vector(self, text: str) -> Vector:
        if len(text) > MOST_CHARACTERS:
            raise EvaluationError(
                f"a text of {len(text)} characters is too long to compare by meaning;"
                f" {MOST_CHARACTERS} is the most"
            )
        sayable = text.encode(errors="replace").decode()  # half of a pair is no character
        return _mean([one for piece in pieces_of(sayable) for one in self._understood(piece)])

    def _understood(self, piece: str) -> list[tuple[int, Vector]]:
        """Vectors with the lengths of what they stand for: several for what has many tokens."""
        vector = self._ask(piece)
        if vector is not None:
            return [(len(piece), vector)]
        middle = len(piece) // 2
        return [*self._understood(piece[:middle]), *self._understood(piece[middle:])]

    def _ask(self, piece: str) -> Vector | None:
        """The vector of a piece; None if it has more tokens than the model takes."""
        with self._turn:
            if self._answer is None:
                raise BackendSessionError(f"the local model {self.path.name} is closed")
            said = self._answer({"input": [piece]})
        if "error" not in said:
            return tuple(said["data"][0]["embedding"])
        message = said["error"].get("message", said["error"])
        if _TOO_LONG in message and len(piece) > 1:
            return None
        raise BackendSessionError(f"the local model failed: {message}")


def cosine(one: Vector, other: Vector) -> float:
    """The cosine of the angle between two vectors of length 1."""
    return math.fsum(map(mul, one, other))


def pieces_of(text: str, most: int = PIECE) -> Iterator[str]:
    """The text in pieces of at most `most` characters, cut at white space where there is some."""
    while len(text) > most:
        cut = max(text.rfind(space, 1, most) for space in (" ", "\n", "\t"))
        cut = most if cut < 0 else cut
        yield text[:cut]
        text = text[cut:]
    yield text


def _mean(found: Sequence[tuple[int, Vector]]) -> Vector:
    """The mean direction of vectors, each counting as much as the text that it stands for."""
    if len(found) == 1:
        return found[0][1]
    sums = [sum(values) for values in zip(*([n * one for one in v] for n, v in found), strict=True)]
    length = math.hypot(*sums)
    return tuple(one / length for one in sums)
