"""What `check --deep` asks its children: each distinct question once, however many jobs of a sweep share it."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from launchers.context import module_argv, threads
from orchestrator.deep.answers import Answers, NoAnswer
from orchestrator.deep.children import Child, ask
from orchestrator.deep.trials import trial_of
from orchestrator.fields.trainer import TRAINER_KINDS
from orchestrator.jobs import CheckedJob
from orchestrator.schema import RunConfig

DEADLINE_S = 300.0
"""For each child, from its start until it is ended with everything below it."""

OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
NO_TRACES = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Nothing is written beside a user's files."""
RENDEZVOUS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""A process that is told these waits for others, which nobody starts here."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question about a job. Equal ones are asked once, so it holds no more of the recipe than its answer needs."""

    kind: Literal["arguments", "prompts", "rewards"]
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    text: str
    """JSON of the recipe's part, or of the trial."""

    @property
    def child(self) -> tuple[Any, ...]:
        """Questions with the same one share a child. Importing TRL takes seconds; reward functions may hang."""
        return (self.argv, self.env, self.text if self.kind == "rewards" else "")


def learn(jobs: Sequence[CheckedJob], deadline_s: float = DEADLINE_S) -> list[Answers]:
    """Start the children, wait for them, and sort their answers by job."""
    asked = [tuple(_questions(job)) for job in jobs]
    shared: dict[Any, list[Question]] = {}
    for question in dict.fromkeys(question for questions in asked for question in questions):
        shared.setdefault(question.child, []).append(question)
    replies = ask([_child(questions) for questions in shared.values()], deadline_s)
    known: dict[Question, Any] = {}
    for questions, reply in zip(shared.values(), replies, strict=True):
        known |= dict(zip(questions, [reply] * len(questions) if isinstance(reply, NoAnswer) else reply, strict=True))
    return [Answers.of({question.kind: known[question] for question in questions}) for questions in asked]


def _child(questions: Sequence[Question]) -> Child:
    first = questions[0]
    request = [
        json.loads(question.text) if question.kind == "rewards" else [question.kind, json.loads(question.text)]
        for question in questions
    ]
    return Child(argv=first.argv, env=dict(first.env), request=request)


def _questions(job: CheckedJob) -> Iterator[Question]:
    """What can be asked about a job: where an offline rule has said that a part is unusable, nothing."""
    run, facts = job.run, job.facts
    rehearsal = module_argv(sys.executable, "orchestrator.training.rehearsal")
    trainer_env = _environment(OFFLINE | threads(facts.num_cpus) | {"TRL_EXPERIMENTAL_SILENCE": "1"}, _trainer(run))
    if run.trainer.kind != "command" and TRAINER_KINDS[run.trainer.kind].config:
        unfit = {path for finding in job.findings if finding.code.startswith("CFG") for path in finding.values}
        recipe = _arguments_recipe(run, unfit)
        yield Question(kind="arguments", argv=rehearsal, env=trainer_env, text=_text(recipe))
    if not isinstance(facts.data, str) and not isinstance(facts.models.get(run.model.name, ""), str):
        yield Question(kind="prompts", argv=rehearsal, env=trainer_env, text=_text(_prompts_recipe(run)))
    if trial := trial_of(run, facts):
        inside = run.reward.kind == "inprocess"
        argv = module_argv((None if inside else run.reward.python) or sys.executable, "rewards.checking.check")
        env = _environment(threads(1), _trainer(run) if inside else run.reward.env, without=run.reward.token_env)
        yield Question(kind="rewards", argv=argv, env=env, text=_text(trial.to_wire()))


def _arguments_recipe(run: RunConfig, unfit: set[str]) -> dict[str, Any]:
    """What `trainer_config` reads. What a CFG rule has named would only be refused once more, and hide the rest."""
    args = {key: value for key, value in run.trainer.args.items() if f"trainer.args.{key}" not in unfit}
    return {
        "trainer": {"kind": run.trainer.kind, "args": args},
        "reward": {"functions": [{"weight": function.weight} for function in run.reward.functions]},
        "evaluation": {"rows": run.evaluation.rows},
        "launcher": {"num_processes": run.launcher.num_processes, "num_machines": run.launcher.num_machines},
    }


def _prompts_recipe(run: RunConfig) -> dict[str, Any]:
    """What `count_prompts` reads."""
    kwargs = run.trainer.args.get("chat_template_kwargs")
    return {
        "model": asdict(run.model),
        "data": asdict(run.data),
        "evaluation": {"rows": run.evaluation.rows},
        "trainer": {"args": {"chat_template_kwargs": kwargs} if kwargs else {}},
    }


def _trainer(run: RunConfig) -> dict[str, str]:
    return {**run.launcher.env, **run.trainer.env}


def _environment(
    ours: Mapping[str, str], recipe: Mapping[str, str], without: str | None = None
) -> tuple[tuple[str, str], ...]:
    env = {**os.environ, **ours, **NO_TRACES, **recipe}
    return tuple(sorted((name, value) for name, value in env.items() if name not in (*RENDEZVOUS, without)))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
