"""Slips at lines and blocks of a text, and at the file as a whole."""

from collections.abc import Iterator

from mutants.node_operators import Slip


def line_slips(text: str, *, is_yaml: bool) -> Iterator[Slip]:
    """Every slip at a line of the text."""
    lines = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines))]
    for number, line in enumerate(lines):
        for operator, new in _line(lines, number, is_yaml=is_yaml):
            before, after = lines[:number], lines[number + 1 :]
            yield f"line: {operator}", starts[number], "".join([*before, *new, *after])
        if is_yaml and line.strip():
            for operator, block, new in _block(lines, number):
                after = lines[number + block :]
                yield f"block: {operator}", starts[number], "".join([*lines[:number], *new, *after])
        if number + 1 < len(lines):
            swapped = [*lines[:number], lines[number + 1], line, *lines[number + 2 :]]
            yield "line: swap with the next", starts[number], "".join(swapped)


def _line(lines: list[str], number: int, *, is_yaml: bool) -> Iterator[tuple[str, list[str]]]:
    line = lines[number]
    yield "delete", []
    yield "duplicate", [line, line]
    yield "blank line after", [line, "\n"]
    yield "trailing blank", [line.rstrip("\n") + " \n"]
    yield "trailing comma", [line.rstrip("\n") + ",\n"]
    yield "trailing quote", [line.rstrip("\n") + '"\n']
    yield "leading blank", [f" {line}"]
    yield "comment out", [f"# {line}"]
    yield "two lines joined", [line.rstrip("\n") + " "]
    if not is_yaml:
        return
    own = line.lstrip(" ")
    yield "in by two", [f"  {line}"]
    yield "in by four", [f"    {line}"]
    yield "tab", [f"\t{own}"]
    yield "trailing tab", [line.rstrip("\n") + "\t\n"]
    yield "comment after", [line.rstrip("\n") + " # see below\n"]
    yield "comment out in place", [line[: len(line) - len(own)] + f"# {own}"]
    if line.startswith("  "):
        yield "out by two", [line[2:]]
        yield "out by one", [line[1:]]
        yield "out to the margin", [own]
    if own.startswith("- "):
        yield "no dash", [line.replace("- ", "  ", 1)]
        yield "dash removed, moved", [line.replace("- ", "", 1)]
        yield "dash without blank", [line.replace("- ", "-", 1)]
        yield "two dashes", [line.replace("- ", "- - ", 1)]
        yield "star for a dash", [line.replace("- ", "* ", 1)]
    else:
        yield "new dash", [line[: len(line) - len(own)] + f"- {own}"]
    yield "document ends after", [line, "---\n"]
    yield "document ends before", ["---\n", line]
    yield "end mark before", ["...\n", line]


def _block(lines: list[str], number: int) -> Iterator[tuple[str, int, list[str]]]:
    """Slips at a line with everything that belongs to it, and how many lines that is."""
    depth = _depth(lines[number])
    count = 1
    while number + count < len(lines) and _depth(lines[number + count]) > depth:
        count += 1
    block = lines[number : number + count]
    children = block[1:]
    if count > 1:
        yield "delete", count, []
        yield "comment out", count, [f"# {line}" for line in block]
        yield "in by two", count, [f"  {line}" for line in block]
        yield "duplicate", count, [*block, *block]
        yield "children deleted", count, block[:1]
        yield "children commented out", count, [block[0], *(f"# {line}" for line in children)]
        yield "children in by two", count, [block[0], *(f"  {line}" for line in children)]
        if depth >= 2:
            yield "out by two", count, [line[2:] for line in block]
        if all(line.startswith("  ") for line in children):
            yield "children out by two", count, [block[0], *(line[2:] for line in children)]
    following = lines[number + count :]
    if following and _depth(following[0]) == depth:
        further = 1
        while further < len(following) and _depth(following[further]) > depth:
            further += 1
        yield "swap with the next", count + further, [*following[:further], *block]
    yield "everything below deleted", len(lines) - number, []


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def file_slips(text: str) -> Iterator[tuple[str, bytes]]:
    """Encodings, line ends, and files that are cut, empty or doubled."""
    yield "file: BOM", text.encode("utf-8-sig")
    yield "file: UTF-16 with BOM", text.encode("utf-16")
    yield "file: UTF-16 without BOM", text.encode("utf-16-le")
    yield "file: UTF-32", text.encode("utf-32")
    yield "file: CRLF", text.replace("\n", "\r\n").encode()
    yield "file: CR", text.replace("\n", "\r").encode()
    yield "file: two BOMs", b"\xef\xbb\xbf" + text.encode("utf-8-sig")
    yield "file: Latin-1", ("# é\n" + text).encode("latin-1")
    yield "file: NUL at the end", text.encode() + b"\0"
    yield "file: no newline at the end", text.rstrip("\n").encode()
    yield "file: newlines at the end", text.encode() + b"\n\n\n"
    yield "file: blank line before", b"\n" + text.encode()
    yield "file: line separator in a comment", "# a\u2028b\n".encode() + text.encode()
    yield "file: document mark", b"---\n" + text.encode()
    yield "file: document end", text.encode() + b"...\n"
    yield "file: twice", text.encode() * 2
    yield "file: empty", b""
    yield "file: a byte order mark and nothing", b"\xef\xbb\xbf"
    yield "file: comments only", b"# nothing here\n"
    yield "file: half", text[: len(text) // 2].encode()
    yield "file: three quarters", text[: len(text) * 3 // 4].encode()
    yield "file: conflict marks", b"<<<<<<< HEAD\n" + text.encode() + b"=======\n>>>>>>> x\n"
    yield "file: a fence", b"```yaml\n" + text.encode() + b"```\n"


def renamings(name: str) -> Iterator[tuple[str, str]]:
    """Other names for a file, and what was done to the old one."""
    folder, slash, own = name.rpartition("/")
    stem, _, suffix = own.rpartition(".")
    above = folder + slash
    yield "rename: upper-case suffix", f"{above}{stem}.{suffix.upper()}"
    yield "rename: capital letter", f"{above}{own.capitalize()}"
    yield "rename: other suffix", f"{above}{stem}.{'yml' if suffix == 'yaml' else 'yaml'}"
    yield "rename: backup", f"{name}.bak"
    yield "rename: text", f"{name}.txt"
    yield "rename: no suffix", f"{above}{stem}"
    yield "rename: hidden", f"{above}.{own}"
    yield "rename: trailing blank", f"{name} "
    yield "rename: copy", f"{above}{stem} (1).{suffix}"
    yield "rename: one folder deeper", f"{above}more/{own}"
    yield "rename: misspelt", f"{above}{stem[:-1]}.{suffix}"
    if slash:
        yield "rename: one folder up", own
        yield "rename: folder in capitals", f"{folder.upper()}/{own}"
