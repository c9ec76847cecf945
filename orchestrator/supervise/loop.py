"""The event loop: feeds the state machine with what happens and does what it asks for.

Everything that touches the world is a parameter, so that tests replay a history without a process or a clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.supervise import events as ev
from orchestrator.supervise.machine import advance, begin
from orchestrator.supervise.outcome import StepView
from orchestrator.supervise.schedule import Schedule
from orchestrator.supervise.spawn import SpawnError
from orchestrator.supervise.world import Running, World

PASS_S = 0.05
TICK_S = 0.2
LOOK_S = 0.5


@dataclass
class Loop:
    """One run, from the first start to the last exit."""

    schedule: Schedule
    world: World
    children: dict[str, Running] = field(default_factory=dict)
    log_tail: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.state = begin(self.schedule.plan, self.world.clock())
        self.looked = self.stopping_since = self.state.phase_began
        self.ticked = self.state.phase_began - TICK_S  # the first view comes at once, however fast the start is

    def run(self) -> ev.RunState:
        """Returns when nothing of the run is left."""
        self.feed(ev.Tick())
        while self.state.phase is not ev.Phase.DONE:
            event = self.world.inbox.get(PASS_S)
            while event is not None:
                self.feed(event)
                event = self.world.inbox.get(0.0)
            self.poll_children()
            if self.state.phase is ev.Phase.STOPPING and self.world.reaper.step():
                self.poll_children()
                self.feed(ev.AllStopped())
            self.feed(ev.Tick())
            self.keep_up()
        return self.state

    def feed(self, event: ev.Event) -> None:
        """One event through the machine, and what follows from it."""
        before = self.state
        self.state, actions = advance(self.schedule, before, event, self.world.clock())
        for kind, step, detail in announcements(before, self.state, event):
            self.world.observer.event(kind, step, detail)
        for action in actions:
            self.act(action)

    def act(self, action: ev.Action) -> None:
        match action:
            case ev.Start(name):
                # An earlier start of the same moment may have failed and ended the run.
                if self.state.phase is not ev.Phase.STOPPING:
                    self.start(name)
            case ev.Probe(name, pid):
                self.world.prober.probe(self.schedule.steps[name], pid)
            case ev.Ask(name, pid):
                self.world.prober.ask(self.schedule.steps[name], pid)
            case ev.OpenGate():
                self.world.open_gate()
            case ev.StopAll(grace_s):
                self.stopping_since = self.world.clock()
                failed = self.state.failure.step if self.state.failure else None
                self.log_tail = self.world.tail(failed) if failed else ()
                self.world.reaper.begin(grace_s)
            case ev.Hurry():
                self.world.reaper.hurry()

    def start(self, name: str) -> None:
        self.world.observer.event("start", name, "")
        # A process that is given up, not dead yet, must not be taken for the one that replaces it.
        self.children.pop(name, None)
        try:
            child = self.world.spawner.start(self.schedule.steps[name])
        except SpawnError as error:
            self.feed(ev.StartFailed(name, str(error)))
        else:
            self.children[name] = child
            self.feed(ev.Started(name, child.pid))

    def poll_children(self) -> None:
        """Exits, the telling ones first: success decides, and a dead service explains the task that fails with it."""
        exits = [(name, code) for name, child in self.children.items() if (code := child.poll()) is not None]
        services = self.schedule.services
        for name, code in sorted(exits, key=lambda one: (one[0] in services or one[1] != 0, one[0] not in services)):
            del self.children[name]
            self.feed(ev.Exited(name, code))

    def keep_up(self) -> None:
        """What is due at intervals."""
        now = self.world.clock()
        if now - self.ticked >= TICK_S:
            self.ticked = now
            self.world.observer.tick(step_views(self.state, now))
        if now - self.looked >= LOOK_S:
            self.looked = now
            self.world.reaper.look()
            if self.world.watch and self.state.phase is ev.Phase.TASKS:
                for alarm in self.world.watch.look(self.state, now):
                    self.feed(alarm)


def announcements(before: ev.RunState, after: ev.RunState, event: ev.Event) -> list[tuple[str, str | None, str]]:
    """What an observer should hear of one event: (kind, step, detail)."""
    told: list[tuple[str, str | None, str]] = []
    match event:
        case ev.Started(name, pid):
            told.append(("started", name, f"pid {pid}"))
        case ev.Ready(name, _) if after.steps[name].status is not before.steps[name].status:
            told.append(("ready", name, ""))
        case ev.Exited(name, code):
            told.append(("exited", name, f"code {code}"))
        case ev.GatePassed():
            told.append(("gate-passed", None, ""))
        case ev.Alarmed(name, reason, stop=False):
            told.append(("alarm", name, reason))
        case ev.Signal(number):
            told.append(("signal", None, str(number)))
    for name, one in after.steps.items():
        if one.restarts > before.steps[name].restarts:
            told.append(("restart", name, one.reason))
    if after.phase is ev.Phase.GATE and before.phase is not after.phase:
        told.append(("gate", None, ""))
    if after.failure and before.failure is None:
        told.append(("failed", after.failure.step, after.failure.reason))
    if after.phase is not before.phase and after.phase in (ev.Phase.STOPPING, ev.Phase.DONE):
        told.append(("stopping" if after.phase is ev.Phase.STOPPING else "stopped", None, ""))
    return told


def step_views(state: ev.RunState, now: float) -> Mapping[str, StepView]:
    """The state as a progress display wants it."""
    return {name: step_view(name, one, now) for name, one in state.steps.items()}


def step_view(name: str, one: ev.StepState, now: float) -> StepView:
    end = now if one.ended is None else one.ended
    seconds = 0.0 if one.started is None else max(0.0, end - one.started)
    return StepView(
        name=name, status=one.status, seconds=seconds, pid=one.pid, restarts=one.restarts, reason=one.reason
    )
