"""Checks of arguments. A failed check raises an error with the name of the wrong argument.

A check takes the argument's name and its value: ``check_int("limit", limit, minimum=1)``.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from numbers import Integral, Real
from types import SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

_T = TypeVar("_T")
_Call = TypeVar("_Call", bound=Callable[..., Any])

Clock = Callable[[], float]
"""Function that returns seconds."""

Count = Annotated[int, lambda number: number >= 0]
"""Whole number of 0 or more. ``checked`` checks the ranges of these types."""
PositiveInt = Annotated[int, lambda number: number > 0]
Seconds = Annotated[float, lambda seconds: seconds >= 0]
Finite = Annotated[float, math.isfinite]
Positive = Annotated[float, lambda number: number > 0]
PositiveSeconds = Annotated[float, lambda seconds: seconds > 0]
FiniteSeconds = Annotated[float, lambda seconds: 0 < seconds < math.inf]
Share = Annotated[float, lambda share: 0 <= share <= 1]
PositiveShare = Annotated[float, lambda share: 0 < share <= 1]
Text = Annotated[str, str.strip]
"""Text that is not blank."""

_COLLECTIONS = (Collection, Iterable, Sequence)
_SECRETS = ("Cipher", "Codec", "bytes")
"""Annotations of arguments that may have a secret key as a value, so that errors do not show the
value.
"""
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "True or False",
    "str": "a text",
    "Clock": "a function that returns seconds",
    "Count": "a whole number of 0 or more",
    "PositiveInt": "a positive whole number",
    "Seconds": "0 or more seconds",
    "Finite": "a finite number",
    "FiniteSeconds": "a finite positive number of seconds",
    "Positive": "a positive number",
    "PositiveSeconds": "a positive number of seconds",
    "Share": "from 0 to 1",
    "PositiveShare": "over 0 to 1",
    "Text": "a text that is not empty",
    "Model": "a Strands model",
    "Mapping[str, Any]": "a mapping",
    "Callable[[], str]": "a function that returns a text",
    "Sequence[Any]": "a list",
    "Sequence[str]": "a list of texts",
    "Mapping[str, Fallbacks]": "a mapping such as {'search_web': 'search_catalogue'}",
}


def checked(call: _Call) -> _Call:
    """Decorate a function so that a wrong argument raises an error that names the argument.

    Values must have their annotated types. Types imported only for type checkers are not checked.
    For a class, such as a dataclass, the arguments of its constructor are checked.

    Raises:
        TypeError: An argument is unknown, missing or given twice.
        ValueError: An argument has a wrong type. The message shows the value, unless it may be a
            secret key.
    """
    if isinstance(call, type):
        setattr(call, "__init__", checked(vars(call)["__init__"]))  # noqa: B010 - mypy refuses it
        return call
    parameters = inspect.signature(call).parameters
    takes_others = any(each.kind is each.VAR_KEYWORD for each in parameters.values())

    @functools.cache
    def kind_of(name: str) -> Any:
        annotated: Any = SimpleNamespace(__annotations__={name: parameters[name].annotation})
        with suppress(NameError):
            return get_type_hints(annotated, call.__globals__, include_extras=True)[name]
        return Any

    @functools.wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not takes_others:
            _refuse_unknown(kwargs, parameters)
        for name, value in [*zip(parameters, args, strict=False), *kwargs.items()]:
            if (
                name in parameters
                and name != "self"
                and not _has_type(value, kind := kind_of(name))
            ):
                words = parameters[name].annotation
                secret = any(each in words for each in _SECRETS)
                raise ValueError(_wrong_type_text(name, value, kind, words, is_secret=secret))
        return call(*args, **kwargs)

    return cast("_Call", run)


def with_repr(*names: str) -> Callable[[type[_T]], type[_T]]:
    """Return a class decorator that adds a ``__repr__`` with the values of the named attributes.

    The text shows the names without leading underscores.
    """

    def decorate(kind: type[_T]) -> type[_T]:
        def show(self: _T) -> str:
            values = (f"{name.lstrip('_')}={getattr(self, name)!r}" for name in names)
            return f"{type(self).__name__}({', '.join(values)})"

        kind.__repr__ = show  # type: ignore[assignment, method-assign]
        return kind

    return decorate


def _refuse_unknown(given: Iterable[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            raise TypeError(unknown_setting_text(name, known))


def _has_type(value: Any, kind: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, UnionType):
        return any(_has_type(value, part) for part in parts)
    if origin is Annotated:
        return _has_type(value, parts[0]) and bool(parts[1](value))
    if origin is Literal:
        return type(value) in map(type, parts) and value in parts
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    if kind in (int, float):
        # A whole number over the largest float fails where it is added to a time.
        is_endless = kind is float and isinstance(value, int) and abs(value) > sys.float_info.max
        return isinstance(value, Integral if kind is int else Real) and not is_endless
    is_typed_dict = hasattr(kind, "__total__")
    kind = Sequence if origin is tuple else Mapping if is_typed_dict else origin or kind
    if Protocol in getattr(kind, "__bases__", ()):
        return type(value) not in (str, list, dict) and not missing_methods(value, kind)
    if not isinstance(kind, type):
        return True
    if not isinstance(value, kind) or (isinstance(value, str) and kind in _COLLECTIONS):
        return False
    if isinstance(value, Mapping) and len(parts) == 2:
        return all(
            _has_type(key, parts[0]) and _has_type(each, parts[1]) for key, each in value.items()
        )
    return (
        kind not in _COLLECTIONS
        or not isinstance(value, list | tuple)
        or all(_has_type(each, parts[0]) for each in value)
    )


def missing_methods(value: Any, protocol: type) -> list[str]:
    """Return the names of the methods that a protocol requires and an object lacks."""
    methods = [name for name in vars(protocol) if name == "__call__" or not name.startswith("_")]
    return [name for name in methods if not hasattr(value, name)]


def _wrong_type_text(name: str, value: Any, kind: Any, annotation: str, *, is_secret: bool) -> str:
    lacks = ""
    parts_of = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for part in parts_of:
        if Protocol in getattr(part, "__bases__", ()) and not isinstance(
            value, str | int | float | list | dict
        ):
            methods = ", ".join(missing_methods(value, part))
            lacks = f" of the class {type(value).__name__}, which lacks {methods}"
        origin, parts = get_origin(part), get_args(part)
        items: Iterable[tuple[Any, Any]] = ()
        if origin is Mapping and isinstance(value, Mapping):
            items, of_item = value.items(), parts[1]
        elif origin in (tuple, *_COLLECTIONS) and isinstance(value, list | tuple):
            items, of_item = enumerate(value), parts[0]
        for key, item in items:
            if not _has_type(item, of_item):
                return _wrong_type_text(
                    f"{name}[{key!r:.80}]",
                    item,
                    of_item,
                    getattr(of_item, "__name__", str(of_item)),
                    is_secret=is_secret,
                )
    words = annotation.split(" | ")
    for at, part in enumerate(parts_of[: len(words)]):
        if get_origin(part) is Literal:
            words[at] = f"one of {', '.join(map(repr, get_args(part)))}"
    allowed = " or ".join(_WORDS.get(each, each) for each in words)
    shown = f"a value of type {type(value).__name__}" if is_secret else f"{value!r:.80}"
    return f"{name} must be {allowed}, got {shown}{lacks}"


def unknown_setting_text(name: str, known: Iterable[str], others: Iterable[str] = ()) -> str:
    """Return an error text for an unknown setting, with the closest known name if one is close.

    Args:
        name: The unknown name.
        known: Names that the called function accepts. They are listed if no name is close.
        others: Names accepted by a related function. They may be suggested, but are never listed.
    """
    known = [each for each in known if each != "self"]
    close = difflib.get_close_matches(name, [*known, *others], n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"There are {', '.join(known)}"
    return f"Unknown setting {name!r:.80}. {hint}"


def check_int(name: str, value: object, *, minimum: int) -> int:
    """Return ``value`` if it is a whole number, ``minimum`` or more; else raise a ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        least = (
            "a positive whole number" if minimum == 1 else f"a whole number of {minimum} or more"
        )
        raise ValueError(f"{name} must be {least}, got {value!r:.80}")
    return value


def check_instance(name: str, value: object, kind: type[_T], description: str = "") -> _T:
    """Return ``value`` if it is an instance of ``kind``; otherwise raise a ValueError.

    ``description`` of the expected value appears in the error. Default: the name of ``kind``.
    """
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {description or f'a {kind.__name__}'}, got {value!r:.80}")
    return value


def check_protocol(name: str, value: _T, protocol: type, description: str) -> _T:
    """Return ``value`` if it has all methods of ``protocol``; otherwise raise a ValueError.

    ``description`` describes the expected object in the error.
    """
    if not _has_type(value, protocol):
        raise ValueError(_wrong_type_text(name, value, protocol, description, is_secret=False))
    return value


def check_callable(name: str, value: _T, description: str = "a function") -> _T:
    """Return ``value`` if it is callable; otherwise raise a ValueError.

    ``description`` describes the expected function in the error.
    """
    if not callable(value):
        raise ValueError(f"{name} must be {description}, got {value!r:.80}")
    return value


def check_method(name: str, value: Any, method: str, description: str = "") -> Any:
    """Return ``value`` if it has the method ``method``; otherwise raise a ValueError.

    ``method`` is the method's name with its parameters, such as ``count(message)``. The error
    contains ``description`` or, without a description, ``method``.
    """
    if not callable(getattr(value, method.partition("(")[0], None)):
        expected = f"be {description}" if description else f"have a method {method}"
        raise ValueError(f"{name} must {expected}, got {value!r:.80}")
    return value
