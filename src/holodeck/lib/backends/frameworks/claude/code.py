"""Claude Code, which the client of the Claude Agent SDK starts, in a process group of its own.

The group ends with the conversation, with all programs that Claude Code started, and by a guard if
this process is killed. Ctrl-C in the terminal does not reach it.
"""

import asyncio
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from holodeck.lib.processes.process_guard import GUARD, kill_group

SESSION_STATES = "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"
"""Environment variable with which Claude Code reports that nothing is under way any more."""
MAX_LINES = 20
"""Lines of stderr that an error shows."""
_OWN_GROUP = "import os, sys; os.setsid(); os.execvp(sys.argv[1], sys.argv[1:])"


class ClaudeCode:
    """A process of Claude Code that serves one conversation.

    Args:
        options: Of the user; not changed.
    """

    def __init__(self, options: Any) -> None:
        self.client: Any = None
        """The client of the SDK, once it is connected."""
        self._options = options
        self._folder: Path | None = None
        self._group: int | None = None
        self._lines: deque[str] = deque(maxlen=MAX_LINES)

    async def start(self) -> None:
        """Connect to a new process."""
        from claude_agent_sdk import ClaudeSDKClient

        options = replace(
            self._options,
            cli_path=self._launcher() or self._options.cli_path,
            env={SESSION_STATES: "1", **self._options.env},
            stderr=self._note_line(self._options.stderr),
            include_partial_messages=True,
        )
        self.client = ClaudeSDKClient(options)
        try:
            await self.client.connect()
        finally:
            self._watch()

    async def stop(self, *, at_once: bool = False) -> None:
        """End the process, and what it started; `at_once` does not wait for a turn under way."""
        if at_once:
            self._signal(signal.SIGTERM)
        try:
            if self.client is not None:
                await self.client.disconnect()
        finally:
            self._signal(signal.SIGKILL)
            if self._group is not None:
                GUARD.release(self._group)
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            self.client = self._group = self._folder = None

    async def tail(self) -> str:
        """Return the last lines of stderr, as the end of a message."""
        count = -1
        while count != len(self._lines):  # the SDK reads them in a task of its own
            count = len(self._lines)
            await asyncio.sleep(0.05)
        lines = "".join(f"\n  {line}" for line in self._lines)
        return f"; the last lines of its stderr:{lines}" if lines else ""

    def _note_line(self, users: Callable[[str], None] | None) -> Callable[[str], None]:
        """Return a callback that keeps a line of stderr, and calls the user's own."""

        def note(line: str) -> None:
            self._lines.append(line)
            if users is not None:
                users(line)

        return note

    def _launcher(self) -> str | None:
        """Write a program that starts Claude Code in a process group of its own.

        None where that is not possible: the SDK then starts it as usual.
        """
        program = _find_program(self._options.cli_path)
        if os.name != "posix" or program is None or self._options.user is not None:
            return None
        self._folder = Path(tempfile.mkdtemp(prefix="holodeck-claude-"))
        launcher = self._folder / "claude"
        command = shlex.join([sys.executable, "-I", "-S", "-c", _OWN_GROUP, program])
        pid_file = shlex.quote(str(self._folder / "pid"))
        launcher.write_text(f'#!/bin/sh\necho $$ > {pid_file}\nexec {command} "$@"\n')
        launcher.chmod(0o700)
        return str(launcher) if os.access(launcher, os.X_OK) else None

    def _watch(self) -> None:
        """Have the guard end the process group, if there is one."""
        if self._folder is not None:
            with suppress(OSError, ValueError):
                self._group = int((self._folder / "pid").read_text())
                GUARD.watch(self._group)

    def _signal(self, number: int) -> None:
        if self._group is not None:
            kill_group(self._group, number)


def _find_program(chosen: str | Path | None) -> str | None:
    """Return the program that the SDK would start; None if only the SDK can tell."""
    import claude_agent_sdk

    bundled = Path(claude_agent_sdk.__file__).with_name("_bundled") / "claude"
    if chosen is None and bundled.is_file():
        return str(bundled)
    return shutil.which(str(chosen or "claude"))
