"""Looks at a run while it trains, and tells which alarms begin: the supervisor's loop asks, with its own clock."""

import json
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.alarms import OFF, STOP, Seen, Sign, action_of, signs
from orchestrator.alarms.seen import TRAINER, Silence
from orchestrator.alarms.waits import silence_limit_s
from orchestrator.jsonl_tail import JsonlTail
from orchestrator.paths import RunPaths
from orchestrator.schema import RunConfig
from orchestrator.supervise import events as ev
from orchestrator.supervise.outcome import Status
from orchestrator.supervise.rundir import append_jsonl

ASK_EVERY_S = 10.0
"""Between two questions to a service whether it still answers; more often when its time limit is short."""


@dataclass
class Raised:
    """One alarm about one process, as result.json has it."""

    code: str
    name: str
    process: str
    action: str
    problem: str
    """Of the first episode."""
    first_step: int
    """The last finished step when it first began."""
    last_step: int
    """The last finished step at which it held."""
    count: int = 0
    """Episodes: how often it began."""


class FileWatch:
    """Reads metrics.jsonl and progress.json; writes alarms.jsonl, a line per episode."""

    def __init__(self, run: RunConfig, paths: RunPaths) -> None:
        self._run, self._paths, self._alarms = run, paths, run.supervision.alarms
        self._metrics = JsonlTail(paths.metrics)
        self._lines: deque[Mapping[str, Any]] = deque(maxlen=self._alarms.patience_steps + 1)
        self._since = time.time()  # what a resumed run finds in metrics.jsonl is older
        self._trainer_started: float | None = None
        self._progress, self._progress_at = "", 0.0
        self._doing, self._step = "", 0
        self._held: set[tuple[str, str]] = set()
        self._raised: dict[tuple[str, str], Raised] = {}

    @property
    def ask_every_s(self) -> float | None:
        """How often services are to be asked; None = not at all."""
        wanted = action_of(self._alarms, "RUN005") != OFF
        return min(ASK_EVERY_S, silence_limit_s(self._run) / 4) if wanted else None

    @property
    def raised(self) -> list[dict[str, Any]]:
        """What there was, in the order of the first time."""
        return [asdict(one) for one in self._raised.values()]

    def look(self, state: ev.RunState, now: float) -> list[ev.Alarmed]:
        """The alarms that begin now. `now` in seconds of the loop's clock."""
        quiet_s = self._quiet_s(state, now)
        silent = {
            name: Silence(seconds=now - one.answered, reason=one.reason)
            for name, one in state.steps.items()
            if one.status is Status.READY and one.reason
        }
        begun: list[ev.Alarmed] = []
        # One moment for each new line, so that an alarm begins at its step however many lines come at once.
        for line in (*self._new_lines(), None):
            if line is not None:
                self._lines.append(line)
                self._step = max(self._step, line["step"])
            seen = Seen(lines=tuple(self._lines), doing=self._doing, quiet_s=quiet_s, silent=silent)
            begun += self._begin(signs(seen, self._run), line["step"] if line else self._step)
        return begun

    def _new_lines(self) -> list[dict[str, Any]]:
        entries, anew = self._metrics.look()
        if anew:
            self._lines.clear()
        # Only training steps have a loss: evaluations and the last summary are no steps.
        return [entry for entry in entries if "loss" in entry and entry["time"] >= self._since]

    def _quiet_s(self, state: ev.RunState, now: float) -> float:
        """Seconds for which the running trainer has said nothing new; 0 when none runs."""
        trainer = state.steps.get(TRAINER)
        if trainer is None or trainer.started is None or trainer.status is not Status.RUNNING:
            return 0.0
        if trainer.started != self._trainer_started:
            self._trainer_started = self._progress_at = trainer.started
            self._doing = ""
        text = self._paths.progress.read_text(encoding="utf-8") if self._paths.progress.is_file() else ""
        if text != self._progress:
            said = json.loads(text)
            self._progress, self._progress_at = text, now
            self._doing, self._step = said["doing"], max(self._step, said["step"])
        return now - self._progress_at

    def _begin(self, found: Iterable[Sign], step: int) -> list[ev.Alarmed]:
        """Take in what holds at a step; returns what did not hold before."""
        now_held = {(sign.code, sign.process): sign for sign in found}
        begun = [sign for key, sign in now_held.items() if key not in self._held]
        self._held = set(now_held)
        for sign in begun:
            self._write_down(sign, step)
        for key in now_held:
            self._raised[key].last_step = step
        return [ev.Alarmed(s.process, s.sentence, stop=action_of(self._alarms, s.code) == STOP) for s in begun]

    def _write_down(self, sign: Sign, step: int) -> None:
        what: dict[str, Any] = {"code": sign.code, "name": sign.name, "process": sign.process}
        what |= {"action": action_of(self._alarms, sign.code), "problem": sign.problem}
        first = Raised(**what, first_step=step, last_step=step)
        self._raised.setdefault((sign.code, sign.process), first).count += 1
        append_jsonl(self._paths.alarms, {"time": time.time(), "step": step, **what})
