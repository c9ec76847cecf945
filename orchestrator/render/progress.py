"""What a person sees while a run goes on: a live display on a terminal, plain lines elsewhere."""

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator.alarms.steps import RAW_REWARD
from orchestrator.jsonl_tail import JsonlTail
from orchestrator.output import say
from orchestrator.supervise.outcome import Observer, Status, StepView

TREND = " ▁▂▃▄▅▆▇█"
TREND_STEPS = 40  # columns of the trend: the last steps
PLAIN_EVERY = 10  # steps between two plain lines
MARKS = {
    Status.WAITING: ("·", "dim"),
    Status.STARTING: ("…", "yellow"),
    Status.READY: ("●", "green"),
    Status.RUNNING: ("●", "green"),
    Status.STOPPED: ("✓", "dim"),
    Status.FAILED: ("✗", "red"),
}


UNTOLD = ("start", "signal", "failed")
"""Events that another line tells: "started" has the pid, the end has the reason."""
WORDS = {
    "gate": "handshake: what the services say against the recipe",
    "gate-passed": "handshake passed",
    "stopping": "taking everything down",
    "stopped": "taken down",
}


def _exit(detail: str) -> str:
    """`code -15` as a person says it."""
    number = int(detail.removeprefix("code "))
    names = {int(known): known.name for known in signal.Signals}
    return f"by {names.get(-number, -number)}" if number < 0 else detail


class MetricsTail:
    """Rewards, and the last figures, of what the trainer has appended to metrics.jsonl."""

    def __init__(self, path: Path) -> None:
        self._tail = JsonlTail(path)
        self.rewards: list[float] = []
        self.last: dict[str, Any] = {}

    def look(self) -> bool:
        """True when there was something new."""
        entries, anew = self._tail.look()
        if anew:
            self.rewards, self.last = [], {}
        for entry in entries:
            reward = entry.get(RAW_REWARD, entry.get("reward"))
            if reward is not None:
                self.rewards.append(reward)
                # The gap is there at steps with a proof; between them the last one still says most.
                self.last = {"sync/logprob_gap": self.last.get("sync/logprob_gap")} | entry | {"reward": reward}
        return bool(entries)


def trend(values: list[float]) -> str:
    """The last values as a row of bars, between their own least and greatest."""
    shown = values[-TREND_STEPS:]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    span = (high - low) or 1.0
    return "".join(TREND[1 + round((value - low) / span * (len(TREND) - 2))] for value in shown)


def figures(last: Mapping[str, Any], num_steps: int | None) -> str:
    """`step 12/120  reward 0.61  sync gap 3e-06`"""
    parts = [f"step {last['step']}" + (f"/{num_steps}" if num_steps else ""), f"reward {last['reward']:.3f}"]
    if last.get("sync/logprob_gap") is not None:
        parts.append(f"sync gap {last['sync/logprob_gap']:.1e}")
    return "  ".join(parts)


class LiveDisplay:
    """A line per service with its state; step, reward, its trend and the sync gap below."""

    def __init__(self, console: Console, metrics: Path, num_steps: int | None) -> None:
        self._metrics, self._num_steps = MetricsTail(metrics), num_steps
        self._live = Live(console=console, refresh_per_second=5, transient=True)

    def __enter__(self) -> "LiveDisplay":
        self._live.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._live.__exit__(*exc)

    def event(self, kind: str, step: str | None, detail: str) -> None:
        if kind == "alarm":
            self._live.console.print(Text(f"{step}: alarm {detail}", style="yellow"))  # stays above the display

    def tick(self, states: Mapping[str, StepView]) -> None:
        self._metrics.look()
        self._live.update(Group(_services(states), *self._progress()))

    def _progress(self) -> list[Any]:
        last = self._metrics.last
        if not last:
            return []
        line = Text(figures(last, self._num_steps) + "  ").append(trend(self._metrics.rewards), style="cyan")
        return (
            [line, ProgressBar(total=self._num_steps, completed=last["step"], width=60)] if self._num_steps else [line]
        )


def _services(states: Mapping[str, StepView]) -> Table:
    table = Table.grid(padding=(0, 2))
    for view in states.values():
        mark, style = MARKS[view.status]
        pid = f"pid {view.pid}" if view.pid else ""
        table.add_row(
            Text(mark, style=style),
            view.name,
            Text(view.status.value, style=style),
            f"{view.seconds:.0f} s",
            pid,
            view.reason,
        )
    return table


class PlainLines:
    """One line per event, and one every few steps: for logs and pipes."""

    def __init__(self, metrics: Path, num_steps: int | None) -> None:
        self._metrics, self._num_steps = MetricsTail(metrics), num_steps
        self._told = 0

    def __enter__(self) -> "PlainLines":
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def event(self, kind: str, step: str | None, detail: str) -> None:
        if kind in UNTOLD:
            return
        words = WORDS.get(kind, kind)
        self._say(
            " ".join(part for part in (step or "run:", words, _exit(detail) if kind == "exited" else detail) if part)
        )

    def tick(self, states: Mapping[str, StepView]) -> None:
        if self._metrics.look() and len(self._metrics.rewards) >= self._told + PLAIN_EVERY:
            self._told = len(self._metrics.rewards)
            self._say(figures(self._metrics.last, self._num_steps))

    def _say(self, text: str) -> None:
        say(text, error=True)


def display(console: Console, metrics: Path, num_steps: int | None) -> LiveDisplay | PlainLines:
    return LiveDisplay(console, metrics, num_steps) if console.is_terminal else PlainLines(metrics, num_steps)


def _is_observer(display: LiveDisplay | PlainLines) -> Observer:
    """Both displays are observers; mypy proves it here."""
    return display
