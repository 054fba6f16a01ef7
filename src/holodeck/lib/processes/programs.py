"""The programs that holodeck starts."""

import os
from pathlib import Path


def program_path(program: str, folder: Path) -> str:
    """Return the program; one with a slash in it is a path that starts from the folder.

    Links are kept: they are what makes the `python` of a virtual environment find its packages.
    """
    return str(folder.absolute() / program) if os.sep in program else program
