import math
from typing import Any

import numpy as np
import pytest

from rewards.contract import FunctionSpec, SpecError, check_returned, short_repr, spec_from_mapping

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
