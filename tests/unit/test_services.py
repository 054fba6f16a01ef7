"""scripts/services: what it says where it can install nothing."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "services"
PACKAGES = {"tesseract": "tesseract-ocr", "chromium": "chromium"}


@pytest.mark.parametrize("there", [(), ("tesseract",), ("chromium",)])
def test_without_apt_one_line_names_what_is_missing_and_nothing_fails(tmp_path, there):
    for name in there:
        (tmp_path / name).symlink_to("/bin/true")

    shell = str(shutil.which("sh"))
    ran = subprocess.run(
        [shell, SCRIPT], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )

    assert (ran.returncode, ran.stdout) == (0, "")
    missing = "".join(f" {package}" for name, package in PACKAGES.items() if name not in there)
    assert ran.stderr.startswith(f"services: cannot install{missing}")
    assert ran.stderr.endswith("there is no apt-get; the tests that need them are skipped\n")
    assert ran.stderr.count("\n") == 1
