"""SEC: what listens where, and what a recipe must not hold."""

import re
from collections.abc import Iterator

from orchestrator.addresses import is_loopback
from orchestrator.findings import Finding
from orchestrator.rules.case import Case
from orchestrator.rules.services import started
from orchestrator.schema import RewardConfig


def exposed_service(case: Case) -> Iterator[Finding]:
    """Services that decide what is trained listen on loopback.

    ## What it checks
    The bind address of the generation server (anything but loopback is an error without `generation.trusted_network`:
    it accepts weights from whoever connects, and vLLM's api-key does not guard those routes) and of the reward server
    (an error without `reward.token_env`).
    ## Why it matters
    Whoever reaches these ports can replace the policy or choose its reward.
    ## Bad
        generation.host=0.0.0.0 generation.url=http://127.0.0.1:auto
        reward.host=0.0.0.0 reward.url=http://127.0.0.1:auto
    ## Good
        reward.host=0.0.0.0 reward.url=http://127.0.0.1:auto reward.token_env=REWARD_TOKEN
        generation.host=0.0.0.0 generation.url=http://127.0.0.1:auto generation.trusted_network=true
    """
    for name, part in started(case):
        guarded = part.token_env if isinstance(part, RewardConfig) else part.trusted_network
        if not is_loopback(part.host) and not guarded:
            yield Finding(
                values={f"{name}.host": part.host},
                problem=f"the {name} server would listen on {part.host}, open to the network",
                why="Whoever reaches it can "
                + ("replace the policy's weights." if name == "generation" else "use it and read prompts."),
                fix=f"leave {name}.host=127.0.0.1"
                + (
                    ", or name a token: reward.token_env=REWARD_TOKEN"
                    if name == "reward"
                    else ", or say that nobody else is on this network: generation.trusted_network=true"
                ),
            )


SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|(ACCESS|SECRET|PRIVATE)_KEY|CREDENTIALS?)$", re.IGNORECASE
)
NO_SECRET = re.compile(r"|EMPTY|none|dummy|true|false|[\d.]+|[./~].*", re.IGNORECASE)
"""Placeholders, switches, counts and paths: values that give nothing away under any name."""


def secret_in_recipe(case: Case) -> Iterator[Finding]:
    """Secrets come from the environment, never from a recipe.

    ## What it checks
    Names in every `env` that end like a secret (TOKEN, SECRET, PASSWORD, API_KEY, ACCESS_KEY, CREDENTIALS) and have a
    value that is no switch, count, path or placeholder.
    ## Why it matters
    A recipe is written into the run directory, shown by `plan` and shared. Children inherit the environment, so an
    exported variable reaches them without being written anywhere.
    ## Bad
        +trainer.env.HF_TOKEN=hf_abc
    ## Good
        +trainer.env.OPENAI_API_KEY=EMPTY +trainer.env.TOKENIZERS_PARALLELISM=false
        +reward.env.JUDGE_MAX_TOKENS=512 +reward.env.GOOGLE_APPLICATION_CREDENTIALS=/keys/mine.json
    """
    run = case.run
    envs = {
        "reward": run.reward.env,
        "generation": run.generation.env,
        "trainer": run.trainer.env,
        "launcher": run.launcher.env,
    }
    for part, env in envs.items():
        for name, value in env.items():
            if SECRET_NAME.search(name) and not NO_SECRET.fullmatch(value):
                yield Finding(
                    values={f"{part}.env.{name}": "(not shown)"},
                    problem=f"{part}.env.{name} looks like a secret, and a recipe is no place for one",
                    why="It would be written into the run directory and shown by `orchestrate plan`.",
                    fix=f"remove it and run: export {name}=...; the processes of a run inherit the environment",
                )
