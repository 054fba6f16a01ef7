"""Makes mutants of a source file: the same text with one small mistake in it."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,  # codespell:ignore
}  # fmt: skip
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip
_CALLS = {"any": "all", "all": "any", "min": "max", "max": "min"}
_ENUMS = {
    "Outcome": ("PASSED", "FAILED", "AGENT_ERROR", "METRIC_ERROR", "UNCHECKED"),
    "ExitCode": ("PASSED", "TEST_FAILED", "EXECUTION", "EVALUATION", "NOTHING_SELECTED"),
}
_LOGGED = re.compile(r"logger\.(debug|info|warning|error)\(")


@dataclass(frozen=True)
class Mutant:
    """One mistake: what it replaces, and where."""

    path: str
    """Below `src`."""
    line: int
    function: str
    """Qualified name of the innermost function; empty for a module, a class's name with a dot."""
    names: tuple[str, ...]
    """What the statement assigns, where it stands outside of functions."""
    kind: str
    start: int
    end: int
    """Bytes of the source that are replaced."""
    text: str
    """What stands there instead."""

    def applied(self, source: bytes) -> bytes:
        """The source with the mistake."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def lines(self, source: bytes) -> tuple[str, str]:
        """The text of the lines concerned, without and with the mistake."""
        first = source.rfind(b"\n", 0, self.start) + 1
        last = source.find(b"\n", self.end)
        before = source[first:last]
        after = source[first : self.start] + self.text.encode() + source[self.end : last]
        return _one_line(before), _one_line(after)


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return every mutant of a file, in the order of the lines.

    Left out: annotations (but for the bounds of a `Field`), docstrings, texts of messages, calls of
    a logger, `__all__`, and what only type checkers read.
    """
    found = _Finder(path, source)
    found.visit(ast.parse(source))
    return sorted(found.mutants, key=lambda one: (one.start, one.end, one.text))


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, source: bytes) -> None:
        self.mutants: list[Mutant] = []
        self._path = path
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._scope: list[str] = []
        self._is_in_function = False
        self._is_async = False
        self._names: tuple[str, ...] = ()

    def _add(self, node: ast.AST, kind: str, text: str) -> None:
        start = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        function = ".".join(self._scope) + ("" if self._is_in_function or not self._scope else ".")
        names = () if self._is_in_function else self._names
        self.mutants.append(
            Mutant(self._path, node.lineno, function, names, kind, start, end, text)  # type: ignore[attr-defined]
        )

    def _text(self, node: ast.AST) -> str:
        return ast.get_source_segment(self._source.decode(), node) or ast.unparse(node)

    # where mutants are

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for outside in (*node.decorator_list, node.args):
            self.visit(outside)
        outer = self._is_in_function, self._is_async
        self._is_in_function, self._is_async = True, isinstance(node, ast.AsyncFunctionDef)
        self._scope.append(node.name)
        self._body(node.body)
        self._scope.pop()
        self._is_in_function, self._is_async = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any("Protocol" in ast.unparse(base) for base in node.bases):
            return
        was, self._is_in_function = self._is_in_function, False
        self._scope.append(node.name)
        self._body(node.body)
        self._scope.pop()
        self._is_in_function = was

    def visit_Module(self, node: ast.Module) -> None:
        self._body(node.body)

    def _body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            if is_text or isinstance(statement, ast.Import | ast.ImportFrom):
                continue
            if not self._is_in_function:
                self._names = tuple(_assigned(statement))
            self.visit(statement)

    def visit_Assign(self, node: ast.Assign) -> None:
        if _assigned(node) != ["__all__"]:
            self.visit(node.value)
            if any(isinstance(one, ast.Attribute | ast.Subscript) for one in node.targets):
                self._add(node, "statement", "pass")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        for part in ast.walk(node.annotation):
            if isinstance(part, ast.Call):
                self.visit(part)
        if node.value is not None:
            self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        self._add(node, "statement", "pass")

    def visit_arg(self, node: ast.arg) -> None:
        """An annotation is not mutated."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Nor is the text of a message."""

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Yield | ast.YieldFrom):
            self._add(node, "statement", "pass" if self._is_async else "yield from ()")
        elif _LOGGED.match(self._text(node)):
            return
        elif isinstance(node.value, ast.Call | ast.Await):
            self._add(node, "statement", "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node, "raise", "pass")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None:
            self._add(node, "return", "pass")
            return
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._add(node.value, "return", "None")
        self.visit(node.value)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "loop", "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "loop", "continue")

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return
        self._negate(node.test)
        self.visit(node.test)
        self._body(node.body)
        self._body(node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._negate(test)
            self._add(test, "condition", "True")
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        """Unless negating is what another mutant of the same place does anyway."""
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            if isinstance(test.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                self._add(test, "condition", f"(not ({self._text(test)}))")
        elif not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            self._add(test, "condition", f"(not ({self._text(test)}))")

    # what mutants do

    def visit_Compare(self, node: ast.Compare) -> None:
        for at, operator in enumerate(node.ops):
            swapped = _COMPARE[type(operator)]()
            ops = [swapped if index == at else one for index, one in enumerate(node.ops)]
            changed = ast.Compare(node.left, ops, node.comparators)
            self._add(node, "comparison", f"({ast.unparse(changed)})")
        for side in (node.left, *node.comparators):
            if isinstance(side, ast.Constant) and isinstance(side.value, str):
                self._add(side, "text", repr(side.value + "?"))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        swapped = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._add(node, "and-or", f"({ast.unparse(ast.BoolOp(swapped, node.values))})")
        for at in range(len(node.values)):
            rest = [one for index, one in enumerate(node.values) if index != at]
            shorter = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
            self._add(node, "operand", f"({ast.unparse(shorter)})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, "not", f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        operator = _ARITHMETIC.get(type(node.op))
        is_text = any(isinstance(one, ast.JoinedStr) for one in (node.left, node.right))
        if operator is not None and not is_text:
            changed = ast.BinOp(node.left, operator(), node.right)
            self._add(node, "arithmetic", f"({ast.unparse(changed)})")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _CALLS:
            self._add(node.func, "any-all", _CALLS[node.func.id])
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        members = _ENUMS.get(node.value.id, ()) if isinstance(node.value, ast.Name) else ()
        if node.attr.isupper() and members:
            following = [*members, members[0]]
            at = following.index(node.attr) if node.attr in members else -1
            self._add(node, "outcome", f"{ast.unparse(node.value)}.{following[at + 1]}")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, "constant", str(not node.value))
        elif isinstance(node.value, int | float):
            for changed in (node.value + 1, node.value - 1):
                self._add(node, "constant", f"({changed!r})" if changed < 0 else repr(changed))


def _assigned(statement: ast.AST) -> list[str]:
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return [one.id for one in targets if isinstance(one, ast.Name)]


def _one_line(text: bytes) -> str:
    return " ".join(text.decode().split())


def with_marks(source: str, mark: Callable[[str], str]) -> str:
    """The source with one more statement at the start of each function, made from its name."""
    tree = ast.parse(source)
    for name, node in functions_in(tree):
        has_docstring = ast.get_docstring(node, clean=False) is not None
        node.body[int(has_docstring) : int(has_docstring)] = ast.parse(mark(name)).body
    return ast.unparse(tree)


def functions_in(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with its qualified name, as mutants name it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
            yield from functions_in(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from functions_in(node, f"{prefix}{node.name}.")
        else:
            yield from functions_in(node, prefix)
