"""Which tests run which function: found out once, kept in a file, and mended where tests change."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutations import Mutant, with_marks
from sandbox import Sandbox

MARKS = '''
"""Notes which function a test runs, also in processes that it starts or forks."""
import os

NOW, HITS = {now!r}, {hits!r}
seen = set()
test = ""
is_child = "+"

def begin():
    global test, is_child
    seen.clear()
    test, is_child = _now(), ""

def _now():
    try:
        with open(NOW, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""

def _forked():
    global test, is_child
    seen.clear()
    test, is_child = _now(), "+"

os.register_at_fork(after_in_child=_forked)
test = _now()

def hit(name):
    if name not in seen:
        seen.add(name)
        file = os.open(HITS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, f"{{name}}\\t{{is_child}}\\t{{test}}\\n".encode())
        os.close(file)
'''

PART = 5
"""So many files of tests are run before the map is saved."""
Ask = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass
class Hits:
    """Function → tests that run it; kept from one use to the next."""

    seconds: dict[str, float] = field(default_factory=dict)
    """Test → how long it took; only tests that passed."""
    by_function: dict[str, list[str]] = field(default_factory=dict)
    """`path::function` → tests."""
    apart: list[str] = field(default_factory=list)
    """Tests that run it in another process, which is slow to start."""
    files: dict[str, str] = field(default_factory=dict)
    """File of tests → what it held when it was run."""
    killers: set[tuple[str, str]] = field(default_factory=set)
    """Module and test that saw another of its mutants; of this run only."""

    def __post_init__(self) -> None:
        self._sources: dict[str, str] = {}

    def tests_for(self, mutant: Mutant, sandbox: Sandbox) -> list[str]:
        """The tests that may see a mutant.

        First those that saw another mutant of the module, then those in a file that is named after
        it, then those that run few functions.
        """
        breadth = self._breadth()
        module = Path(mutant.path).stem
        found: set[str] = set()
        for name in self._functions(mutant, sandbox):
            found.update(self.by_function.get(name, ()))
        apart = set(self.apart)

        def order(test: str) -> tuple[bool, bool, bool, int, float, str]:
            is_named_so = module in Path(test.partition("::")[0]).stem
            return (
                (mutant.path, test) not in self.killers, not is_named_so, test in apart,
                breadth.get(test, 0), self.seconds[test], test,
            )  # fmt: skip

        return sorted(found & self.seconds.keys(), key=order)

    def _functions(self, mutant: Mutant, sandbox: Sandbox) -> Iterable[str]:
        """The function of the mutant; outside of functions, those where its names are used.

        Of a function that came after the map was made, nothing is known but its file.
        """
        if mutant.function and not mutant.function.endswith("."):
            name = f"{mutant.path}::{mutant.function}"
            return [name] if name in self.by_function else self._all_in({mutant.path})
        if not self._sources:
            self._sources = {
                path.relative_to(sandbox.src).as_posix(): path.read_text(encoding="utf-8")
                for path in sandbox.src.rglob("*.py")
            }
        wanted = [*mutant.names, *filter(None, mutant.function.split("."))]
        used = re.compile(rf"\b({'|'.join(map(re.escape, wanted))})\b") if wanted else None
        paths = {mutant.path}
        if used is not None:
            paths |= {path for path, text in self._sources.items() if used.search(text)}
        return self._all_in(paths)

    def _all_in(self, paths: set[str]) -> list[str]:
        return [name for name in self.by_function if name.partition("::")[0] in paths]

    def _breadth(self) -> dict[str, int]:
        if not hasattr(self, "_counted"):
            self._counted: dict[str, int] = {}
            for tests in self.by_function.values():
                for one in tests:
                    self._counted[one] = self._counted.get(one, 0) + 1
        return self._counted


def load(path: Path) -> Hits:
    """The map as it was left; an empty one if there is none."""
    if not path.is_file():
        return Hits()
    kept = json.loads(path.read_text(encoding="utf-8"))
    tests = kept.pop("tests")
    by_function = {name: [tests[at] for at in places] for name, places in kept.pop("hits").items()}
    return Hits(by_function=by_function, **kept)


def save(hits: Hits, path: Path) -> None:
    """Tests are written once each and named by their place: most run hundreds of functions."""
    tests = sorted({one for tests in hits.by_function.values() for one in tests})
    places = {test: at for at, test in enumerate(tests)}
    by_function = {name: [places[one] for one in found] for name, found in hits.by_function.items()}
    kept = {"seconds": hits.seconds, "apart": hits.apart, "files": hits.files}
    document = kept | {"tests": tests, "hits": by_function}
    path.write_text(json.dumps(document), encoding="utf-8")


def stale_files(hits: Hits, sandbox: Sandbox, folders: Iterable[str]) -> list[str]:
    """Files of tests that are new or not as they were."""
    found = []
    for folder in folders:
        place = sandbox.tree / folder
        for path in [place] if place.is_file() else sorted(place.rglob("test_*.py")):
            name = path.relative_to(sandbox.tree).as_posix()
            if hits.files.get(name) != _digest(path):
                found.append(name)
    return found


def record(hits: Hits, sandbox: Sandbox, ask: Ask, files: list[str], work: Path) -> Iterator[Hits]:
    """Yield the map after each of its parts, as it can be interrupted.

    The files are run anew, on a package whose functions tell that they are run.
    """
    gone = set(files) | {name for name in hits.files if not (sandbox.tree / name).is_file()}
    hits = _without(hits, gone)
    now, notes = work / "now", work / "hits"
    notes.unlink(missing_ok=True)
    originals = {path: path.read_bytes() for path in sandbox.src.rglob("*.py")}
    marks = sandbox.src / "holodeck" / "_marks.py"
    marks.write_text(MARKS.format(now=str(now), hits=str(notes)), encoding="utf-8")
    try:
        for path, source in originals.items():
            name = path.relative_to(sandbox.src).as_posix()
            marked = with_marks(source.decode(), lambda one, name=name: _mark(name, one))
            sandbox.write(name, marked.encode())
        for at in range(0, len(files), PART):
            part = files[at : at + PART]
            done = ask({"tests": part, "seconds": 3600, "marks": str(now), "all": True})
            for test, outcome, seconds in done["rows"]:
                if outcome == "passed":
                    hits.seconds[test] = seconds
            _read(hits, notes)
            hits.files.update({name: _digest(sandbox.tree / name) for name in part})
            print(f"  {at + len(part)} of {len(files)} files of tests are run", flush=True)
            yield hits
    finally:
        for path, source in originals.items():
            sandbox.write(path.relative_to(sandbox.src).as_posix(), source)
        marks.unlink()


def _mark(path: str, function: str) -> str:
    return f"import holodeck._marks; holodeck._marks.hit({f'{path}::{function}'!r})"


def _read(hits: Hits, notes: Path) -> None:
    by_function = {name: set(tests) for name, tests in hits.by_function.items()}
    apart: set[str] = set(hits.apart)
    for line in notes.read_text(encoding="utf-8").splitlines() if notes.is_file() else ():
        name, _, rest = line.partition("\t")
        is_child, _, test = rest.partition("\t")
        by_function.setdefault(name, set()).add(test)
        if is_child:
            apart.add(test)
    hits.by_function = {name: sorted(tests) for name, tests in by_function.items()}
    hits.apart = sorted(apart)


def _without(hits: Hits, files: set[str]) -> Hits:
    def stays(test: str) -> bool:
        return test.partition("::")[0] not in files

    return Hits(
        {test: one for test, one in hits.seconds.items() if stays(test)},
        {name: list(filter(stays, tests)) for name, tests in hits.by_function.items()},
        list(filter(stays, hits.apart)),
        {name: one for name, one in hits.files.items() if name not in files},
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
