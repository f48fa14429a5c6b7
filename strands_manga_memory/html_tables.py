"""HTML tables for reports in notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any


def render_html(value: object) -> str:
    """Render a value as HTML for a notebook, with tables for mappings, lists and dataclasses.

    Special characters of HTML are escaped in all texts.
    """
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        rows = [
            f"<th>{escape(str(name))}</th><td>{render_html(each)}</td>"
            for name, each in value.items()
        ]
    elif isinstance(value, list | tuple):
        rows = [f"<td>{render_html(each)}</td>" for each in value]
    else:
        return escape(str(value))
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


class ReportDict(dict[str, Any]):
    """Dict that a notebook displays as a table."""

    _repr_html_ = render_html


class ReportList(list[Any]):
    """List that a notebook displays as a table."""

    _repr_html_ = render_html
