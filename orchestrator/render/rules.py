"""The list of rules and alarms, and the page of one: its docstring, as docs/rules/CODE.md."""

import inspect
from collections.abc import Sequence

from orchestrator.alarms import ALARMS, Alarm
from orchestrator.deep.rules import DEEP_RULES, DeepRule
from orchestrator.rules import RULES, Rule

SECTIONS = ("## What it checks", "## Why it matters", "## Bad", "## Good")
"""Every rule's docstring has these, in this order."""

ALARM_SECTIONS = ("## What it watches", "## Why it matters", "## What to do")
"""Every alarm's."""

EVERY: tuple[Rule | DeepRule | Alarm, ...] = (*RULES, *DEEP_RULES, *ALARMS)

RULE_INTRO = (
    "Examples are overrides of `orchestrate check +experiment=grpo_math`; "
    "`facts:` stands for what is true of the machine, and paths are those of this repository. "
    "A good example is one that this rule is silent about."
)
DEEP_INTRO = (
    "Only `orchestrate check --deep` looks at this ([what it runs](../deep.md)). Examples are overrides of "
    "`orchestrate check --deep +experiment=grpo_math`; paths are those of this repository. "
    "A good example is one that this rule is silent about."
)
ALARM_INTRO = (
    "An alarm looks at a run while it trains. `supervision.alarms.action`, or `supervision.alarms.actions` by code, "
    "says what follows: `warn` shows it once and lists it in result.json, `stop` ends the run with exit code 1, `off` "
    "does not look. See [alarms](../alarms.md)."
)


def listing(rules: Sequence[Rule | DeepRule | Alarm]) -> str:
    width = max(len(rule.name) for rule in rules)
    return "\n".join(f"{rule.code}  {rule.name:<{width}}  {_headline(rule)}" for rule in rules)


def page(rule: Rule | DeepRule | Alarm) -> str:
    """Markdown. A rule's examples are overrides on top of `orchestrate check +experiment=grpo_math`; a line
    `facts: {...}` stands for something that is true of the machine."""
    body = inspect.getdoc(rule.check) or ""
    headline, _, rest = body.partition("\n")
    intro = ALARM_INTRO if isinstance(rule, Alarm) else DEEP_INTRO if isinstance(rule, DeepRule) else RULE_INTRO
    return f"# {rule.code}: {rule.name}\n\n{headline}\n\n{intro}\n\n{rest.strip()}\n".replace(
        "\n## ", "\n\n## "
    ).replace("\n\n\n", "\n\n")


def _headline(rule: Rule | DeepRule | Alarm) -> str:
    return (inspect.getdoc(rule.check) or "").partition("\n")[0]
