"""The deep rules: numbers from 101. They see what the children answered, after the offline rules."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from orchestrator.deep import reward_rules, trainer_rules
from orchestrator.deep.case import DeepCase
from orchestrator.findings import Finding


@dataclass(frozen=True, kw_only=True)
class DeepRule:
    """As orchestrator.rules.Rule, over a DeepCase."""

    code: str
    name: str
    check: Callable[[DeepCase], Iterator[Finding]]


DEEP_RULES: tuple[DeepRule, ...] = (
    DeepRule(code="ORD101", name="deep-check-unanswered", check=trainer_rules.no_answer),
    DeepRule(code="CFG101", name="arguments-refused", check=trainer_rules.arguments_refused),
    DeepRule(code="MOD101", name="tokenizer-unusable", check=trainer_rules.tokenizer_unusable),
    DeepRule(code="DAT101", name="prompt-refused", check=trainer_rules.prompt_refused),
    DeepRule(code="LEN101", name="heldout-prompts-too-long", check=trainer_rules.heldout_prompts_too_long),
    DeepRule(code="RWD101", name="function-not-loaded", check=reward_rules.not_loaded),
    DeepRule(code="RWD102", name="reward-contract-broken", check=reward_rules.contract_broken),
    DeepRule(code="RWD103", name="reward-call-fails", check=reward_rules.call_fails),
    DeepRule(code="RWD104", name="reward-call-too-slow", check=reward_rules.call_too_slow),
    DeepRule(code="RWD105", name="nothing-scored", check=reward_rules.nothing_scored),
    DeepRule(code="RWD106", name="reward-not-repeatable", check=reward_rules.not_repeatable),
    DeepRule(code="RWD107", name="rewards-all-equal", check=reward_rules.all_equal),
)


def deep_findings(case: DeepCase) -> list[Finding]:
    """Every finding of every deep rule, in the order of the table."""
    return [replace(found, code=rule.code, name=rule.name) for rule in DEEP_RULES for found in rule.check(case)]
