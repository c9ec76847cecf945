"""Replays a history: the machine under a loop whose world is made of lists."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from orchestrator.steps import HttpProbe, Plan, Step
from orchestrator.supervise import events as ev
from orchestrator.supervise.loop import Loop
from orchestrator.supervise.outcome import StepView
from orchestrator.supervise.schedule import Schedule
from orchestrator.supervise.spawn import SpawnError
from orchestrator.supervise.world import Watch, World

PROBE = HttpProbe(url="http://127.0.0.1:1/health", interval_s=0.1)
GATE_TIMEOUT_S = 5.0
WAIT_LIMIT_S = 1000.0


def service(name: str, after: tuple[str, ...] = (), restarts: int = 0, ready_timeout_s: float = 30.0) -> Step:
    return Step(name=name, argv=(name,), after=after, ready=PROBE, restarts=restarts, ready_timeout_s=ready_timeout_s)


def task(name: str, after: tuple[str, ...] = (), restarts: int = 0) -> Step:
    return Step(name=name, argv=(name,), after=after, restarts=restarts)


def plan_of(*steps: Step) -> Plan:
    return Plan(name="test", steps=steps, stop_grace_s=3.0)


@dataclass(frozen=True)
class After:
    """This much time passes before what follows."""

    seconds: float


@dataclass(frozen=True)
class Begun:
    """The step has been started by now: an assertion in the middle of a history."""

    step: str


@dataclass(frozen=True)
class NotBegun:
    step: str


# What a history says of a step is short; the pid is filled in from the latest start.
@dataclass(frozen=True)
class IsReady:
    step: str


@dataclass(frozen=True)
class SaysNo:
    step: str
    reason: str


@dataclass(frozen=True)
class Does:
    """Something happens in the world that the loop does not hear of: a process writes a file, say."""

    what: Callable[[], object]


class Together:
    """Exits that the loop finds in the same pass."""

    def __init__(self, *exits: ev.Exited) -> None:
        self.exits = exits


Beat = (
    After
    | Begun
    | NotBegun
    | IsReady
    | SaysNo
    | Together
    | Does
    | ev.Exited
    | ev.GatePassed
    | ev.GateFailed
    | ev.Signal
    | ev.Impostor
)


@dataclass
class FakeChild:
    pid: int
    code: int | None = None

    def poll(self) -> int | None:
        return self.code


@dataclass
class FakeWorld:
    """Clock, inbox, spawner, prober, reaper, gate and observer in one."""

    beats: list[Beat]
    broken: Mapping[str, str] = field(default_factory=dict)
    """Steps that cannot be started, and why."""
    now: float = 100.0
    wake_at: float = 0.0
    children: dict[str, FakeChild] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    """What the loop did, in order."""
    times: list[tuple[str, float]] = field(default_factory=list)
    """Starts and exits with their time."""
    told: list[tuple[str, str | None, str]] = field(default_factory=list)
    """What the observer heard."""
    grace_s: float | None = None
    stops_by_itself: bool = True

    def clock(self) -> float:
        return self.now

    def get(self, timeout_s: float) -> ev.Event | None:
        self.now += timeout_s
        assert self.now < WAIT_LIMIT_S, f"the loop hangs; it did {self.log}"
        if not self.beats or self.now < self.wake_at:
            return None
        return self.play(self.beats.pop(0))

    def play(self, beat: Beat) -> ev.Event | None:
        match beat:
            case After(seconds):
                self.wake_at = self.now + seconds
            case Begun(name):
                assert f"start {name}" in self.log, self.log
            case NotBegun(name):
                assert f"start {name}" not in self.log, self.log
            case IsReady(name):
                return ev.Ready(name, self.children[name].pid)
            case SaysNo(name, reason):
                return ev.ProbeFailed(name, self.children[name].pid, reason)
            case Does(what):
                what()
            case Together():
                for one in beat.exits:
                    self.children[one.step].code = one.code
            case ev.Exited(name, code):
                self.children[name].code = code
                self.times.append((f"exit {name}", self.now))
            case _:
                return beat
        return None

    def start(self, step: Step) -> FakeChild:
        if step.name in self.broken:
            raise SpawnError(self.broken[step.name])
        self.log.append(f"start {step.name}")
        self.times.append((f"start {step.name}", self.now))
        self.children[step.name] = FakeChild(pid=len(self.times))
        return self.children[step.name]

    def probe(self, step: Step, pid: int) -> None:
        self.log.append(f"probe {step.name}")

    def ask(self, step: Step, pid: int) -> None:
        self.log.append(f"ask {step.name}")

    def open_gate(self) -> None:
        self.log.append("gate")

    def look(self) -> None:
        pass

    def begin(self, grace_s: float) -> None:
        self.log.append("stop")
        self.grace_s = grace_s

    def hurry(self) -> None:
        self.log.append("hurry")
        self.stops_by_itself = True

    def step(self) -> bool:
        if self.stops_by_itself:
            for child in self.children.values():
                child.code = -15 if child.code is None else child.code
        return self.stops_by_itself

    def event(self, kind: str, step: str | None, detail: str) -> None:
        self.told.append((kind, step, detail))

    def tick(self, states: Mapping[str, StepView]) -> None:
        pass


def replay(plan: Plan, world: FakeWorld, watch: Watch | None = None) -> ev.RunState:
    """Run the plan in the world until it is over."""
    loop = Loop(
        Schedule(plan, GATE_TIMEOUT_S, watch.ask_every_s if watch else None),
        World(
            clock=world.clock,
            inbox=world,
            spawner=world,
            prober=world,
            reaper=world,
            open_gate=world.open_gate,
            tail=lambda name: (f"last line of {name}",),
            observer=world,
            watch=watch,
        ),
    )
    return loop.run()
