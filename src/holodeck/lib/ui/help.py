"""The `--help` of a command with many options: in groups, with a line per option."""

from collections.abc import Sequence
from typing import Any

import click

GROUPS = (
    "Input", "Selection", "Comparison", "Preview", "Run", "Resuming", "Limits",
    "Retries and repeats", "Output", "Cache and recordings", "Other",
)  # fmt: skip
"""In the order of the help."""
_WIDEST_NAMES = 32


class GroupedOption(click.Option):
    """An option that belongs to a group of the help; `aliases` work and are not shown."""

    def __init__(
        self,
        declarations: Sequence[str],
        *,
        group: str = "Other",
        aliases: Sequence[str] = (),
        **attributes: Any,
    ) -> None:
        super().__init__([*declarations, *aliases], **attributes)
        self.group = group
        self._aliases = frozenset(aliases)

    @property
    def _shown_names(self) -> list[str]:
        return [name for name in self.opts if name not in self._aliases]

    def names_and_metavar(self, context: click.Context) -> str:
        """Return such as `-x, --[no-]fail-fast` or `-o, --output FILE`."""
        names = sorted(self._shown_names or self.secondary_opts, key=len)
        if self._shown_names and self.secondary_opts:
            names[-1] = f"--[no-]{names[-1].removeprefix('--')}"
        text = ", ".join(names)
        takes_value = not self.is_flag and not self.count
        return f"{text} {self.make_metavar(context)}" if takes_value else text

    def get_error_hint(self, ctx: click.Context | None) -> str:  # noqa: ARG002 - click's signature
        return " / ".join(f"'{name}'" for name in self._shown_names or self.secondary_opts)


class GroupedCommand(click.Command):
    """A command whose help shows its GroupedOptions in groups."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
        for param in self.get_params(ctx):
            if isinstance(param, GroupedOption) and not param.hidden:
                rows[param.group].append((param.names_and_metavar(ctx), param.help or ""))
            elif isinstance(param, click.Option) and not param.hidden:
                rows["Other"].append((", ".join(sorted(param.opts, key=len)), param.help or ""))
        lengths = [len(names) for group in rows.values() for names, _ in group]
        widest = min(max(lengths), _WIDEST_NAMES)
        for group, members in rows.items():
            if members:
                with formatter.section(group):
                    padded = [(names.ljust(widest), text) for names, text in members]
                    formatter.write_dl(padded, col_max=_WIDEST_NAMES)
