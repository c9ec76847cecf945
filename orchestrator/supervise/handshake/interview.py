"""What one service was asked: facts that were compared, and facts that nobody could tell."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One thing that both sides must agree on."""

    name: str
    meant: Any
    said: Any
    by: str
    """Who said it: the address."""
    pid: int | None
    """The process behind the address; None where it cannot be seen from here."""
    agrees: bool
    stops: bool
    """Whether a difference ends the run; else it is a warning."""
    why: str
    fix: str
    """"" where they agree."""
    sentence: str = ""
    """What is wrong in other words than "the recipe means X, it says Y"."""

    def text(self) -> str:
        who = self.by if self.pid is None else f"{self.by} (pid {self.pid})"
        said = self.sentence or f"the recipe means {self.meant!r}, {who} says {self.said!r}."
        return f"{self.name}: {said} {self.why}".rstrip() + f"\n    fix: {self.fix}"


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A fact that was not compared: never to be read as agreement."""

    name: str
    meant: Any
    said: Any
    by: str
    pid: int | None
    reason: str


@dataclass(kw_only=True)
class Interview:
    """The questions to one service and what came of them. Filled by one thread, read by another after its deadline."""

    service: str
    """The step's name: generation or reward."""
    kind: str
    """Of the recipe: embedded, vllm, external, local."""
    url: str
    started: bool
    """The run started it: what disagrees is not for somebody else to mend."""
    pid: int | None = None
    log: Path | None = None
    facts: list[Fact] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    asking: str = "nothing yet"
    """The question under way."""
    samples_scored: int | None = None
    """What a reward server had scored when the questions were over, theirs included."""

    def compare(
        self,
        name: str,
        meant: Any,
        said: Any,
        *,
        why: str,
        fix: str,
        agrees: bool | None = None,
        stops: bool = True,
        sentence: str = "",
    ) -> None:
        """`agrees` None: they agree when they are equal."""
        agrees = bool(meant == said) if agrees is None else agrees
        fact = Fact(
            name=f"{self.service}: {name}",
            meant=meant,
            said=said,
            by=self.url,
            pid=self.pid,
            agrees=agrees,
            stops=stops,
            why=why,
            fix="" if agrees else fix,
            sentence="" if agrees else sentence,
        )
        self.facts.append(fact)

    def fail(self, name: str, sentence: str, *, fix: str, said: Any = None, why: str = "", stops: bool = True) -> None:
        """Something is wrong that is no difference of two values."""
        self.compare(name, None, said, why=why, fix=fix, agrees=False, stops=stops, sentence=sentence)

    def skip(self, name: str, reason: str, *, meant: Any = None, said: Any = None) -> None:
        name = f"{self.service}: {name}"
        self.skipped.append(Skipped(name=name, meant=meant, said=said, by=self.url, pid=self.pid, reason=reason))

    def either(self, restart: str, recipe: str) -> str:
        """The fix of a difference: restart somebody else's server, or tell the recipe what is true."""
        if self.started:
            return f"{recipe}, if that is what you mean; what it was started with is at the top of its log"
        return f"restart it with {restart}, or tell the recipe: {recipe}"

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "url": self.url,
            "pid": self.pid,
            "log": None if self.log is None else str(self.log),
            "samples_scored": self.samples_scored,
        }


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the handshake found, as text; None where there is nothing to say."""

    problem: str | None
    """The run must not go on."""
    warning: str | None


def verdict(interviews: Sequence[Interview], path: Path) -> Verdict:
    """`path` is handshake.json, which has it all."""
    stopping = _lines(interviews, stops=True)
    warnings = [f"warning: {line}" for line in _lines(interviews, stops=False)]
    if not stopping:
        return Verdict(problem=None, warning="\n".join(["handshake:", *warnings]) if warnings else None)
    count = "1 answer does" if len(stopping) == 1 else f"{len(stopping)} answers do"
    logs = [f"  log: {one.log}" for one in interviews if one.log and _differing(one, stops=True)]
    lines = [f"{count} not agree with the recipe", *stopping, *warnings, *logs, f"  all answers: {path}"]
    return Verdict(problem="\n".join(lines), warning=None)


def record(interviews: Sequence[Interview], seconds: float) -> dict[str, Any]:
    """The content of handshake.json (docs/handshake.md)."""
    facts = [fact for one in interviews for fact in one.facts]
    return {
        "format": 1,
        "agreed": all(fact.agrees or not fact.stops for fact in facts),
        "seconds": round(seconds, 3),
        "services": {one.service: one.as_json() for one in interviews},
        "facts": [asdict(fact) for fact in facts],
        "skipped": [asdict(skipped) for one in interviews for skipped in one.skipped],
        "problems": [fact.text() for fact in facts if not fact.agrees],
    }


def _lines(interviews: Sequence[Interview], *, stops: bool) -> list[str]:
    return [fact.text() for one in interviews for fact in _differing(one, stops=stops)]


def _differing(interview: Interview, *, stops: bool) -> list[Fact]:
    return [fact for fact in interview.facts if not fact.agrees and fact.stops is stops]
