"""The packages that a project declares, read from its files without running any code."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path
from typing import Any

_MARKS = ("pyproject.toml", "setup.cfg", "setup.py", ".git")
_REQUIREMENTS = "requirements*.txt"
_NAME = re.compile(r"\s*([A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(?:$|[\[<>=!~;@#,(\s])")
_EGG = re.compile(r"#egg=([\w.-]+)")
_TOOLS_WITH_LISTS = ("uv", "pdm")


def find_project(folder: Path) -> Path | None:
    """Return the nearest folder, from `folder` upwards, that is a project; None without one."""
    folder = folder.resolve()
    return next((one for one in (folder, *folder.parents) if _is_project(one)), None)


def _is_project(folder: Path) -> bool:
    return any((folder / mark).exists() for mark in _MARKS) or any(folder.glob(_REQUIREMENTS))


@cache
def declared_dependencies(project: Path) -> frozenset[str] | None:
    """Return the names of the packages that a project declares, its own included.

    None if it declares none, or in a way that only running code would tell.
    """
    names: set[str] = set()
    try:
        found = [_of_pyproject(project / "pyproject.toml"), _of_setup_cfg(project / "setup.cfg")]
        found += [_of_requirements(file) for file in project.glob(_REQUIREMENTS)]
    except (OSError, ValueError, ConfigParserError):  # another tool says what is wrong in it
        return None
    if (project / "setup.py").exists() and found[0] is None:
        return None
    for requirements in found:
        names.update(requirements or ())
    is_declared = any(requirements is not None for requirements in found)
    return frozenset(names) if is_declared else None


def provides(name: str, top: str) -> bool:
    """Return whether the installed distribution `name` contains the top-level module `top`."""
    if name == _normalized(top):
        return True
    try:
        found = distribution(name)
    except (PackageNotFoundError, ValueError):
        return False
    if top in (found.read_text("top_level.txt") or "").split():
        return True
    return any(file.parts[0] in {top, f"{top}.py"} for file in found.files or () if file.parts)


def distributions_of(top: str) -> list[str]:
    """Return the names of the installed distributions that contain a top-level module."""
    return sorted(set(packages_distributions().get(top, ())))


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _names_in(requirements: Iterable[Any]) -> Iterator[str]:
    """Yield the names in requirements such as `name[extra] >= 1`."""
    for text in requirements:
        match = _NAME.match(text) or _EGG.search(text) if isinstance(text, str) else None
        if match is not None:
            yield _normalized(match[1])


def _of_pyproject(file: Path) -> set[str] | None:
    """Return what a pyproject.toml declares; None without a list of dependencies."""
    if not file.is_file():
        return None
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    project, tool = data.get("project", {}), data.get("tool", {})
    poetry = tool.get("poetry", {})
    lists = [project.get("dependencies")] if "dependencies" in project else []
    lists += project.get("optional-dependencies", {}).values()
    lists += data.get("dependency-groups", {}).values()
    for name in _TOOLS_WITH_LISTS:
        groups = tool.get(name, {}).get("dev-dependencies", [])
        lists += groups.values() if isinstance(groups, dict) else [groups] if groups else []
    groups = [poetry, *poetry.get("group", {}).values()]
    lists += [group["dependencies"] for group in groups if "dependencies" in group]
    lists += [poetry["dev-dependencies"]] if "dev-dependencies" in poetry else []
    if not lists or "dependencies" in project.get("dynamic", ()):
        return None
    own = [project.get("name"), poetry.get("name")]
    return {*_names_in(own), *(name for group in lists for name in _names_in(group))}


def _of_setup_cfg(file: Path) -> set[str] | None:
    """Return what a setup.cfg declares; None without a list of dependencies."""
    parser = ConfigParser(interpolation=None)
    parser.read(file, encoding="utf-8")
    if not parser.has_option("options", "install_requires"):
        return None
    texts = [parser.get("options", "install_requires"), parser.get("metadata", "name", fallback="")]
    if parser.has_section("options.extras_require"):
        texts += [text for _, text in parser.items("options.extras_require")]
    return set(_names_in(line for text in texts for line in text.splitlines()))


def _of_requirements(file: Path) -> set[str]:
    """Return what a requirements.txt declares, with the files beside it that it includes."""
    return set(_names_in(file.read_text(encoding="utf-8", errors="replace").splitlines()))
