"""The consistency rules: one small pure function each, and a literal table of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from orchestrator.findings import NOT_STARTABLE, Finding
from orchestrator.rules import config, data, lengths, model, network, numbers, rewards, sync
from orchestrator.rules.case import Case

__all__ = ["RULES", "Case", "Rule", "check"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Code = family + number, never reused. The docstring of `check` is the rule's page in docs/rules/."""

    code: str
    name: str
    check: Callable[[Case], Iterator[Finding]]


RULES: tuple[Rule, ...] = (
    Rule(code="CFG001", name="unknown-key", check=config.unknown_key),
    Rule(code="CFG002", name="wrong-type", check=config.wrong_type),
    Rule(code="CFG003", name="missing-value", check=config.missing_value),
    Rule(code="CFG004", name="unknown-choice", check=config.unknown_choice),
    Rule(code="CFG005", name="launcher-processes", check=config.launcher_processes),
    Rule(code="CFG006", name="managed-field", check=config.managed_field),
    Rule(code="CFG007", name="bad-name-or-seed", check=config.run_name),
    Rule(code="MOD001", name="different-model", check=model.different_model),
    Rule(code="MOD002", name="different-dtype", check=model.different_dtype),
    Rule(code="MOD003", name="different-revision", check=model.different_revision),
    Rule(code="MOD004", name="unreadable-model", check=model.unreadable_model),
    Rule(code="MOD005", name="tokenizer-beyond-embedding", check=model.tokenizer_beyond_embedding),
    Rule(code="MOD006", name="no-chat-template", check=model.no_chat_template),
    Rule(code="NET001", name="url-port-mismatch", check=network.url_port_mismatch),
    Rule(code="NET002", name="port-used-twice", check=network.port_used_twice),
    Rule(code="NET003", name="port-in-use", check=network.port_in_use),
    Rule(code="NET004", name="not-an-address", check=network.not_an_address),
    Rule(code="NET005", name="port-out-of-range", check=network.port_out_of_range),
    Rule(code="ORD001", name="no-address", check=network.no_address),
    Rule(code="ORD002", name="interpreter-not-found", check=network.interpreter_not_found),
    Rule(code=NOT_STARTABLE, name="not-started-yet", check=config.not_started_yet),
    Rule(code="SEC001", name="exposed-service", check=network.exposed_service),
    Rule(code="SEC002", name="remote-code", check=model.remote_code),
    Rule(code="SEC003", name="secret-in-recipe", check=network.secret_in_recipe),
    Rule(code="LEN001", name="completion-length-disagrees", check=lengths.completion_length_disagrees),
    Rule(code="LEN002", name="completion-length-missing", check=lengths.completion_length_missing),
    Rule(code="LEN003", name="context-too-small", check=lengths.context_too_small),
    Rule(code="LEN004", name="context-beyond-positions", check=lengths.context_beyond_positions),
    Rule(code="LEN005", name="limit-not-positive", check=lengths.limit_not_positive),
    Rule(code="LEN006", name="prompts-not-counted", check=lengths.prompts_not_counted),
    Rule(code="NUM001", name="group-does-not-divide", check=numbers.group_does_not_divide),
    Rule(code="NUM002", name="generations-disagree", check=numbers.generations_disagree),
    Rule(code="NUM003", name="group-too-small", check=numbers.group_too_small),
    Rule(code="NUM004", name="batch-not-over-processes", check=numbers.batch_not_over_processes),
    Rule(code="NUM005", name="eval-batch-not-groups", check=numbers.eval_batch_not_groups),
    Rule(code="NUM006", name="count-not-positive", check=numbers.count_not_positive),
    Rule(code="NUM007", name="sampling-out-of-range", check=numbers.sampling_out_of_range),
    Rule(code="RWD001", name="no-reward-function", check=rewards.no_function),
    Rule(code="RWD002", name="function-names", check=rewards.function_names),
    Rule(code="RWD003", name="function-not-found", check=rewards.function_not_found),
    Rule(code="RWD004", name="column-missing", check=rewards.column_missing),
    Rule(code="RWD005", name="weights-twice", check=rewards.weights_twice),
    Rule(code="RWD006", name="no-reward-limit", check=rewards.no_reward_limit),
    Rule(code="RWD007", name="trainer-state-not-sent", check=rewards.trainer_state_not_sent),
    Rule(code="RWD008", name="token-not-set", check=rewards.token_not_set),
    Rule(code="DAT001", name="data-unreadable", check=data.data_unreadable),
    Rule(code="DAT002", name="heldout-unreadable", check=data.heldout_unreadable),
    Rule(code="DAT003", name="fewer-rows-than-prompts", check=data.fewer_rows_than_prompts),
    Rule(code="DAT004", name="reserved-column", check=data.reserved_column),
    Rule(code="SYN001", name="vllm-settings-ignored", check=sync.vllm_settings_ignored),
    Rule(code="SYN002", name="generation-fields-ignored", check=sync.generation_fields_ignored),
    Rule(code="VER001", name="untested-version", check=sync.untested_version),
)


def check(case: Case) -> list[Finding]:
    """Every finding of every rule, in the order of the table."""
    return [replace(found, code=rule.code, name=rule.name) for rule in RULES for found in rule.check(case)]
