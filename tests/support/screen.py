"""What a person sees after a program wrote to a terminal: text, cursor moves and erasures."""

import re
import unicodedata

TOKEN = re.compile(
    r"\x1b\[(?P<args>[0-9;?]*)(?P<final>[A-Za-z])"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b[()][A-Z0-9]|\x1b[=>78]"
    r"|(?P<char>[\s\S])"
)


class Screen:
    """A terminal without scrolling away: lines that leave the top stay readable."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0

    def feed(self, text: str) -> None:
        for token in TOKEN.finditer(text):
            if (char := token["char"]) is not None:
                self._put(char)
            elif (final := token["final"]) is not None and not token["args"].startswith("?"):
                self._command(final, [int(a or 0) for a in token["args"].split(";")])

    def text(self) -> str:
        """The lines, without blanks at their ends and empty lines at the bottom."""
        return "\n".join("".join(line).rstrip() for line in self.lines).rstrip("\n")

    def _put(self, char: str) -> None:
        match char:
            case "\r":
                self.column = 0
            case "\n":
                self._go(self.row + 1)
            case "\b":
                self.column = max(0, self.column - 1)
            case "\t":
                self.column = min(self.columns - 1, (self.column // 8 + 1) * 8)
            case _ if unicodedata.category(char) not in {"Cc", "Cf", "Mn"}:
                self._write(char)

    def _write(self, char: str) -> None:
        width = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if self.column + width > self.columns:
            self.column = 0
            self._go(self.row + 1)
        line = self.lines[self.row]
        line.extend(" " * (self.column + width - len(line)))
        line[self.column : self.column + width] = [char, ""][:width]
        self.column += width

    def _go(self, row: int) -> None:
        top = max(0, len(self.lines) - self.rows)
        self.row = max(top, row)
        while len(self.lines) <= self.row:
            self.lines.append([])

    def _command(self, final: str, args: list[int]) -> None:
        count = args[0] or 1
        match final:
            case "A":
                self._go(self.row - count)
            case "B":
                self._go(self.row + count)
            case "C":
                self.column = min(self.columns - 1, self.column + count)
            case "D":
                self.column = max(0, self.column - count)
            case "G":
                self.column = count - 1
            case "H":
                self._move_to(args)
            case "J":
                self._erase_below(args[0])
            case "K":
                self._erase_line(args[0])

    def _move_to(self, args: list[int]) -> None:
        top = max(0, len(self.lines) - self.rows)
        self._go(top + (args[0] or 1) - 1)
        self.column = (args[1] if len(args) > 1 and args[1] else 1) - 1

    def _erase_line(self, how: int) -> None:
        line = self.lines[self.row]
        if how == 0:
            del line[self.column :]
        elif how == 1:
            line[: self.column + 1] = " " * min(len(line), self.column + 1)
        else:
            line.clear()

    def _erase_below(self, how: int) -> None:
        top = max(0, len(self.lines) - self.rows)
        first = top if how else self.row + 1
        for line in self.lines[first:]:
            line.clear()
        if not how:
            self._erase_line(0)


def render(raw: bytes, columns: int, rows: int) -> str:
    """The text on a terminal of that size after it got these bytes."""
    screen = Screen(columns, rows)
    screen.feed(raw.decode("utf-8", "replace"))
    return screen.text()
