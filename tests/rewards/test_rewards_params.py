"""A built-in refuses params out of their range when a server starts, by the names that its function has."""

import inspect
from importlib import import_module
from typing import Any

import pytest

from rewards.contract import PrepareError

BAD: list[tuple[str, dict[str, Any], str]] = [
    ("length", {}, "min_length or params.max_length"),
    ("length", {"unit": "lines", "max_length": 4}, "'lines'"),
    ("length", {"min_length": -1}, "min_length.*-1"),
    ("length", {"min_length": 1.5}, "min_length.*1.5"),
    ("length", {"min_length": True}, "min_length.*True"),
    ("length", {"min_length": 5, "max_length": 4}, "max_length.*4"),
    ("length", {"max_length": "9"}, "max_length.*'9'"),
    ("soft_overlong", {}, "max_length=None"),
    ("soft_overlong", {"max_length": 4, "cache": 5}, "cache=5"),
    ("soft_overlong", {"max_length": 4, "cache": 0}, "cache=0"),
    ("soft_overlong", {"max_length": 4, "cache": 1.0}, r"cache=1\.0"),
    ("tags", {"tags": "think"}, "'think'"),
    ("tags", {"tags": []}, r"\[\]"),
    ("tags", {"tags": ["<a>"]}, "<a>"),
    ("tags", {"tags": ["a", "a"]}, "twice"),
    ("tags", {"tags": 3}, "3"),
    ("repetition_penalty", {"ngram_size": 0}, "ngram_size.*0"),
    ("repetition_penalty", {"ngram_size": 2.0}, r"ngram_size.*2\.0"),
    ("repetition_penalty", {"max_penalty": 0.5}, r"max_penalty.*0\.5"),
    ("repetition_penalty", {"max_penalty": float("nan")}, "max_penalty.*nan"),
    ("repetition_penalty", {"max_penalty": float("-inf")}, "max_penalty.*-inf"),
    ("repetition_penalty", {"max_penalty": "-1"}, "max_penalty.*'-1'"),
    ("math_verifier", {"mode": "lenient"}, "'lenient'"),
    ("math_verifier", {"mode": ["strict"]}, "mode"),
    ("multiple_choice", {"letters": "ABD"}, "'ABD'"),
    ("multiple_choice", {"letters": ""}, "letters"),
    ("multiple_choice", {"letters": 4}, "letters"),
]
GOOD: dict[str, dict[str, Any]] = {
    "length": {"unit": "words", "min_length": 1, "max_length": 1},
    "soft_overlong": {"max_length": 4, "cache": 4},
    "tags": {"tags": ["plan"]},
    "repetition_penalty": {"ngram_size": 1, "max_penalty": -2},
    "math_verifier": {"mode": "intended"},
    "multiple_choice": {"letters": "ABCDE"},
}


@pytest.mark.parametrize(("name", "params", "words"), BAD)
def test_bad_params_are_refused_before_anything_is_scored(name: str, params: dict[str, Any], words: str) -> None:
    module = import_module(f"rewards.functions.{name}")
    with pytest.raises(PrepareError, match=words):
        module.prepare(**params)
    with pytest.raises(ValueError, match=words):
        getattr(module, name)([""], ["x"], **{"answer": ["A"], "completion_ids": [[1]], **params})


@pytest.mark.parametrize("name", GOOD)
def test_prepare_takes_the_params_of_the_function(name: str) -> None:
    module = import_module(f"rewards.functions.{name}")
    module.prepare(**GOOD[name])
    named = {
        parameter.name: parameter.default
        for parameter in inspect.signature(getattr(module, name)).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert {one.name: one.default for one in inspect.signature(module.prepare).parameters.values()} == named
