"""Rewrites the `assert` statements of a module, so that one that fails shows its values.

Each operand is passed through a recorder while it is evaluated, so nothing is evaluated twice. As
pytest does, only modules that are imported for it are rewritten, not the modules that they import.
"""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.machinery import SourceFileLoader
from traceback import walk_tb
from types import CodeType, FrameType, ModuleType
from typing import Any

from holodeck.lib.support.source_files import (
    display_code_path,
    is_testing_library,
    is_users_file,
)
from holodeck.lib.support.text import message_of

_NEW, _RECORD = "@new_assert", "@assert"
"""Names of a rewritten module, which no source can contain."""
_MAX_VALUE = 200
_OPERATORS = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_run: ContextVar[list[int] | None] = ContextVar("holodeck_asserts", default=None)


@contextmanager
def count_asserts() -> Iterator[list[int]]:
    """Collect the lines of the rewritten asserts that run inside the block."""
    lines: list[int] = []
    token = _run.set(lines)
    try:
        yield lines
    finally:
        _run.reset(token)


class AssertLoader(SourceFileLoader):
    """Loads a module with rewritten asserts; it neither reads nor writes cached bytecode."""

    def get_code(self, fullname: str) -> CodeType | None:
        source = self.get_data(self.path)
        if b"assert" not in source:
            return super().get_code(fullname)
        tree = _Rewriter().visit(ast.parse(source, self.path))
        return compile(ast.fix_missing_locations(tree), self.path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[_NEW] = _Record
        super().exec_module(module)


class _Record:
    """The values of an assert that runs."""

    def __init__(self, line: int) -> None:
        self.values: dict[tuple[int, int, int | None, int | None], Any] = {}
        lines = _run.get()
        if lines is not None:
            lines.append(line)

    def __call__(self, value: Any, *place: int) -> Any:
        self.values[place] = value  # type: ignore[index]
        return value


class _Rewriter(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        line = ast.Constant(node.lineno)
        new = ast.Call(ast.Name(_NEW, ast.Load()), [line], [])
        record = ast.Assign([ast.Name(_RECORD, ast.Store())], new)
        test = ast.Assert(_recorded(node.test), node.msg)
        return [ast.copy_location(statement, node) for statement in (record, test)]


def _recorded(node: ast.expr) -> ast.expr:
    """Return the expression with each operand passed through the recorder."""
    match node:
        case ast.BoolOp():
            new: ast.expr = ast.BoolOp(node.op, [_recorded(value) for value in node.values])
        case ast.UnaryOp(op=ast.Not()):
            new = ast.UnaryOp(node.op, _recorded(node.operand))
        case ast.Compare():
            operands = [_recorded(operand) for operand in node.comparators]
            new = ast.Compare(_recorded(node.left), node.ops, operands)
        case ast.Constant() | ast.NamedExpr() | ast.Await() | ast.Yield() | ast.YieldFrom():
            return node
        case ast.Call():
            arguments = [
                value if isinstance(value, ast.Starred) else _recorded(value) for value in node.args
            ]
            new = _through_record(node, ast.Call(node.func, arguments, node.keywords))
        case _:
            new = _through_record(node, node)
    return ast.copy_location(new, node)


def _through_record(place: ast.expr, value: ast.expr) -> ast.Call:
    ast.copy_location(value, place)
    numbers = [ast.Constant(number) for number in _place(place)]
    return ast.Call(ast.Name(_RECORD, ast.Load()), [value, *numbers], [])


def _place(node: ast.expr) -> tuple[int, int, int | None, int | None]:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def describe_failed_assert(error: AssertionError) -> str | None:
    """Return what did not hold, with its values and its place.

    None if code that is neither the user's nor that of a testing library raised the error: that is
    a fault, not a verdict.
    """
    frames = list(walk_tb(error.__traceback__))
    users = [place for place in frames if is_users_file(place[0].f_code.co_filename)]
    last = frames[-1][0].f_code.co_filename if frames else ""
    if not users or not (frames[-1] is users[-1] or is_testing_library(last)):
        return None
    frame, line = users[-1]
    message = " ".join(message_of(error).split())
    shown = _statement_at(frame, line) if frames[-1] is users[-1] else None
    text = ": ".join(filter(None, (message, shown))) or "an assertion failed"
    return f"{text} ({display_code_path(frame.f_code.co_filename)}:{line})"


def _statement_at(frame: FrameType, line: int) -> str | None:
    """Return the assert that a frame stopped at, with its values; None if it is not one."""
    try:
        with open(frame.f_code.co_filename, "rb") as file:  # noqa: PTH123 - a str
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None
    asserts = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    around = [node for node in asserts if node.lineno <= line <= (node.end_lineno or 0)]
    if not around:
        return None
    test = around[-1].test
    record = frame.f_locals.get(_RECORD)
    if not isinstance(record, _Record):
        return f"assert {ast.unparse(test)}"
    explanation = _Explanation(record)
    values = explanation.text(test)
    sources = dict.fromkeys(explanation.sources)
    return f"assert {values}" + (f", where {' and '.join(sources)}" if sources else "")


class _Explanation:
    """The text of an assert with values in place of its operands."""

    def __init__(self, record: _Record) -> None:
        self._values = record.values
        self.sources: list[str] = []
        """What the values are, such as `7 = len(words)`."""

    def text(self, node: ast.expr) -> str:
        """Return the expression with its values; operands that were not reached stay as written."""
        match node:
            case ast.BoolOp():
                word = " and " if isinstance(node.op, ast.And) else " or "
                return f"({word.join(self.text(value) for value in node.values)})"
            case ast.UnaryOp(op=ast.Not()):
                return f"not {self.text(node.operand)}"
            case ast.Compare():
                parts = [self.text(node.left)]
                for operator, operand in zip(node.ops, node.comparators, strict=True):
                    parts += [_OPERATORS[type(operator)], self.text(operand)]
                return " ".join(parts)
        if _place(node) not in self._values:
            return ast.unparse(node)
        shown = _shown(self._values[_place(node)])
        self.sources.append(f"{shown} = {ast.unparse(node)}")
        if isinstance(node, ast.Call):
            for argument in node.args:
                if not isinstance(argument, ast.GeneratorExp | ast.Lambda):  # it shows an address
                    self.text(argument)
        return shown


def _shown(value: Any) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception as error:  # noqa: BLE001 - the user's object may raise anything
        return f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…"
