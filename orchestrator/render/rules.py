"""The list of rules, and one rule's page: its docstring, as docs/rules/CODE.md."""

import inspect
from collections.abc import Sequence

from orchestrator.rules import Rule

SECTIONS = ("## What it checks", "## Why it matters", "## Bad", "## Good")
"""Every rule's docstring has these, in this order."""


def listing(rules: Sequence[Rule]) -> str:
    width = max(len(rule.name) for rule in rules)
    return "\n".join(f"{rule.code}  {rule.name:<{width}}  {_headline(rule)}" for rule in rules)


def page(rule: Rule) -> str:
    """Markdown. The examples are overrides on top of `orchestrate check +experiment=grpo_math`; a line `facts: {...}`
    stands for something that is true of the machine."""
    body = inspect.getdoc(rule.check) or ""
    intro = (
        "Examples are overrides of `orchestrate check +experiment=grpo_math`; "
        "`facts:` stands for what is true of the machine, and paths are those of this repository. "
        "A good example is one that this rule is silent about."
    )
    headline, _, rest = body.partition("\n")
    return f"# {rule.code}: {rule.name}\n\n{headline}\n\n{intro}\n\n{rest.strip()}\n".replace(
        "\n## ", "\n\n## "
    ).replace("\n\n\n", "\n\n")


def _headline(rule: Rule) -> str:
    return (inspect.getdoc(rule.check) or "").partition("\n")[0]
