"""What is asked of one honoured route, and what a trainer would suffer from the answers, one line per problem."""

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rewards.checking.proofs import Level, Proof
from rewards.probing.faults import fault_proofs
from rewards.probing.http import Ask, Asker
from rewards.probing.route import Pair, Reading, Route, strict_json_problem

TRIES = 5
BATCH = 16
AT_ONCE = 8
SAME = 1e-6
SLOW_S = 10.0  # for 16 samples: at hundreds of samples a step, reward time rules the run
UNKNOWN_PROMPT = "Which river flows through the town of Zwickau, and how long is it?"
LONGEST_CLIENT_S = {"align_anything": 100.0, "vime": 120.0}  # what their clients wait for a reply


@dataclass(frozen=True, kw_only=True)
class Form:
    """Scores of a pair in one form: right, wrong, right again; None where there were none."""

    right: str
    wrong: str
    scores: tuple[float, float, float] | None
    problem: str = ""

    @property
    def told_apart(self) -> bool:
        return self.scores is not None and self.scores[0] > self.scores[1]

    @property
    def telling(self) -> tuple[bool, float]:
        """The other questions are asked with the form that shows most: right above wrong, else any difference."""
        return self.told_apart, max(self.scores) - min(self.scores) if self.scores else -1.0


@dataclass(frozen=True, kw_only=True)
class Examined:
    """A route with the replies to the known pairs."""

    route: Route
    forms: tuple[Form, ...]
    proofs: tuple[Proof, ...]

    @property
    def told_apart(self) -> bool:
        return any(form.told_apart for form in self.forms)


class Examiner:
    """Asks one route for everything, in an order in which the cheap and telling come first."""

    def __init__(self, asker: Asker, route: Route, pair: Pair) -> None:
        self.asker, self.route, self.pair = asker, route, pair

    def examine(self) -> Examined:
        forms = tuple(self._form(right, wrong) for right, wrong in zip(self.pair.rights, self.pair.wrongs, strict=True))
        best = max(forms, key=lambda form: form.telling)
        proofs = [*self._pairs(forms, best)]
        if best.scores is not None:
            proofs += [*self._reply(best), *self._gold(best), *self._speed(best)]
        proofs += [*fault_proofs(self.asker, self.route, self.pair), *self._alive(best)]
        return Examined(route=self.route, forms=forms, proofs=tuple(proofs))

    def _score(self, completions: Sequence[str], pair: Pair | None = None, gold: str | None = None) -> Reading:
        return self.route.score(self.asker, self.route.batch(pair or self.pair, completions, gold))[0]

    def _form(self, right: str, wrong: str) -> Form:
        reading = self._score([right, wrong, right])
        if reading.values is None:
            return Form(right=right, wrong=wrong, scores=None, problem=reading.problem)
        first, other, again = reading.values
        return Form(right=right, wrong=wrong, scores=(first, other, again))

    def _pairs(self, forms: Sequence[Form], best: Form) -> Iterator[Proof]:
        for form in forms:
            if form.problem:
                message = f"the pair {form.right!r}, {form.wrong!r} gets no score: {form.problem}"
                yield self._proof("pair", "error", message)
        scored = [form.scores for form in forms if form.scores]
        if not scored:
            return
        every = {score for scores in scored for score in scores}
        right, wrong = (best.scores or (0.0, 0.0, 0.0))[:2]
        if best.told_apart:
            message = f"right {right:g}, wrong {wrong:g}, told apart as {best.right!r} and {best.wrong!r}"
            yield self._proof("pair", "ok", message)
        elif len(every) == 1:
            message = f"every completion gets {right:g}, right or wrong: the reward is constant, nothing can be learned"
            yield self._proof("pair", "error", message)
        elif all(scores[0] == scores[1] for scores in scored):
            message = "wrong and right get the same score in every form: what is rewarded is the form, not the answer"
            yield self._proof("pair", "error", message, fix="--gold, --right and --wrong give a pair of its own kind")
        else:
            right, wrong, _ = min(scored, key=lambda scores: scores[0] - scores[1])
            message = f"the wrong answer gets more ({wrong:g}) than the right one ({right:g})"
            yield self._proof("pair", "error", message)
        odd = [form for form in forms if form.scores and abs(form.scores[0] - form.scores[2]) > SAME]
        if odd and odd[0].scores:
            first, _, again = odd[0].scores
            message = f"the same completion got {first:g} and {again:g} in one batch: the noise would be trained on"
            yield self._proof("duplicates", "warning", message)

    def _reply(self, best: Form) -> Iterator[Proof]:
        batch = self.route.batch(self.pair, [best.wrong, best.right, best.right])
        reading, answer = self.route.score(self.asker, batch)
        first, other, _ = best.scores or (0.0, 0.0, 0.0)
        if reading.values is None:
            yield self._proof("order", "error", f"a second batch got no scores: {reading.problem}")
        elif any(abs(a - b) > SAME for a, b in zip(reading.values, (other, first, first), strict=True)):
            message = "the scores follow the place in the batch, not the completion: credit goes to the wrong sample"
            yield self._proof("order", "error", message, value=f"{reading.values} for wrong, right, right")
        else:
            yield self._proof("reply", "ok", "one finite number per sample, in order; duplicates alike")
        if problem := strict_json_problem(answer.body):
            yield self._proof("reply", "error", f"the reply is no strict JSON ({problem}): clients disagree about it")
        rewards = reading.raw.get("rewards") if isinstance(reading.raw, dict) else None
        if isinstance(rewards, list) and rewards and all(isinstance(value, int) for value in rewards):
            message = "the rewards are integers: clients make an integer tensor of them, whose mean() raises"
            fix = "send 1.0, not 1"
            yield self._proof("reply", "error", message, value=json.dumps(rewards), fix=fix)

    def _gold(self, best: Form) -> Iterator[Proof]:
        """Whose gold answer counts: the one that is sent, or one that the server looks up."""
        if not best.told_apart or best.scores is None:
            return
        if self.route.dialect.takes_labels or self.route.columns:
            swapped = self._score([best.right], gold=f"{self.pair.gold}7")
            if swapped.values is not None and abs(swapped.values[0] - best.scores[0]) <= SAME:
                message = "another gold answer in the request changes nothing: the server scores by what it has itself"
                yield self._proof("gold", "note", message)
        elif self.route.dialect.name == "align_anything":
            unknown = self._score([best.right], pair=Pair(prompt=UNKNOWN_PROMPT, gold=self.pair.gold))
            if unknown.values is not None:
                message = (
                    f"an unknown prompt got a score ({unknown.values[0]:g}): golds are matched without a threshold, "
                    "so a prompt that the server's data lack is graded by another question's answer"
                )
                yield self._proof("gold", "warning", message)
            else:
                yield self._proof("gold", "ok", f"an unknown prompt gets no score: {unknown.problem}")

    def _speed(self, best: Form) -> Iterator[Proof]:
        one = self.route.bodies(self.route.batch(self.pair, [best.right]))[0]
        alone = [self.asker.post(self.route.url, one) for _ in range(TRIES)]
        single = statistics.median(answer.seconds for answer in alone)
        words = f"one sample {_ms(single)}"
        slow = single
        if not self.route.dialect.per_sample:
            many = self.route.bodies(self.route.batch(self.pair, [best.right, best.wrong] * (BATCH // 2)))[0]
            slow = statistics.median(self.asker.post(self.route.url, many).seconds for _ in range(3))
            words += f", a batch of {BATCH} {_ms(slow)}"
        limit = LONGEST_CLIENT_S.get(self.route.dialect.name)
        if slow > SLOW_S:
            told = f"; its usual client gives up after {limit:g} s and asks again" if limit else ""
            yield self._proof("latency", "warning", words + ": rewards would rule the time of a step" + told)
        else:
            yield self._proof("latency", "ok", words + " (medians)")
        yield self._together(one, single, best)

    def _together(self, one: bytes, single: float, best: Form) -> Proof:
        asks = [Ask(method="POST", url=self.route.url, body=one)] * AT_ONCE
        answers = self.asker.ask_all(asks)
        longest = max(answer.seconds for answer in answers)
        readings = [self.route.read(answer, 1) for answer in answers]
        failed = [reading for reading in readings if reading.values is None]
        if failed:
            message = f"{len(failed)} of {AT_ONCE} simultaneous requests failed; every rank of a trainer posts at once"
            return self._proof("concurrency", "error", message, value=failed[0].problem)
        expected = best.scores[0] if best.scores else 0.0
        if any(abs(reading.values[0] - expected) > SAME for reading in readings if reading.values):
            message = f"of {AT_ONCE} simultaneous requests some get another score than alone: requests get mixed up"
            return self._proof("concurrency", "error", message)
        words = f"{AT_ONCE} at once are answered within {_ms(longest)}"
        if single > 0.05 and longest > 0.7 * AT_ONCE * single:
            return self._proof("concurrency", "note", words + ": one after another, so ranks wait for each other")
        return self._proof("concurrency", "ok", words)

    def _alive(self, best: Form) -> Iterator[Proof]:
        reading = self._score([best.right])
        if best.scores is not None and reading.values is None:
            message = f"after the malformed requests a valid one fails: {reading.problem}"
            yield self._proof("afterwards", "error", message)
        elif best.scores and reading.values and abs(reading.values[0] - best.scores[0]) > SAME:
            message = f"after the malformed requests the same completion gets {reading.values[0]:g}"
            yield self._proof("afterwards", "error", message + f", before them {best.scores[0]:g}")

    def _proof(self, name: str, level: Level, message: str, value: str = "", fix: str = "") -> Proof:
        return Proof(name=name, level=level, message=message, about=self.route.title, value=value, fix=fix)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
