"""Tools that need no server: a calculator and a clock."""

from __future__ import annotations

import ast
import operator
from datetime import datetime
from zoneinfo import ZoneInfo

from strands import tool

_OPERATIONS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@tool
def calculator(expression: str) -> str:
    """Work out what something costs.

    Args:
        expression: Numbers with +, -, *, / and parentheses, such as ``(680 * 2 + 594) * 1.1``.
    """
    return f"{_value(ast.parse(expression.strip(), mode='eval').body):.10g}"


def _value(term: ast.expr) -> float:
    if isinstance(term, ast.Constant) and isinstance(term.value, int | float):
        return term.value
    if isinstance(term, ast.UnaryOp) and isinstance(term.op, ast.USub):
        return -_value(term.operand)
    if isinstance(term, ast.BinOp) and type(term.op) in _OPERATIONS:
        return float(_OPERATIONS[type(term.op)](_value(term.left), _value(term.right)))
    raise ValueError(
        f"{ast.unparse(term)!r} is no number and no sum, difference, product or quotient"
    )


@tool
def current_time(timezone: str = "UTC") -> str:
    """Tell what time it is.

    Args:
        timezone: Such as ``Asia/Tokyo``.
    """
    return datetime.now(ZoneInfo(timezone)).isoformat()
