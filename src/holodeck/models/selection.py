"""Which of an agent's cases a run was told to run."""

from holodeck.models.base import Count, Model


class Selection(Model):
    """What was chosen of the cases, so that nobody takes a part for the whole."""

    total: Count
    """Cases that there are."""
    selected: Count
    deselected: Count
    how: str
    """The options that chose, as one writes them."""
    shard: str | None = None
    """Which part this run is, such as `2/4`."""
    plan: str | None = None
    """The same in every part of one whole; parts that differ in it may leave cases out."""

    def now(self, total: int, selected: int) -> "Selection":
        """The same choice among the cases that there are now."""
        counts = {"total": total, "selected": selected, "deselected": total - selected}
        return self.model_copy(update=counts)

    def __str__(self) -> str:
        """`12 of 200 test cases: --tag smoke`."""
        plan = f" (plan {self.plan})" if self.plan else ""
        return f"{self.selected} of {self.total} test cases: {self.how}{plan}"
