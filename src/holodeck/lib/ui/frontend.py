"""Where Python code runs: in a notebook, in the IPython shell, or as a plain script."""

import sys
from collections.abc import Mapping
from typing import Literal

Frontend = Literal["notebook", "ipython", "script"]


def detect_frontend() -> Frontend:
    """Return where the code runs; IPython is not imported, as only a running one counts."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return "script"
    classes = {one.__name__ for one in type(shell).__mro__}
    # Kernels of notebooks derive from this one, those of hosted notebooks included.
    return "notebook" if "ZMQInteractiveShell" in classes else "ipython"


class NotebookOutput:
    """One output of a cell, which is replaced in place."""

    def __init__(self) -> None:
        from IPython.display import display

        self._handle = display({"text/plain": ""}, raw=True, display_id=True)

    def show(self, bundle: Mapping[str, str]) -> None:
        """Replace the output; `bundle` maps media types to the same content in each."""
        self._handle.update(dict(bundle), raw=True)
