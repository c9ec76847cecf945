"""One route of a foreign reward server: requests in its dialect, and its replies as numbers or as what is wrong."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rewards import json_codec
from rewards.asking.dialects import Dialect, finite
from rewards.asking.refusal import decode_reply
from rewards.asking.score_reply import RewardError
from rewards.batch import Batch
from rewards.checking.made_up import wrong_answer
from rewards.probing.http import Answer, Asker

HTTP_OK = 200
NOT_THERE = (404, 405, 501)
NEEDS_TOKEN = (401, 403)
KEYS = ("score", "reward", "rewards")  # of a dict that a remote_rm server answers with; else its first number
State = Literal["honoured", "broken", "refused", "absent"]

TEMPLATES = (
    "\\boxed{{{}}}",
    "<think>t</think><answer>\\boxed{{{}}}</answer>",
    "<think>t</think><answer>{}</answer>",
    "{}",
    "Answer: {}",
)
"""The forms in which scorers want an answer; one of them is enough."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A question with completions that are known to be right and wrong, form by form."""

    prompt: str = "What is 1+1?"
    gold: str = "2"
    rights: tuple[str, ...] = tuple(template.format("2") for template in TEMPLATES)
    wrongs: tuple[str, ...] = tuple(template.format("3") for template in TEMPLATES)

    @staticmethod
    def given(prompt: str | None, gold: str | None, right: str | None, wrong: str | None) -> "Pair":
        """From the command line. `right` and `wrong` are whole completions; without them `gold` is put in every form.

        Raises ValueError for half a pair.
        """
        if (right is None) != (wrong is None):
            raise ValueError("--right and --wrong go together: a pair of whole completions")
        if gold is None and prompt is not None:
            raise ValueError("--prompt needs --gold, its right answer")
        said = gold if gold is not None else "2"
        forms: dict[str, Any] = {"prompt": prompt or "What is 1+1?", "gold": said}
        if right is not None and wrong is not None:
            return Pair(**forms, rights=(right,), wrongs=(wrong,))
        return Pair(
            **forms,
            rights=tuple(template.format(said) for template in TEMPLATES),
            wrongs=tuple(template.format(wrong_answer(said)) for template in TEMPLATES),
        )


@dataclass(frozen=True)
class Reading:
    """A reply, read. `values` is None where it holds no usable scores; `problem` then says why."""

    values: list[float] | None
    problem: str = ""
    spoken: bool = False
    """The reply has the dialect's form, whatever is wrong with its numbers."""
    raw: Any = None


@dataclass(frozen=True, kw_only=True)
class Route:
    """A dialect at an address."""

    dialect: Dialect
    url: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Native: what the server's functions require, with the value to send; GOLD stands for the gold answer."""

    @property
    def title(self) -> str:
        return f"{self.dialect.name} at {self.url}"

    def batch(self, pair: Pair, completions: Sequence[str], gold: str | None = None) -> Batch:
        count, said = len(completions), pair.gold if gold is None else gold
        columns = {name: [said if value is GOLD else value] * count for name, value in self.columns.items()}
        return Batch(
            prompts=[pair.prompt] * count,
            completions=list(completions),
            columns={"answer": [said] * count, **columns},
            group_ids=[0] * count,
        )

    def bodies(self, batch: Batch) -> list[bytes]:
        """One request, or for dialects of single samples one for each."""
        if not self.dialect.per_sample:
            return [json.dumps(self.dialect.body(batch)).encode()]
        return [json.dumps(self.dialect.body(batch.take([i]))).encode() for i in range(len(batch))]

    def score(self, asker: Asker, batch: Batch) -> tuple[Reading, Answer]:
        """The scores of a batch, and the answer that they, or the problem, came with."""
        values: list[float] = []
        reading, answer = Reading([]), Answer(status=None)
        for body in self.bodies(batch):
            answer = asker.post(self.url, body)
            reading = self.read(answer, 1 if self.dialect.per_sample else len(batch))
            if reading.values is None:
                return reading, answer
            values += reading.values
        return Reading(values, spoken=True, raw=reading.raw), answer

    def read(self, answer: Answer, count: int) -> Reading:
        if answer.status != HTTP_OK:
            return Reading(None, answer.said)
        try:
            raw = decode_reply(answer.body)
        except ValueError as error:
            return Reading(None, f"200 with a body that is no JSON ({error})")
        spoken = not isinstance(raw, dict) or "rewards" in raw or self.dialect.per_sample
        try:
            values = [_number(item) for item in self.dialect.parse(raw, count)]
        except RewardError as error:
            return Reading(None, f"200, but {error}", spoken=spoken and isinstance(raw, (dict, float, int)))
        return Reading(values, spoken=True, raw=raw)


GOLD = object()


def state_of(reading: Reading, answer: Answer) -> State:
    """`refused`: something is there and does not take this dialect; `broken`: it does, with unusable numbers."""
    if reading.values is not None:
        return "honoured"
    if answer.status is None or answer.status in NOT_THERE:
        return "absent"
    return "broken" if reading.spoken else "refused"


def _number(item: Any) -> float:
    """A native server's None, "not mine", is no score of the pair. Raises RewardError."""
    if isinstance(item, Mapping):
        numbers = {key: value for key, value in item.items() if _is_number(value)}
        key = next((key for key in KEYS if key in numbers), next(iter(numbers), None))
        if key is None:
            raise RewardError(f"the reply is a dict without any number (it has {[str(key) for key in item]})")
        item = numbers[key]
    if item is None:
        raise RewardError("the reply holds null, no function there scores this pair")
    return finite(item, 0)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def strict_json_problem(body: bytes) -> str | None:
    """NaN and Infinity, which Python's json reads and writes though they are no JSON."""
    try:
        json_codec.decode(body)
    except ValueError as error:
        return str(error)
    return None
