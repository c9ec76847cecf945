"""Verbs to functions, errors to exit codes."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path

from launchers.context import Context
from orchestrator.compose import CONF_DIR, CommandLineError, Composer, RecipeError
from orchestrator.exits import FINDINGS, OK, USAGE
from orchestrator.findings import has_errors, stops_a_run
from orchestrator.jobs import CheckedJob, check_job, checked_jobs
from orchestrator.output import say
from orchestrator.paths import RunPaths
from orchestrator.plan import make_plan
from orchestrator.render import findings as render_findings
from orchestrator.render import plan as render_plan
from orchestrator.render import rules as render_rules
from orchestrator.rules import RULES

USAGE_TEXT = """\
orchestrate: one recipe for the reward server, the generation server and the trainer of an RL run

  orchestrate +experiment=NAME [key=value ...]      check, start, train, report, take down
  orchestrate -m +experiment=NAME key=1,2 [...]     sweep: every combination is checked before the first starts
  orchestrate check +experiment=NAME [...]          all offline rules; starts nothing, writes nothing (or dry_run=true)
  orchestrate plan +experiment=NAME [...]           what would start, in which order
  orchestrate rules [CODE]                          the rules, or one of them
  orchestrate resume RUN                            go on from the last checkpoint of a run directory
  orchestrate stop RUN                              end what is left of a run, also of a killed one

  --config-dir DIR   recipes and groups of your own       --json   for machines (check, plan)
  -m, --multirun     sweep                                --help, --version

exit codes: 0 ok, 1 the run failed, 2 findings, 3 a service failed to start or to agree, 64 this command line is wrong,
130/143 stopped by a signal; a sweep exits with the worst of its jobs
shipped experiments: """


class UsageError(Exception):
    """The command line itself is wrong."""


@dataclass(frozen=True, kw_only=True)
class CommandLine:
    """argv, taken apart: what is ours, and the overrides that are Hydra's."""

    verb: str
    words: tuple[str, ...]
    config_dir: str | None = None
    json: bool = False
    multirun: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code."""
    try:
        line = parse(list(sys.argv[1:] if argv is None else argv))
        return VERBS[line.verb](line)
    except UsageError as error:
        return _fail(f"{error}\nsee: orchestrate --help", USAGE)


def parse(argv: list[str]) -> CommandLine:
    """Raises UsageError. Everything that is not a verb or a flag of ours is an override."""
    verb = argv.pop(0) if argv and argv[0] in VERBS else "run"
    words: list[str] = []
    config_dir, as_json, multirun = None, False, False
    while argv:
        word = argv.pop(0)
        if word in ("-h", "--help"):
            verb = "help"
        elif word == "--version":
            verb = "version"
        elif word == "--json":
            as_json = True
        elif word in ("-m", "--multirun"):
            multirun = True
        elif word in ("--config-dir", "-cd") or word.startswith("--config-dir="):
            _, equals, value = word.partition("=")
            if not equals and not argv:
                raise UsageError("--config-dir needs a folder")
            config_dir = value if equals else argv.pop(0)
        elif word.startswith("-"):
            raise UsageError(f"unknown flag {word}")
        else:
            words.append(word)
    if verb == "run" and not words:
        verb = "help"
    if verb in ("run", "check", "plan"):
        for word in words:
            if "=" not in word and not word.startswith("~"):
                near = get_close_matches(word, [v for v in VERBS if v != "run"], n=1)
                raise UsageError(
                    f"{word} is neither a verb nor key=value" + (f"; did you mean {near[0]}?" if near else "")
                )
    return CommandLine(verb=verb, words=tuple(words), config_dir=config_dir, json=as_json, multirun=multirun)


def check(line: CommandLine) -> int:
    """All offline rules over every combination; writes nothing."""
    return _with_recipes(
        line, lambda composer: _report(line, checked_jobs(composer, line.words, multirun=line.multirun))
    )


def plan(line: CommandLine) -> int:
    """What would start. Findings go to stderr, so that --json stays a plan."""
    if line.multirun:
        raise UsageError("plan shows one job: leave out -m and give one value to each key")

    def show(composer: Composer) -> int:
        job = check_job(composer, line.words)
        if job.findings:
            say(render_findings.text(job.findings), error=True)
        made = make_plan(
            job.run, Context(run_dir=Path(job.run.runs_dir, job.run.name, "TIME"), num_cpus=job.facts.num_cpus)
        )
        say(json.dumps(render_plan.as_json(made), indent=2) if line.json else render_plan.text(made))
        return FINDINGS if has_errors(job.findings) else OK

    return _with_recipes(line, show)


def run(line: CommandLine) -> int:
    """Check; then let Hydra launch the job or the sweep. With dry_run=true: check."""

    def go(composer: Composer) -> int:
        jobs = checked_jobs(composer, line.words, multirun=line.multirun)
        if any(job.run.dry_run for job in jobs):
            return _report(line, jobs)
        if line.json:
            raise UsageError("--json goes with check, plan and dry_run=true; a run leaves result.json")
        if any(job.findings for job in jobs):
            say(render_findings.sweep_text(jobs), error=True)
        if any(stops_a_run(job.findings) for job in jobs):
            return FINDINGS
        from orchestrator.sweep import run_jobs  # here: a check must not pay for what only a run needs

        return run_jobs(composer, jobs, line.words, multirun=line.multirun, config_dir=line.config_dir)

    return _with_recipes(line, go)


def rules(line: CommandLine) -> int:
    if not line.words:
        say(render_rules.listing(RULES))
        return OK
    found = [rule for rule in RULES if line.words[0].upper() in (rule.code, rule.name.upper())]
    if not found:
        near = get_close_matches(line.words[0].upper(), [rule.code for rule in RULES], n=1)
        raise UsageError(f"no rule {line.words[0]}" + (f"; the nearest one is {near[0]}" if near else ""))
    say(render_rules.page(found[0]).rstrip())
    return OK


def resume(line: CommandLine) -> int:
    from orchestrator.running import resume_run

    return resume_run(_run_dir(line))


def stop(line: CommandLine) -> int:
    from orchestrator.supervise.record import stop_run

    ended = stop_run(_run_dir(line), grace_s=3.0)
    say(f"ended {len(ended)} processes" + (f": {', '.join(map(str, ended))}" if ended else ""))
    return OK


def show_help(line: CommandLine) -> int:
    names = sorted(path.stem for path in (CONF_DIR / "experiment").glob("*.yaml"))
    say(USAGE_TEXT + ", ".join(names))
    return OK


def show_version(line: CommandLine) -> int:
    say(f"orchestrate {version('orchestrate')}")
    return OK


VERBS: dict[str, Callable[[CommandLine], int]] = {
    "run": run,
    "check": check,
    "plan": plan,
    "rules": rules,
    "resume": resume,
    "stop": stop,
    "help": show_help,
    "version": show_version,
}


def _without_experiment(line: CommandLine) -> bool:
    return not any(word.lstrip("+").startswith("experiment=") for word in line.words)


def _with_recipes(line: CommandLine, action: Callable[[Composer], int]) -> int:
    """Open the composer and turn its errors into exit codes."""
    try:
        return action(Composer(line.config_dir))
    except CommandLineError as error:
        raise UsageError(str(error)) from error
    except RecipeError as error:
        return _fail(f"the recipe does not compose: {error}", FINDINGS)


def _report(line: CommandLine, jobs: Sequence[CheckedJob]) -> int:
    if _without_experiment(line):
        say("no +experiment=NAME is chosen: these are the bare groups of conf/", error=True)
    as_json = render_findings.sweep_json(jobs)
    say(json.dumps(as_json, indent=2) if line.json else render_findings.sweep_text(jobs))
    return OK if as_json["ok"] else FINDINGS


def _run_dir(line: CommandLine) -> Path:
    if len(line.words) != 1:
        raise UsageError(f"orchestrate {line.verb} takes one run directory, e.g. runs/grpo_math/latest")
    path = Path(line.words[0])
    if not RunPaths(run_dir=path).recipe.is_file():
        raise UsageError(f"{path} is not a run directory (it holds no recipe.yaml)")
    return path.resolve()


def _fail(message: str, code: int) -> int:
    say(f"orchestrate: {message}", error=True)
    return code
