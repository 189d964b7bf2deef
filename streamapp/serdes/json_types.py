"""Types for JSON: the classes that a parser can make, and the values that a type stands for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import NoneType
from typing import Any
from uuid import UUID

from msgspec import inspect as mi

from streamapp.serdes.types import bare, has_limits, members, parts_of

__all__ = ["doubtful", "fits", "has_other_keys", "unmade"]

_PARSED = (dict, list, str, int, float, bool, NoneType)
_CLASSES: dict[type[mi.Type], frozenset[type]] = {
    mi.NoneType: frozenset({NoneType}),
    mi.BoolType: frozenset({bool}),
    mi.IntType: frozenset({int}),
    mi.FloatType: frozenset({float, int}),
    mi.StrType: frozenset({str}),
    mi.BytesType: frozenset({bytes}),
    mi.DateTimeType: frozenset({datetime}),
    mi.DateType: frozenset({date}),
    mi.TimeType: frozenset({time}),
    mi.TimeDeltaType: frozenset({timedelta}),
    mi.UUIDType: frozenset({UUID}),
    mi.DecimalType: frozenset({Decimal}),
}
_ORDERED, _SETS = frozenset({list, tuple}), frozenset({set, frozenset})
_OBJECTS = mi.StructType | mi.DataclassType | mi.NamedTupleType | mi.EnumType


def unmade(type_: Any) -> type | None:
    """A class whose objects the JSON parser cannot make, found in the type, such as a model of pydantic; else None.

    >>> class Plain: ...
    >>> unmade(dict[str, list[Plain]]).__name__, unmade(list[object])
    ('Plain', None)
    """
    for info in parts_of(mi.type_info(type_)):
        if isinstance(info, mi.CustomType) and not any(issubclass(made, info.cls) for made in _PARSED):
            return info.cls
    return None


def has_other_keys(type_: Any) -> bool:
    """True if the type has a dict whose keys are not text, for example numbers or dates.

    A dict with keys of more than one kind also gives False, because a reader could not tell the text "2" from the
    number 2.

    >>> has_other_keys(list[dict[int, str]]), has_other_keys(dict[str, int]), has_other_keys(dict[str | int, int])
    (True, False, False)
    """
    found = [
        _key_kinds(part.key_type) for part in parts_of(mi.type_info(type_)) if isinstance(part, mi.DictType)
    ]
    return all(len(kinds) == 1 for kinds in found) and any(kinds != {str} for kinds in found)


def _key_kinds(info: mi.Type) -> set[type]:
    """The kinds of keys. Keys of any class count as text; ints and floats are one kind."""
    kinds: set[type] = set()
    for member in members(info):
        match member:
            case mi.NoneType():
                pass  # no writer takes None as a key
            case mi.StrType() | mi.AnyType() | mi.CustomType():
                kinds.add(str)
            case mi.LiteralType(values=values):
                kinds |= {float if isinstance(value, int) else str for value in values}
            case mi.IntType() | mi.FloatType():
                kinds.add(float)
            case _:
                kinds.add(type(member))
    return kinds


def doubtful(type_: Any) -> bytes | None:
    """Bytes that written JSON contains if the parser may refuse this JSON, although the classes of the value fit the
    type. None: the parser refuses nothing.

    The parser refuses values beyond the limits of ``msgspec.Meta``. For a type with limits the result is empty bytes,
    which all JSON contains. The parser also refuses the null that a writer makes from NaN and infinity, unless the type
    takes None there. For a type with floats, the result is therefore ``b"null"``.

    >>> doubtful(list[float]), doubtful(list[int])
    (b'null', None)
    """
    info = mi.type_info(type_)
    if has_limits(info):
        return b""
    return b"null" if any(isinstance(part, mi.FloatType) for part in parts_of(info)) else None


def fits(type_: Any) -> Callable[[Any], bool]:
    """A quick test of the classes of a value and of the items inside it. True means that all these classes fit.

    After True, fields of objects or limits of ``msgspec.Meta`` may still be wrong. After False, the caller has to
    validate the value, because a value without a known class may fit nevertheless.

    >>> test = fits(dict[str, list[int]])
    >>> test({"a": [1, 2]}), test({"a": [1, "b"]}), test([])
    (True, False, False)
    """
    return _test(mi.type_info(type_))


def _test(info: mi.Type) -> Callable[[Any], bool]:
    match info := bare(info):
        case mi.AnyType():
            return lambda value: True
        case mi.ListType(item_type=item) | mi.VarTupleType(item_type=item):
            return _collection(_ORDERED, item)
        case mi.SetType(item_type=item) | mi.FrozenSetType(item_type=item):
            return _collection(_SETS, item)
        case mi.DictType(key_type=key, value_type=item):
            keys, values = _all(key), _all(item)
            return lambda value: type(value) is dict and keys(value) and values(value.values())
    classes = _classes(info)
    if classes is None:
        return lambda value: False
    return lambda value: type(value) in classes


def _collection(outer: frozenset[type], item: mi.Type) -> Callable[[Any], bool]:
    items = _all(item)
    return lambda value: type(value) in outer and items(value)


def _all(info: mi.Type) -> Callable[[Any], bool]:
    """A test of all items at once. The test looks at the set of their classes, which costs less than a test of each
    item."""
    if isinstance(info, mi.AnyType):
        return lambda items: True
    classes = _classes(info)
    if classes is not None:
        return lambda items: classes.issuperset(map(type, items))
    test = _test(info)
    return lambda items: all(map(test, items))


def _classes(info: mi.Type) -> frozenset[type] | None:
    """The classes of a type's values; None if the class of a value does not tell whether the value fits."""
    info = bare(info)
    if isinstance(info, mi.UnionType):
        found = [_classes(each) for each in members(info)]
        return None if None in found else frozenset(cls for each in found for cls in each or ())
    if isinstance(info, _OBJECTS):
        return frozenset({info.cls})
    return _CLASSES.get(type(info))
