"""Which of an agent's cases a run selected."""

from pydantic import Field

from holodeck.models.base import Count, Model


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
