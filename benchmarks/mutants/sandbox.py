"""A copy of the working tree, with a Python of its own that imports holodeck from the copy.

Tests start processes of their own with a clean environment; only where Python itself is another
one do those import the copy, too.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Sandbox:
    """The copy; `folder` is emptied of what an earlier copy left."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        self.python = folder / "python" / "bin" / "python"
        self._written = 0
        if self.tree.exists():
            shutil.rmtree(self.tree)
        for name in _files():
            target = self.tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
        self._make_python(folder / "python")

    @property
    def src(self) -> Path:
        """Where the package is, as paths of mutants begin there."""
        return self.tree / "src"

    def _make_python(self, folder: Path) -> None:
        if not self.python.exists():
            venv.create(folder, with_pip=False, symlinks=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        paths = [str(self.src), sysconfig.get_path("purelib")]
        target = folder / "lib" / version / "site-packages" / "copy.pth"
        target.write_text("\n".join(paths) + "\n", encoding="utf-8")

    def write(self, path: str, source: bytes) -> None:
        """Replace a file of the package, so that no byte code of another version is used for it."""
        target = self.src / path
        target.write_bytes(source)
        self._written += 1
        os.utime(target, (1_000_000_000 + self._written, 1_000_000_000 + self._written))


def _files() -> list[str]:
    """What git knows or would add, as far as it is there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = listed.stdout.decode().split("\0")
    return [name for name in names if name and (ROOT / name).is_file()]
