"""Runs the originals' own tests on holodeck: `python tests/compat/run.py`.

The source distributions come from the package index of this environment, or from a folder of
yours (`--sdists`), and are kept nowhere. Only import lines are changed. Each file runs in a process
of its own. What comes out is compared with `expected.json`, which says why something differs, and
which `scripts/docs` puts into the guides. `--update` writes the counts; a reason that is missing
begins with `unexplained`.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from agenticassure_readme import tests_of

EXPECTED = Path(__file__).with_name("expected.json")
TIME_LIMIT_S = 120
"""Seconds for one file."""
UNEXPLAINED = "unexplained"


@dataclass(frozen=True)
class Original:
    """A package whose tests run on holodeck."""

    name: str
    version: str
    module: str
    """What its tests import."""
    ours: str
    """What they import instead."""
    tests: str = "tests"
    """The folder of the tests in its source distribution."""
    readme_tests: Callable[[str, Callable[[str], str]], str] | None = None
    """Makes a further test file of the examples in its README."""

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}"


ORIGINALS = [
    Original("langwatch-scenario", "1.6.0", "scenario", "holodeck.scenario"),
    Original("agenticassure", "0.4.0", "agenticassure", "holodeck.suite", readme_tests=tests_of),
]


def fetch(original: Original, folder: Path, sdists: Path | None) -> Path:
    """Return the unpacked source distribution. Raises LookupError if there is none to be had."""
    if sdists is None:
        sdists = folder
        problem = download(original, folder, "--no-binary")
        # pip unpacks a distribution to read its metadata; where it refuses a file that would lie
        # outside of the folder, the others are there, and --no-clean keeps them
        unpacked = next(folder.glob(f"pip-download-*/{original.name}_*/{original.tests}"), None)
        if problem is not None and unpacked is not None:
            return unpacked.parent
        if problem is not None:
            raise LookupError(problem)
    pattern = f"{original.name.replace('-', '[-_]')}-{original.version}.tar.gz"
    found = next(iter(sdists.glob(pattern)), None)
    if found is None:
        raise LookupError(f"there is no {pattern} in {sdists}")
    with tarfile.open(found) as archive:
        for member in archive.getmembers():
            with suppress(tarfile.FilterError):  # a file that would lie outside of the folder
                archive.extract(member, folder, filter="data")
        return folder / archive.getnames()[0].partition("/")[0]


def download(original: Original, folder: Path, kind: str) -> str | None:
    """Download a distribution with pip; return why that failed."""
    wanted = f"{original.name}=={original.version}"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-clean", kind, ":all:"]
    done = subprocess.run(
        [*command, "--quiet", "--dest", str(folder), wanted],
        env={**os.environ, "TMPDIR": str(folder)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return f"{wanted} cannot be fetched: {done.stderr.strip()[-300:]}" if done.returncode else None


def read_readme(original: Original, root: Path, folder: Path) -> str:
    """Return the README, which the metadata of a package repeats. Raises LookupError."""
    metadata = root / "PKG-INFO"
    if metadata.is_file():
        return metadata.read_text(encoding="utf-8")
    problem = download(original, folder, "--only-binary")
    if problem is not None:
        raise LookupError(problem)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        name = next(one for one in wheel.namelist() if one.endswith(".dist-info/METADATA"))
        return wheel.read(name).decode()


def rewrite(text: str, original: Original) -> str:
    """Return a test file with other imports, and other modules in what it patches."""
    module, ours = re.escape(original.module), original.ours
    parent, _, name = ours.rpartition(".")
    whole = rf"\1from {parent} import {name} as {module}"
    text = re.sub(rf"(?m)^(\s*)import {module}$", whole, text)
    text = re.sub(rf"(?m)^(\s*(?:from|import)) {module}(?=[. ])", rf"\1 {ours}", text)
    return re.sub(rf"((?:patch|setattr|import_module)\(\s*[\"']){module}(?=\.)", rf"\1{ours}", text)


def private_import(text: str, original: Original) -> str | None:
    """Return a module beginning with `_` that a file imports at its top; None without one."""
    for node in ast.parse(text).body:
        names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{one.name}" for one in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == original.module and any(one.startswith("_") for one in parts):
                return name
    return None


def run_file(path: Path, original: Original, folder: Path) -> dict[str, Any]:
    """Return what came of a file: how many tests `passed`, which `differ`, or why it `broke`."""
    text = path.read_text(encoding="utf-8")
    private = private_import(text, original)
    if private is not None:
        return {"broke": f"it imports {private}"}
    copy, report = folder / path.name, folder / f"{path.stem}.xml"
    copy.write_text(rewrite(text, original), encoding="utf-8")
    env = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    env |= {"HOLODECK_CACHE_DIR": str(folder / "cache"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugins = ("asyncio", "pytest_rerunfailures", "holodeck.pytest_plugin")
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider"]
    command += [part for one in plugins for part in ("-p", one)]
    command += [f"--junitxml={report}", f"--rootdir={folder}", "-c", os.devnull, str(copy)]
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, check=False,
            timeout=TIME_LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"broke": f"it took more than {TIME_LIMIT_S} s"}
    if not report.exists():
        return {"broke": (done.stdout + done.stderr).strip()[-300:]}
    return read_report(report)


def read_report(report: Path) -> dict[str, Any]:
    """Return the outcome of a file from pytest's report."""
    result: dict[str, Any] = {"passed": 0, "skipped": 0, "differs": {}}
    for case in ET.parse(report).iter("testcase"):
        problem = next((one for one in case if one.tag in {"failure", "error"}), None)
        group = case.get("classname", "").rpartition(".")[2]
        name = f"{group}::{case.get('name')}" if group[:1].isupper() else str(case.get("name"))
        if problem is None:
            result["skipped" if case.find("skipped") is not None else "passed"] += 1
        elif not case.get("classname"):  # the file could not be collected
            return {"broke": _last_line(problem)}
        else:
            result["differs"][name] = _last_line(problem)
    return result


def _last_line(problem: ET.Element) -> str:
    lines = [one[1:].strip() for one in (problem.text or "").splitlines() if one.startswith("E ")]
    return (lines[0] if lines else problem.get("message", ""))[:300]


def run_all(original: Original, sdists: Path | None) -> dict[str, dict[str, Any]]:
    """Return what came of each test file of a package, by its path in the package."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        root = fetch(original, folder, sdists)
        run = folder / "run"
        run.mkdir()
        if original.readme_tests is not None:
            text = original.readme_tests(
                read_readme(original, root, folder), partial(rewrite, original=original)
            )
            (root / original.tests / "test_readme.py").write_text(text, encoding="utf-8")
        files = sorted((root / original.tests).rglob("test_*.py"))
        with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
            results = pool.map(lambda one: run_file(one, original, run), files)
            return {
                one.relative_to(root).as_posix(): result
                for one, result in zip(files, results, strict=True)
            }


def deviations(found: dict[str, Any], expected: dict[str, Any]) -> Iterator[str]:
    """Yield every way in which the results differ from the expected ones."""
    for file in sorted({*found, *expected}):
        now, known = found.get(file), expected.get(file)
        if now is None or known is None:
            yield f"{file}: {'is gone' if now is None else 'is new'}"
            continue
        if ("broke" in now) != ("broke" in known):
            was = "runs now" if "broke" in known else f"cannot be imported: {now['broke']}"
            yield f"{file}: {was}"
            continue
        differing, explained = now.get("differs", {}), known.get("differs", {})
        for test in sorted({*differing, *explained}):
            if test not in explained:
                yield f"{file}: {test} fails: {differing[test]}"
            elif test not in differing:
                yield f"{file}: {test} passes now"
        if now.get("passed") != known.get("passed") and differing.keys() == explained.keys():
            yield f"{file}: {now.get('passed')} tests pass, expected {known.get('passed')}"


def updated(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Return the results with the known reasons."""
    merged = {}
    for file, now in found.items():
        known = expected.get(file, {})
        if "broke" in now:
            merged[file] = {"broke": known.get("broke", f"{UNEXPLAINED}: {now['broke']}")}
            continue
        reasons = known.get("differs", {})
        differs = {
            test: reasons.get(test, f"{UNEXPLAINED}: {why}") for test, why in now["differs"].items()
        }
        merged[file] = {"passed": now["passed"], "skipped": now["skipped"], "differs": differs}
    return merged


def main() -> int:
    """0 if all is as expected, 1 if not, 2 if a package cannot be fetched; the others run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="*", help="names of packages; all by default")
    parser.add_argument("--sdists", type=Path, help="a folder with the source distributions")
    parser.add_argument("--update", action="store_true", help="write what is found")
    options = parser.parse_args()
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    count = missing = 0
    for original in ORIGINALS:
        if options.packages and original.name not in options.packages:
            continue
        try:
            found = run_all(original, options.sdists)
        except LookupError as error:
            sys.stderr.write(f"{error}\ngive a folder that contains it: --sdists FOLDER\n")
            missing += 1
            continue
        known = expected.get(original.title, {})
        for line in deviations(found, known):
            count += 1
            sys.stdout.write(f"{original.title}: {line}\n")
        passed = sum(one.get("passed", 0) for one in found.values())
        differing = sum(len(one.get("differs", ())) for one in found.values())
        broken = sum("broke" in one for one in found.values())
        counts = f"{passed} tests pass, {differing} differ, {broken} files cannot be imported"
        sys.stdout.write(f"{original.title}: {counts}\n")
        if options.update:
            expected[original.title] = updated(found, known)
    if options.update:
        text = json.dumps(expected, indent=1, ensure_ascii=False, sort_keys=True)
        EXPECTED.write_text(text + "\n", encoding="utf-8")
        return 2 if missing else 0
    return 2 if missing else min(count, 1)


if __name__ == "__main__":
    sys.exit(main())
