"""Plain data as JSON: atoms are themselves, everything else is [tag, payload].

Only exact types are plain. What else there is (an object of some class, a subclass of a plain type, a function, an
exception) is up to `opaque` of the side that sends. So no `__eq__` of the solution's ever meets an expected value.
"""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from fractions import Fraction
from types import EllipsisType, NoneType
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from rewards.sandbox import arrays
from rewards.sandbox.channel import ProtocolError

OBJECT, CALLBACK, ITERATOR, NAMED = "object", "callback", "iterator", "namedtuple"
SUBCLASS, CONTAINER, CLASS, ERROR, COROUTINE = "subclass", "container", "class", "error", "coroutine"
ARRAY, TYPE, BIG_INT = "array", "type", "int"
LARGEST_JSON_INT = 1 << 53
ATOMS = (NoneType, bool, str, float)
SEQUENCES = {t.__name__: t for t in (list, tuple, set, frozenset)}
MUTABLE = (list, dict, set, bytearray, deque, defaultdict, OrderedDict, Counter)

Opaque = Callable[[Any], list[Any]]


class Form(NamedTuple):
    """How a type goes over: into simpler plain data, and back."""

    pack: Callable[[Any], Any]
    build: Callable[[Any], Any]


def _zone(value: datetime | time) -> tzinfo | None:
    zone, offset = value.tzinfo, value.utcoffset()
    return zone if type(zone) in (NoneType, timezone, ZoneInfo) or offset is None else timezone(offset)


DICT_KEYS: type[Any] = type({}.keys())
DICT_VALUES: type[Any] = type({}.values())
DICT_ITEMS: type[Any] = type({}.items())
FORMS: dict[type[Any], Form] = {
    bytes: Form(bytes.hex, bytes.fromhex),
    bytearray: Form(bytearray.hex, bytearray.fromhex),
    memoryview: Form(lambda v: (v.tobytes(), v.format, v.shape), lambda p: memoryview(p[0]).cast(p[1], p[2])),
    complex: Form(lambda v: (v.real, v.imag), lambda p: complex(*p)),
    Decimal: Form(str, Decimal),
    Fraction: Form(lambda v: (v.numerator, v.denominator), lambda p: Fraction(*p)),
    range: Form(lambda v: (v.start, v.stop, v.step), lambda p: range(*p)),
    slice: Form(lambda v: (v.start, v.stop, v.step), lambda p: slice(*p)),
    EllipsisType: Form(lambda _: None, lambda _: ...),
    OrderedDict: Form(lambda v: list(v.items()), OrderedDict),
    Counter: Form(dict, Counter),
    defaultdict: Form(lambda v: (v.default_factory, dict(v)), lambda p: defaultdict(*p)),
    deque: Form(lambda v: (list(v), v.maxlen), lambda p: deque(*p)),
    DICT_KEYS: Form(list, lambda p: dict.fromkeys(p).keys()),
    DICT_VALUES: Form(list, lambda p: dict(enumerate(p)).values()),
    DICT_ITEMS: Form(list, lambda p: dict(p).items()),
    date: Form(date.isoformat, date.fromisoformat),
    time: Form(
        lambda v: (v.replace(tzinfo=None).isoformat(), _zone(v), v.fold),
        lambda p: time.fromisoformat(p[0]).replace(tzinfo=p[1], fold=p[2]),
    ),
    datetime: Form(
        lambda v: (v.replace(tzinfo=None).isoformat(), _zone(v), v.fold),
        lambda p: datetime.fromisoformat(p[0]).replace(tzinfo=p[1], fold=p[2]),
    ),
    timedelta: Form(lambda v: (v.days, v.seconds, v.microseconds), lambda p: timedelta(*p)),
    timezone: Form(lambda v: (v.utcoffset(None), v.tzname(None)), lambda p: timezone(*p)),
    ZoneInfo: Form(lambda v: v.key, ZoneInfo),
}
PLAIN: tuple[Any, ...] = (*ATOMS, int, dict, object, type, *SEQUENCES.values(), *FORMS)
TYPES = {kind.__name__: kind for kind in PLAIN}
BUILDERS = {kind.__name__: FORMS[kind].build for kind in PLAIN if kind in FORMS}


def encode(value: Any, opaque: Opaque) -> Any:
    """JSON-able form; `opaque` decides about what is not plain, and may raise."""
    kind: Any = type(value)
    name = kind.__name__
    if kind in ATOMS:
        return value
    if kind is int:
        return value if -LARGEST_JSON_INT < value < LARGEST_JSON_INT else [BIG_INT, hex(value)]
    if SEQUENCES.get(name) is kind:
        return [name, [encode(item, opaque) for item in value]]
    if kind is dict:
        return ["dict", [[encode(k, opaque), encode(v, opaque)] for k, v in value.items()]]
    if (form := FORMS.get(kind)) is not None:
        return [name, encode(form.pack(value), opaque)]
    if issubclass(kind, type) and TYPES.get(type_name := getattr(value, "__name__", "")) is value:
        return [TYPE, type_name]
    if (packed := arrays.pack(value)) is not None:
        return [ARRAY, encode(packed, opaque)]
    return opaque(value)


def decode(wire: Any, opaque: Callable[[str, Any], Any]) -> Any:
    """The value of `encode`. Raises ProtocolError for anything else, and for nesting too deep."""
    try:
        return _decode(wire, opaque)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ProtocolError(f"no plain data: {error}") from None


def _decode(wire: Any, opaque: Callable[[str, Any], Any]) -> Any:
    if not isinstance(wire, (list, dict)):
        return wire
    tag, payload = wire
    if tag == BIG_INT:
        return int(payload, 16)
    if tag in SEQUENCES:
        return SEQUENCES[tag](_decode(item, opaque) for item in payload)
    if tag == "dict":
        return {_decode(k, opaque): _decode(v, opaque) for k, v in payload}
    if tag in BUILDERS:
        return BUILDERS[tag](_decode(payload, opaque))
    if tag == TYPE:
        return TYPES[payload]
    if tag == ARRAY:
        return arrays.build(*_decode(payload, opaque))
    return opaque(tag, payload)
