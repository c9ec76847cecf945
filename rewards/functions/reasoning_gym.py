"""reasoning_gym's own score of an answer, for rows that carry the columns of its entries: question, answer, metadata.

`metadata` is a dict or JSON text, and names the data set (`source_dataset`). The answer is the last
<answer>...</answer> after the thinking, or all that follows the thinking. An answer that their scorer cannot read
scores 0.0. An entry whose own answer does not score 1.0 is an error: storage changed it, or it was made with other
settings than the defaults. So is an entry whose scorer gives an absurd answer 1.0 (`game_of_life_halting`): such a
data set teaches nothing, so leave it out. Partial credit is theirs too: `coin_flip` gives some for the first digits of
a wrong probability, and 1.0 within 0.0001 of the right one.

Some of their scorers run the model's answer as Python. Here they only see answers that are plain literals or
arithmetic; others score 0.0 without being run.

Range: 0.0 to 1.0; partial credit as each data set gives it.
Source: reasoning_gym's `score_answer` (arXiv 2505.24760).
"""

import ast
import importlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from rewards.batch import Text
from rewards.calling.targets import near
from rewards.contract import Example, PrepareError, short_repr
from rewards.functions.text import answer_part, text_of

LITERALS = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""Their scorers call eval() on the answer."""
EXPRESSIONS = frozenset(
    {"countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration"}
)
"""Theirs call SymPy's parse_expr, which is eval() too."""
MATHEMATICS = frozenset(
    (
        *("sin", "cos", "tan", "sec", "csc", "cot", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh"),
        *("atanh", "exp", "log", "sqrt", "cbrt", "root", "abs", "Abs", "erf", "erfi", "gamma", "Rational", "Integer"),
    )
)
NAME = re.compile(r"[^\W\d]\w*")
ARITHMETIC = re.compile(r"[\w\s+\-*/^(),.=!]*")
ATTRIBUTE = re.compile(r"\.\s*[^\W\d]|__")
LONGEST_NAME = 2  # of a variable: x, or x1; no name of Python or SymPy that is so short does harm

ABSURD = "no answer at all: qqq"

PER_SAMPLE = True
ENTRY = {
    "question": "Calculate 5 - 3 - 6.",
    "answer": "-4",
    "metadata": {"source_dataset": "basic_arithmetic", "expression": "5 - 3 - 6"},
}
SELF_TEST = (
    Example(completion="<think>2 - 6</think><answer>-4</answer>", columns=ENTRY, score=1.0),
    Example(completion="<answer>4</answer>", columns=ENTRY, score=0.0),
)

Score = Callable[[str | None, dict[str, Any]], float]


def prepare() -> None:
    """Raises PrepareError where reasoning_gym is not installed."""
    try:
        importlib.import_module("reasoning_gym")
    except ImportError as error:
        raise PrepareError(
            f"reasoning_gym cannot be imported ({error}); its scorers are an extra: "
            "pip install 'orchestrate[reasoning_gym]'"
        ) from error


def reasoning_gym(
    prompts: Sequence[Text],
    completions: Sequence[Text],
    metadata: Sequence[Any],
    answer: Sequence[Any],
    question: Sequence[Any] | None = None,
    **kwargs: Any,
) -> list[float | None]:
    """0.0 to 1.0; None where `metadata` is null: no row of reasoning_gym. `answer` is null where a data set has none.

    Raises ValueError for an entry that is incomplete, of an unknown data set, or damaged.
    """
    questions = question if question is not None else [None] * len(completions)
    rows = zip(prompts, completions, metadata, answer, questions, strict=True)
    return [None if about is None else _score(text_of(said), about, gold, q) for _, said, about, gold, q in rows]


def _score(completion: str, metadata: object, gold: object, question: object) -> float:
    about = _mapping(metadata)
    name = about.get("source_dataset")
    if not isinstance(name, str) or not name:
        raise ValueError(f"the entry's metadata has no 'source_dataset' (it has {sorted(map(str, about))})")
    if gold is not None and not isinstance(gold, str):
        raise ValueError(f"the entry's answer {short_repr(gold)} is not a text: reasoning_gym's are")
    frozen = json.dumps({"question": question, "answer": gold, "metadata": about})
    scorer, entry = _scorer(name), _sound_entry(name, frozen)
    said = answer_part(completion)
    if not may_be_read(name, said, entry):
        return 0.0
    try:
        return float(scorer(said, entry))
    except Exception:  # the entry is sound, so the answer is at fault: their scorers raise for some malformed ones
        return 0.0


def may_be_read(dataset: str, answer: str, entry: Mapping[str, Any]) -> bool:
    """Whether the scorer of `dataset` can be given this answer without running what a model wrote."""
    if answer == entry["answer"]:
        return True
    if dataset in LITERALS:
        try:
            ast.literal_eval(answer)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            return False
    if dataset in EXPRESSIONS:
        if not ARITHMETIC.fullmatch(answer) or ATTRIBUTE.search(answer):
            return False
        known = MATHEMATICS | set(NAME.findall(str(entry["answer"])))
        return all(len(name) <= LONGEST_NAME or name in known for name in NAME.findall(answer))
    return True


def _mapping(metadata: object) -> dict[str, Any]:
    if isinstance(metadata, str):
        try:
            metadata = json.loads(metadata)
        except ValueError as error:
            raise ValueError(f"the entry's metadata {short_repr(metadata)} is not valid JSON: {error}") from error
    if not isinstance(metadata, Mapping):
        raise ValueError(f"the entry's metadata is a {type(metadata).__name__}, not a dict or its JSON")
    return dict(metadata)


@lru_cache
def _scorer(name: str) -> Score:
    package: Any = importlib.import_module("reasoning_gym")
    known = importlib.import_module("reasoning_gym.factory").DATASETS
    if name not in known:
        raise ValueError(f"reasoning_gym has no data set {name!r}{near(name, known)}")
    scorer: Score = package.get_score_answer_fn(name)
    return scorer


@lru_cache(maxsize=4096)
def _sound_entry(name: str, frozen: str) -> dict[str, Any]:
    """The entry in the form in which its own answer scores 1.0. Raises ValueError without one.

    Cached, for a group's completions share it. JSON and Arrow know no tuples, and some scorers compare with tuples.
    """
    entry: dict[str, Any] = json.loads(frozen)
    scorer, gold, metadata = _scorer(name), entry["answer"], entry["metadata"]
    if _pays_anything(name, entry):
        raise ValueError(
            f"reasoning_gym's scorer of {name} gives 1 to any answer, such as {ABSURD!r}: leave this data set out"
        )
    if gold is None:  # any right answer counts, and there is none to try
        if missing := _missing(name, metadata):
            raise ValueError(f"the metadata of an entry of {name} lacks {missing} (it has {sorted(metadata)})")
        return entry
    scores: list[str] = []
    for form in (entry, {**entry, "metadata": _tuples(metadata)}):
        try:
            score = scorer(gold, form)
        except Exception as error:
            scores.append(f"raises {type(error).__name__}: {error}")
        else:
            if score == 1.0:
                return form
            scores.append(f"gives {score:g}")
    missing = _missing(name, metadata)
    why = f"its metadata lacks {missing}" if missing else "storage changed it, or its settings were not the usual ones"
    raise ValueError(
        f"an entry of {name}: its answer {short_repr(gold)} must score 1 by their scorer, which {scores[0]}: {why}"
    )


def _pays_anything(name: str, entry: dict[str, Any]) -> bool:
    if entry["answer"] == ABSURD or not may_be_read(name, ABSURD, entry):
        return False
    try:
        return float(_scorer(name)(ABSURD, entry)) == 1.0
    except Exception:  # it cannot read the absurd answer, so it does not pay for it
        return False


def _missing(name: str, metadata: Mapping[str, Any]) -> list[str]:
    """What the metadata of entries of this data set has, and this one has not, or as null."""
    return sorted(key for key in _usual_keys(name) if metadata.get(key) is None)


@lru_cache
def _usual_keys(name: str) -> frozenset[str]:
    package: Any = importlib.import_module("reasoning_gym")
    usual = package.create_dataset(name, size=1, seed=0)[0]["metadata"]
    return frozenset(key for key, value in usual.items() if value is not None)


def _tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value
