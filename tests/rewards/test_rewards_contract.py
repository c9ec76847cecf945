import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from rewards.calling.logs import LogSink
from rewards.contract import FunctionSpec, SpecError, check_returned, short_repr, spec_from_mapping
from rewards.json_codec import encode

GOOD: dict[str, tuple[str | None, Any, list[float | None]]] = {
    "floats": (None, [1.0, 0.5], [1.0, 0.5]),
    "ints and bools": (None, [1, True], [1.0, 1.0]),
    "none": (None, [None, 2], [None, 2.0]),
    "tuple": (None, (1, 2), [1.0, 2.0]),
    "numpy array": (None, np.array([1.0, 2.0], dtype=np.float32), [1.0, 2.0]),
    "numpy scalars": (None, [np.float32(1.5), np.bool_(True)], [1.5, 1.0]),
    "dicts": ("score", [{"score": 1, "extra": 3}, {"score": None}], [1.0, None]),
}

# name -> (key, returned, sample index that must be named, words that must be said)
BAD: dict[str, tuple[str | None, Any, int | None, str]] = {
    "nan": (None, [0.0, math.nan], 8, "NaN"),
    "inf": (None, [math.inf, 0.0], 7, "infinite"),
    "string item": (None, ["1.0", 1.0], 7, "str"),
    "list item": (None, [[1.0], 1.0], 7, "list"),
    "huge int": (None, [10**400, 1.0], 7, "beyond the range"),
    "complex": (None, [1j, 1.0], 7, "complex"),
    "string": (None, "ab", None, "a str"),
    "set": (None, {0.0, 1.0}, None, "a set"),
    "dict": (None, {"score": 1}, None, "a dict"),
    "scalar": (None, 1.0, None, "a float"),
    "nothing": (None, None, None, "a NoneType"),
    "generator": (None, (x for x in (1.0, 2.0)), None, "a generator"),
    "short tuple": (None, (1.0,), None, "1 items"),
    "long list": (None, [1.0] * 3, None, "3 items"),
    "2d array": (None, np.zeros((2, 1)), None, "ndarray"),
    "dict without key configured": (None, [{"score": 1.0}, 1.0], 7, "no `key` is configured"),
    "dict without the key": ("reward", [{"score": 1.0}, {"reward": 1.0}], 7, "'reward'"),
    "key on a scalar": ("reward", [{"reward": 1.0}, 1.0], 8, "a dict was expected"),
    "nan in dict": ("reward", [{"reward": math.nan}, {"reward": 1.0}], 7, "NaN"),
}


class NoFloat(float):
    def __float__(self) -> float:
        raise RuntimeError("no float")


class NoItem(float):
    shape = ()

    def item(self) -> float:
        raise RuntimeError("no item")


class NoLength(list[Any]):
    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __iter__(self) -> Any:
        raise RuntimeError("no items")


class NoDimensions:
    @property
    def ndim(self) -> int:
        raise RuntimeError("no dimensions")


class NoEntries(dict[Any, Any]):
    def __contains__(self, key: object) -> bool:
        raise RuntimeError("no entries")


class NoText(str):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __len__ = __str__  # type: ignore[assignment]


# What raises when it is looked at.
BAD |= {
    "no float": (None, [1.0, NoFloat(1.0)], 8, "NoFloat that raised RuntimeError when it was read (no float)"),
    "no item": (None, [NoItem(1.0), 1.0], 7, "(no item)"),
    "no length": (None, NoLength([1.0, 1.0]), None, "(no items)"),
    "no dimensions": (None, NoDimensions(), None, "(no dimensions)"),
    "no entries": ("reward", [{"reward": 1.0}, NoEntries(reward=1.0)], 8, "(no entries)"),
    "no text": (None, [1.0, NoText("1")], 8, "NoText instead of a number"),
    "tensor without data": (None, torch.empty(2, device="meta"), None, "NotImplementedError"),
    "sparse tensor": (None, torch.ones(2).to_sparse(), None, "RuntimeError"),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_returns(name: str) -> None:
    key, returned, values = GOOD[name]
    checked = check_returned("f", key, returned, (7, 8))
    assert checked.values == values
    assert not checked.failures


@pytest.mark.parametrize("name", BAD)
def test_bad_returns_name_function_sample_and_value(name: str) -> None:
    key, returned, index, words = BAD[name]
    checked = check_returned("f", key, returned, (7, 8))
    (failure,) = checked.failures
    assert failure.function == "f"
    assert failure.index == index
    assert failure.value
    assert words in failure.message
    assert checked.values[0 if index == 7 else 1] is None


def test_other_numeric_keys_are_logs() -> None:
    checked = check_returned("f", "r", [{"r": 1.0, "len": 4, "note": "x"}, {"r": 0.0}], (0, 1))
    assert checked.logs == {"len": [4.0, None]}


def test_logs_take_whatever_keys_there_are() -> None:
    item = {"r": 1.0, None: 2.0, (1, 2): 3.0, NoText("k"): 4.0, "kept": NoFloat(5.0), "huge": 10**5000}
    checked = check_returned("f", "r", [item], (0,))
    assert checked.values == [1.0]
    assert {key: type(key) for key in checked.logs} == dict.fromkeys(
        ("None", "(1, 2)", "<NoText whose repr raised RuntimeError>"), str
    )


@pytest.mark.parametrize(
    ("value", "logged"),
    [
        (1.5, 1.5),
        (math.nan, None),
        (NoFloat(2.0), 2.0),
        (NoItem(2.0), "2.0"),
        (2**70, 2**70),
        (True, True),
        (np.float32(0.5), 0.5),
        (NoText("a"), "a"),
        (10**5000, "<int whose repr raised ValueError>"),
        (torch.empty((), device="meta"), "tensor(..., device='meta', size=())"),
    ],
    ids=itertools.count(),
)
def test_what_is_logged_fits_into_json(value: object, logged: object) -> None:
    sink = LogSink(1)
    sink.metric("m", value)
    sink.extra(NoText("e"), [value])  # noqa: S610  no Django here
    columns = [column for (column,) in sink.logs.values()]
    assert columns == [logged, logged]
    assert {type(column) for column in columns} == {type(logged)}
    encode(sink.logs)


def test_a_unit_of_one_names_its_sample() -> None:
    assert check_returned("f", None, [], (5,)).failures[0].index == 5


def test_broken_repr_is_survived() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert "Broken" in short_repr(Broken())
    assert check_returned("f", None, [Broken()], (0,)).failures


def test_specs() -> None:
    assert spec_from_mapping({"target": "a.py:f"}) == FunctionSpec("f", "a.py:f")
    assert spec_from_mapping({"target": "format", "name": None, "params": None}) == FunctionSpec("format", "format")
    with pytest.raises(SpecError, match="did you mean 'weight'"):
        spec_from_mapping({"target": "a.py:f", "wieght": 2})
    with pytest.raises(SpecError, match="finite"):
        FunctionSpec("f", "a.py:f", weight=math.nan)
    with pytest.raises(SpecError, match="granularity"):
        spec_from_mapping({"target": "a.py:f", "granularity": "token"})
    with pytest.raises(SpecError, match="target"):
        spec_from_mapping({"name": "f"})
