"""NumPy's arrays and numbers as plain data; NumPy itself is loaded where one of them is sent."""

import importlib
import math
import re
import sys
from typing import Any

from rewards.sandbox.channel import ProtocolError

PLAIN_DTYPE = re.compile(r"[<>|](b1|[iu][1248]|f[248]|c(8|16)|[SU]\d+|[mM]8(\[\w+\])?)")


def pack(value: Any) -> tuple[str, tuple[int, ...] | None, bytes] | None:
    """(dtype, shape, bytes), with shape None for a number; None for what is no such thing, or of another dtype."""
    kind = type(value)
    numpy = sys.modules.get("numpy")
    if kind.__module__ != "numpy" or numpy is None:
        return None
    is_array = kind is numpy.ndarray
    if not (is_array or issubclass(kind, numpy.generic)) or not PLAIN_DTYPE.fullmatch(value.dtype.str):
        return None
    return value.dtype.str, value.shape if is_array else None, value.tobytes()


def build(dtype: str, shape: tuple[int, ...] | None, data: bytes) -> Any:
    """What `pack` was given. Raises ProtocolError and ValueError."""
    if not PLAIN_DTYPE.fullmatch(dtype):
        raise ProtocolError(f"no dtype of plain numbers: {dtype!r}")
    try:
        numpy = importlib.import_module("numpy")
    except ImportError as error:
        raise ProtocolError(f"an array, and no NumPy here: {error}") from None
    kind = numpy.dtype(dtype)
    if len(data) != kind.itemsize * math.prod(shape or ()):
        raise ProtocolError("an array whose shape and content differ")
    whole = numpy.frombuffer(data, kind) if data else numpy.empty(0, kind)
    return whole[0] if shape is None else whole.reshape(shape).copy()
