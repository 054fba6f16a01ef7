"""The notebooks of examples/: run them, and compare what they show.

`python tests/support/notebooks.py` runs them and stores what they show now.
"""

import json
import os
import re
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").rglob("*.ipynb"))
_SECONDS = re.compile(r"\b\d+(\.\d+)? s\b")


def execute(path, *more_cells):
    """Return the notebook with more cells and fresh outputs, run by a kernel of this Python."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells += map(nbformat.v4.new_code_cell, more_cells)
    for cell in notebook.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    # nothing of the machine's own settings: they may show more than ours
    with tempfile.TemporaryDirectory() as folder:
        source = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": source, "IPYTHONDIR": folder}
        NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": str(path.parent)}},
        ).execute(env=environment)
    return notebook


def outputs_of(notebook):
    """Return what the cells show, without what differs from run to run."""
    return [
        [_steady(output) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def _steady(output):
    plain = {key: value for key, value in output.items() if key != "execution_count"}
    return json.loads(_SECONDS.sub("0 s", json.dumps(plain, sort_keys=True)))


def main():
    for path in NOTEBOOKS:
        notebook = execute(path)
        notebook.metadata = {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
        }
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
