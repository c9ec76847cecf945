"""What the contract test is told, and what it answers: data that travels as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rewards.checking.made_up import Row
from rewards.contract import FailureKind, FunctionSpec

LONGEST_WAIT_S = 60.0
"""No call is waited for longer, whatever the limit of the recipe."""

IssueKind = FailureKind | Literal["load", "unsteady", "flat", "unscored"]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What is tested, with what, and for how long."""

    specs: tuple[FunctionSpec, ...]
    rows: tuple[Row, ...]
    group_size: int
    timeout_s: float
    """Seconds that one unit (sample, group or batch) may take."""
    budget_s: float
    """Seconds that the whole test may take."""
    hook: FunctionSpec | None = None
    """The post-process hook (post_process.hook_spec)."""

    def to_wire(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_wire(raw: Mapping[str, Any]) -> "Trial":
        """Raises SpecError."""
        specs = tuple(FunctionSpec(**spec) for spec in raw["specs"])
        hook = FunctionSpec(**raw["hook"]) if raw["hook"] else None
        return Trial(**{**raw, "specs": specs, "hook": hook, "rows": tuple(Row(**row) for row in raw["rows"])})


@dataclass(frozen=True, kw_only=True)
class Issue:
    """One thing that is wrong with a function, or with all of them together."""

    kind: IssueKind
    function: str | None
    """None: no single function is to blame."""
    message: str
    sample: str = ""
    """Row and completion, in words; '' where no single one is to blame."""
    value: str = ""
    """repr of what the function returned, where that is the problem."""
    has_gold: bool = True
    """False: no column is known to hold the right answer, so no completion was meant to be right."""
    exception: str | None = None
    """The name of the exception's type, where the function raised one."""
    every_sample: bool = False
    """It is so for every sample that was tried."""
