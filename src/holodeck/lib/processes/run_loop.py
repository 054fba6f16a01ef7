"""The event loop of a run, which the code of agents and metrics cannot stop."""

import asyncio
import sys

if sys.platform == "win32":
    _Loop = asyncio.ProactorEventLoop
else:
    _Loop = asyncio.SelectorEventLoop


class RunLoop(_Loop):
    """An event loop whose tasks cannot stop it: all other tasks would never go on."""

    def stop(self) -> None:
        """Stop once the main task is done. Raises RuntimeError in a task."""
        if asyncio.current_task(self) is not None:
            raise RuntimeError("stop() of the event loop would end the run; remove the call")
        super().stop()
