"""Slips at keys, values and items of YAML and JSON, by where the parser finds them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from mutants.keys_of_others import SYNONYMS

Slip = tuple[str, int, str]
"""The operator, where in the text, and the text that it makes."""


@dataclass(frozen=True)
class _Text:
    """The text of a file, in which parts are replaced."""

    text: str
    is_json: bool

    def of(self, node: yaml.Node) -> str:
        return self.text[node.start_mark.index : node.end_mark.index]

    def put(self, operator: str, node: yaml.Node, new: str) -> Slip:
        start, end = node.start_mark.index, node.end_mark.index
        return operator, start, self.text[:start] + new + self.text[end:]

    def cut(self, operator: str, start: int, end: int, new: str = "") -> Slip:
        return operator, start, self.text[:start] + new + self.text[end:]


def node_slips(text: str, *, is_json: bool = False) -> Iterator[Slip]:
    """Every slip at a node of the text's tree."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is not None:
        yield from _walk(_Text(text, is_json), root)


def _walk(text: _Text, node: yaml.Node) -> Iterator[Slip]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _key_slips(text, key, value)
            yield from _value_slips(text, key, value)
            yield from _walk(text, value)
    elif isinstance(node, yaml.SequenceNode):
        yield from _list_slips(text, node)
        for item in node.value:
            yield from _item_slips(text, item)
            yield from _walk(text, item)


def misspellings(name: str) -> Iterator[tuple[str, str]]:
    """A name as it is written in haste, and what happened to it."""
    middle = len(name) // 2
    yield "drop a letter", name[:middle] + name[middle + 1 :]
    yield "drop the last letter", name[:-1]
    yield "double a letter", name[:middle] + name[middle - 1] + name[middle:]
    yield "swap letters", name[: middle - 1] + name[middle] + name[middle - 1] + name[middle + 1 :]
    yield "plural or singular", name[:-1] if name.endswith("s") else f"{name}s"
    yield "upper case", name.upper()
    yield "capitalise", name.capitalize()
    if "_" in name:
        first, *rest = name.split("_")
        yield "camel case", first + "".join(map(str.capitalize, rest))
        yield "hyphens", name.replace("_", "-")
        yield "no underscore", name.replace("_", "")
        yield "blanks", name.replace("_", " ")
    else:
        yield "snake case", re.sub(r"([A-Z])", r"_\1", name).lower()
    for other in SYNONYMS.get(name, ()):
        yield "key of another tool", other


def _key_slips(text: _Text, key: yaml.Node, value: yaml.Node) -> Iterator[Slip]:
    name = str(key.value)
    quote = '"' if text.is_json else ""
    for operator, new in misspellings(name):
        if new not in {name, ""}:
            yield text.put(f"key: {operator}", key, f"{quote}{new}{quote}")
    for operator, new in {
        "trailing blank": f'"{name} "',
        "leading blank": f'" {name}"',
        "no-break space": f'"{name}\u00a0"',
        "underscore before": f"{quote}_{name}{quote}",
        "x- before": f"{quote}x-{name}{quote}",
        "letter that looks alike": f'"{name.replace("e", "е").replace("o", "о")}"',
    }.items():
        if new.strip('"') != name:
            yield text.put(f"key: {operator}", key, new)
    if not text.is_json:
        yield text.cut("key: no colon", key.end_mark.index, _after_colon(text, key), " ")
        if not text.text[key.end_mark.index :].startswith(":\n"):
            yield text.cut(
                "key: no blank after colon", key.end_mark.index, _after_blank(text, key), ":"
            )
    start, end = key.start_mark.index, _end(value)
    entry = text.text[start:end]
    if not text.is_json and "\n" not in entry:
        yield text.cut("key: value nested under itself", start, end, f"{{{name}: {{{entry}}}}}")


def _after_colon(text: _Text, key: yaml.Node) -> int:
    return text.text.index(":", key.end_mark.index) + 1


def _after_blank(text: _Text, key: yaml.Node) -> int:
    colon = _after_colon(text, key)
    return colon + (text.text[colon : colon + 1] == " ")


def _end(node: yaml.Node) -> int:
    return int(node.end_mark.index)


def _is_flow(text: _Text, node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) or text.of(node)[:1] in {"[", "{"}


def _value_slips(text: _Text, key: yaml.Node, value: yaml.Node) -> Iterator[Slip]:
    after = _after_blank(text, key)
    tail = "" if _is_flow(text, value) else "\n"
    for operator, new in {
        "null": "null",
        "empty text": '""',
        "empty list": "[]",
        "empty mapping": "{}",
        "true": "true",
        "false": "false",
        "zero": "0",
    }.items():
        yield text.cut(
            f"value: {operator}", after, _end(value), f"{_blank(text, after)}{new}{tail}"
        )
    if not text.is_json:
        yield text.cut("value: drop", after, _end(value), tail)
        if isinstance(value, yaml.ScalarNode):
            yield text.cut("value: comment out", after, after, " #" if after else "#")
    if isinstance(value, yaml.ScalarNode):
        yield from _scalar_slips(text, value, "value")
    elif _is_flow(text, value):
        yield text.put("value: as text", value, _quoted(text.of(value)))


def _blank(text: _Text, at: int) -> str:
    return "" if text.text[at - 1 : at] == " " else " "


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def _scalar_slips(text: _Text, node: yaml.ScalarNode, what: str) -> Iterator[Slip]:
    said = node.value
    quoted = _quoted
    texts = {
        "trailing blank": quoted(f"{said} "),
        "leading blank": quoted(f" {said}"),
        "trailing newline": quoted(said)[:-1] + '\\n"',
        "quotes inside": quoted(f'"{said}"'),
        "apostrophes inside": quoted(f"'{said}'"),
        "star after": quoted(f"{said}*"),
        "star before": quoted(f"*{said}"),
        "wildcard": quoted(f"{said[: max(1, len(said) // 2)]}*"),
        "comma and more": quoted(f"{said}, other"),
        "semicolon and more": quoted(f"{said};other"),
        "bar after": quoted(f"{said}|"),
        "bar before": quoted(f"|{said}"),
        "placeholder": '"{{name}}"',
        "placeholder after": quoted(said + "{{x}}"),
        "single braces": '"{name}"',
        "variable": '"${HOLODECK_NO_SUCH_VARIABLE}"',
        "empty default": '"${HOLODECK_NO_SUCH_VARIABLE:-}"',
        "shell variable": '"$NAME"',
        "template": '"<%= name %>"',
        "angle brackets": quoted(f"<{said}>"),
        "to do": '"TODO"',
        "upper case": quoted(said.upper()),
        "capitalised": quoted(said.capitalize()),
        "lower case": quoted(said.lower()),
        "typographic quotes": quoted(f"“{said}”"),
        "zero width space": quoted(f"{said}\u200b"),
        "prefix of another tool": quoted(f"contains:{said}"),
        "prefix functions.": quoted(f"functions.{said}"),
        "parentheses": quoted(f"{said}()"),
    }
    if len(said) > 2:
        texts["drop a letter"] = quoted(said[:1] + said[2:])
        texts["swap letters"] = quoted(said[:-2] + said[-1] + said[-2])
    others = {
        "quoted": quoted(said) if node.style is None else said,
        "in a list": f"[{text.of(node)}]",
        "in a mapping": f'{{"value": {text.of(node)}}}',
        "number": "7",
        "negative": "-1",
        "half": "0.5",
        "yes": "yes",
        "no": "no",
        "tilde": "~",
        "nan": "NaN" if text.is_json else ".nan",
        "infinite": "Infinity" if text.is_json else ".inf",
    }
    if re.fullmatch(r"-?[\d.]+", said):
        others |= {
            "ten times": f"{said}0" if "." not in said else str(float(said) * 10),
            "a tenth": str(float(said) / 10),
            "percent": f"{said}%",
            "decimal comma": said.replace(".", ",") if "." in said else f"{said},0",
        }
    if not text.is_json:
        others |= {"tag": f"!!str {text.of(node)}", "other tag": f"!x {text.of(node)}"}
        if node.style is None and "\n" not in said:
            others |= {"block": f"|\n{' ' * 14}{said}\n", "folded": f">\n{' ' * 14}{said}\n"}
            others |= {"half quoted": f'"{said}', "hash": f"#{said}", "blank and hash": f"{said} #"}
    for operator, new in (texts | others).items():
        if new != text.of(node):
            yield text.put(f"{what}: {operator}", node, new)


def _item_slips(text: _Text, item: yaml.Node) -> Iterator[Slip]:
    if isinstance(item, yaml.ScalarNode):
        yield from _scalar_slips(text, item, "item")
    for operator, new in {"null": "null", "empty text": '""', "empty mapping": "{}"}.items():
        tail = "" if _is_flow(text, item) else "\n"
        start, end = item.start_mark.index, _end(item)
        yield text.cut(f"item: {operator}", start, end, new + tail)


def _list_slips(text: _Text, node: yaml.SequenceNode) -> Iterator[Slip]:
    if not _is_flow(text, node):
        return
    written = text.of(node)
    yield text.put("list: in a list", node, f"[{written}]")
    yield text.put("list: no brackets", node, written[1:-1] or '""')
    yield text.put("list: no last bracket", node, written[:-1])
    yield text.put("list: parentheses", node, f"({written[1:-1]})")
    yield text.put("list: as a mapping", node, f"{{{written[1:-1]}}}")
    items = [text.of(item) for item in node.value]
    bare = [str(item.value) for item in node.value if isinstance(item, yaml.ScalarNode)]
    if bare:
        joined = ", ".join(bare)
        yield text.put("list: as text", node, _quoted(joined))
        yield text.put("list: one text in it", node, f"[{_quoted(joined)}]")
        yield text.put("list: semicolons", node, f"[{_quoted(';'.join(bare))}]")
        yield text.put("list: text of JSON", node, "'" + written.replace("'", '"') + "'")
        yield text.put("list: first only", node, items[0])
        yield text.put("list: extra comma", node, f"[{', '.join(items)},]")
        yield text.put("list: empty item", node, f"[{', '.join(items)}, null]")
        yield text.put("list: blank item", node, f'[{", ".join(items)}, ""]')
    for at in range(len(items)):
        rest = items[:at] + items[at + 1 :]
        yield text.put("list: delete an item", node, f"[{', '.join(rest)}]")
    if len(items) > 1:
        yield text.put("list: reversed", node, f"[{', '.join(reversed(items))}]")
