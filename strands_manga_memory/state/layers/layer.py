"""Layer: the typed, immutable value of one part of the state; every change makes a new one and is validated."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

_set = object.__setattr__
"""Past a frozen model's own ``__setattr__``, as pydantic's ``__setstate__`` does it."""


class Part(BaseModel):
    """Something a layer holds. Fields that a later release added are kept as they are."""

    model_config = ConfigDict(frozen=True, extra="allow")

    @classmethod
    def made(cls, **fields: Any) -> Self:
        """Return one of values that are known to be allowed: they are not looked at, which takes a fifth of the time."""
        made: Self = _blank(cls).replaced(**fields)
        return made

    def changed(self, **fields: Any) -> Self:
        """Return this with other values in some fields.

        Raises:
            ValueError: A value is not allowed.
        """
        return type(self).model_validate({**dict(self), **fields})

    def replaced(self, **fields: Any) -> Self:
        """Return this with other values in some fields, which are known to be allowed: they are not looked at again.

        It is ``model_copy`` for what is never changed in place and has no private attributes, in a third of the time.
        """
        made = type(self).__new__(type(self))
        _set(made, "__dict__", {**self.__dict__, **fields})
        _set(made, "__pydantic_extra__", self.__pydantic_extra__)
        _set(made, "__pydantic_fields_set__", self.__pydantic_fields_set__ | fields.keys())
        _set(made, "__pydantic_private__", None)
        return made


@lru_cache
def _blank(part: type[Part]) -> Any:
    required = (name for name, field in part.model_fields.items() if field.is_required())
    return part.model_construct(**dict.fromkeys(required))  # in the order of the fields, as what was validated stands in it


class Layer(Part):
    """A part of the state that is stored under a key of its own, with the version of its format."""

    KEY: ClassVar[str]
    """Its key in ``agent.state``."""

    VERSION: ClassVar[int] = 1

    def stored(self) -> str:
        """Return the form in which it is stored: JSON text, without what has its default.

        A text, because Strands copies and checks whatever is in ``agent.state`` whenever it is set or saved, and a text is one
        value to copy.
        """
        text = self.model_dump_json(exclude_defaults=True)
        comma = "," if len(text) > 2 else ""
        return f'{text[:-1]}{comma}"version":{self.VERSION}}}'  # as a further field it would take three times as long
