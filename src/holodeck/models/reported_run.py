"""What a report says of the runs that its results come from."""

from holodeck.models.base import Count, Model
from holodeck.models.outcome import StopKind
from holodeck.models.prompt_version import PromptVersion
from holodeck.models.selection import Selection


class RunOrigin(Model):
    """What identifies a run and its configuration."""

    run: str | None = None
    """The id of its record; None without one."""
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
