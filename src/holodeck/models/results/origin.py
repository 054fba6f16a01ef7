"""What a report says of a run: which cases and prompts it used, and where results come from."""

from typing import Literal

from pydantic import Field

from holodeck.models.base import Count, Json, Model
from holodeck.models.results.outcome import StopKind


class Selection(Model):
    """The selected cases in numbers, so that nobody mistakes a part for the whole."""

    total: Count
    """All cases of the agent."""
    selected: Count
    deselected: Count
    how: str
    """The options that selected them, as on the command line."""
    shard: str | None = Field(default=None, pattern=r"^[0-9]{1,6}/[0-9]{1,6}$")
    """The part of the selection that this run is, such as `2/4`."""
    plan: str | None = None
    """The same in all shards of one selection; shards that differ in it may leave cases out."""

    def now(self, total: int, selected: int) -> "Selection":
        """Return the same selection with the present numbers of cases."""
        counts = {"total": total, "selected": selected, "deselected": total - selected}
        return self.model_copy(update=counts)

    def __str__(self) -> str:
        """Return such as `12 of 200 test cases: --tag smoke`."""
        plan = f" (plan {self.plan})" if self.plan else ""
        return f"{self.selected} of {self.total} test cases: {self.how}{plan}"


class PromptVersion(Model):
    """The version of a prompt, as the front matter of its file says, or by its text."""

    name: str
    """`instructions`, or the name of the prompt tool."""
    version: str
    """`version` of the front matter; by default `auto-` and the beginning of `body_hash`."""
    author: str | None = None
    description: str | None = None
    tags: list[str] = []
    source: Literal["file", "inline"]
    file_path: str | None = None
    """As the agent.yaml says; None for inline text."""
    body_hash: str
    """SHA-256 of the text without the front matter."""
    extra: dict[str, Json] = {}
    """Further keys of the front matter."""

    @property
    def has_known_keys(self) -> bool:
        """Whether the front matter has a key with a meaning of its own."""
        is_numbered = not self.version.startswith("auto-")
        return is_numbered or bool(self.author or self.description or self.tags)

    def __str__(self) -> str:
        """`instructions 1.2 by Ada (support, refunds)`."""
        by = f" by {self.author}" if self.author else ""
        tags = f" ({', '.join(self.tags)})" if self.tags else ""
        return f"{self.name} {self.version}{by}{tags}"


class RunOrigin(Model):
    """What identifies a run and its configuration."""

    run: str | None = None
    """The id of its record; None if there is none."""
    commit: str | None = None
    """The commit checked out in the agent's folder; None outside of git."""
    hashes: dict[str, str] = {}
    """Part of the configuration → hash of it and of the files it names; empty if unknown."""
    folder: str | None = None
    """The working folder, to which locations are relative; None if unknown."""
    checkout: str | None = None
    """The folder of the checkout around the agent; None outside of git."""
    exit_code: Count | None = None
    """Of `holodeck test`; None if the run was killed."""


class MergedRun(Model):
    """One of the runs that a merged report joins: a shard, or all cases of an agent."""

    label: str
    """What the report calls the agent: its name, with its file if two have the same name."""
    agent_name: str
    agent_config_path: str
    holodeck_version: str
    timestamp: str
    wall_time_ms: Count
    origin: RunOrigin
    exit_code: Count
    tests: Count
    """How many results come from the run."""
    environment: dict[str, str] = {}
    selection: Selection | None = None
    interrupted: bool = False
    stopped: str | None = None
    stopped_by: StopKind | None = None
    planned_tests: Count | None = None
    notes: list[str] = []
    prompts: list[PromptVersion] = []

    @property
    def shard(self) -> str | None:
        """Such as `2/4`; None for a run that is no shard."""
        return None if self.selection is None else self.selection.shard

    @property
    def title(self) -> str:
        """Such as `shop, shard 2/4`."""
        return self.label if self.shard is None else f"{self.label}, shard {self.shard}"
