"""Verbs to functions, errors to exit codes."""

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path

from orchestrator.compose import CONF_DIR, CommandLineError, Composer, RecipeError
from orchestrator.exits import FINDINGS, OK, SIGNALLED, USAGE
from orchestrator.findings import has_errors
from orchestrator.jobs import CheckedJob, check_job, checked_jobs
from orchestrator.output import say
from orchestrator.paths import RunPaths
from orchestrator.render import findings as render_findings
from orchestrator.render.causes import spans
from orchestrator.request import Request, requested

# A verb imports what only it needs: a check costs hardly more than what Hydra takes to compose the recipe.

USAGE_TEXT = """\
orchestrate: one recipe for the reward server, the generation server and the trainer of an RL run

  orchestrate +experiment=NAME [key=value ...]      check, start, train, report, take down
  orchestrate -m +experiment=NAME key=1,2 [...]     sweep: every combination is checked before the first starts
  orchestrate check +experiment=NAME [...]          all offline rules; starts nothing, writes nothing (or dry_run=true)
  orchestrate check --deep +experiment=NAME [...]   and what takes TRL, the tokenizer and your reward functions
  orchestrate check --online +experiment=NAME [...] and the small files of a hub model are fetched (no weights)
  orchestrate plan +experiment=NAME [...]           what would start, in which order
  orchestrate why KEY [KEY ...] +experiment=NAME    the value and where it came from: file and line, override, default
  orchestrate schema [GROUP]                        the JSON Schema of a recipe, or of a group's files, for editors
  orchestrate rules [CODE]                          the rules and the alarms of a run, or one of them
  orchestrate resume RUN                            go on from the last checkpoint of a run directory
  orchestrate stop RUN                              end what is left of a run, also of a killed one
  orchestrate vllm-plugin                           the folder that a vLLM of your own takes weights by (pip install it)
  orchestrate reward check FILE.py:FUNC [...]       contract test of a reward function; --help shows the flags
  orchestrate reward probe URL [...]                speak every reward dialect to a running server

  --config-dir DIR   recipes and groups of your own       --json   for machines (check, plan, why)
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
    deep: bool = False
    online: bool = False
    multirun: bool = False


def main(argv: Sequence[str] | None = None) -> int:
    """The console script. Returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words[:1] == ["reward"]:  # its flags are its own, and so is its --help
            from rewards.commands import main as reward

            return reward(words[1:], prog="orchestrate reward")
        line = parse(words)
        return VERBS[line.verb](line)
    except UsageError as error:
        return _fail(f"{error}\nsee: orchestrate --help", USAGE)
    except KeyboardInterrupt:  # during a check; a run handles its signals itself
        return SIGNALLED + signal.SIGINT


def parse(argv: list[str]) -> CommandLine:
    """Raises UsageError. Everything that is not a verb or a flag of ours is an override."""
    verb = argv.pop(0) if argv and argv[0] in VERBS else "run"
    words: list[str] = []
    config_dir, as_json, deep, online, multirun = None, False, False, False, False
    while argv:
        word = argv.pop(0)
        if word in ("-h", "--help"):
            verb = "help"
        elif word == "--version":
            verb = "version"
        elif word == "--json":
            as_json = True
        elif word == "--deep":
            deep = True
        elif word == "--online":
            online = True
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
    for flag, given in (("--deep", deep), ("--online", online)):
        if given and verb not in ("check", "help", "version"):
            raise UsageError(f"{flag} goes with the verb check: orchestrate check {flag} ...")
    if verb == "run" and not words:
        verb = "help"
    if verb in ("run", "check", "plan"):
        for word in words:
            if "=" not in word and not word.startswith("~"):
                near = get_close_matches(word, [v for v in VERBS if v != "run"], n=1)
                raise UsageError(
                    f"{word} is neither a verb nor key=value" + (f"; did you mean {near[0]}?" if near else "")
                )
    return CommandLine(
        verb=verb,
        words=tuple(words),
        config_dir=config_dir,
        json=as_json,
        deep=deep,
        online=online,
        multirun=multirun,
    )


def check(line: CommandLine) -> int:
    """All offline rules over every combination; writes nothing. With --deep, docs/deep.md says what else; with --online
    the small files of a hub model are fetched into the hub's own cache."""

    def look(composer: Composer) -> int:
        request = requested(composer, line.words, multirun=line.multirun)
        if not line.deep:
            return _report(line, request, checked_jobs(composer, request.jobs, online=line.online))
        from orchestrator.deep.check import deep_check

        say("asking TRL, the tokenizer and the reward functions, in processes of their own ...", error=True)
        return _report(line, request, deep_check(composer, request.jobs, online=line.online))

    return _with_recipes(line, look)


def plan(line: CommandLine) -> int:
    """What would start. Findings go to stderr, so that --json stays a plan."""
    from launchers.context import Context
    from orchestrator.plan import make_plan
    from orchestrator.render import plan as render_plan
    from orchestrator.turns import CUDA_VISIBLE_DEVICES, devices

    if line.multirun:
        raise UsageError("plan shows one job: leave out -m and give one value to each key")

    def show(composer: Composer) -> int:
        job = check_job(composer, line.words)
        if job.findings:
            say(render_findings.text(job.findings), error=True)
        made = make_plan(
            job.run,
            Context(
                run_dir=Path(job.run.runs_dir, job.run.name, "TIME"),
                num_cpus=job.facts.num_cpus,
                vllm_version=job.facts.vllm_version,
                devices=devices(job.run, job.facts, os.environ.get(CUDA_VISIBLE_DEVICES)),
            ),
        )
        say(json.dumps(render_plan.as_json(made), indent=2) if line.json else render_plan.text(made))
        return FINDINGS if has_errors(job.findings) else OK

    return _with_recipes(line, show)


def run(line: CommandLine) -> int:
    """Check; then let Hydra launch the job or the sweep. With dry_run=true: check."""

    def go(composer: Composer) -> int:
        request = requested(composer, line.words, multirun=line.multirun)
        jobs = checked_jobs(composer, request.jobs)
        if any(job.run.dry_run for job in jobs):
            return _report(line, request, jobs)
        if line.json:
            raise UsageError("--json goes with check, plan and dry_run=true; a run leaves result.json")
        if request.sweeper:
            say(_chosen_later(request.sweeper) + " Each job is checked when its turn comes.", error=True)
        elif not _may_start(jobs):
            return FINDINGS
        at_once = min(job.run.sweep.parallel for job in jobs)
        if request.multirun and at_once > 1:
            from orchestrator.parallel import run_in_parallel

            return run_in_parallel(composer, request, jobs, at_once=at_once, config_dir=line.config_dir)
        from orchestrator.sweep import run_jobs

        return run_jobs(request, jobs, config_dir=line.config_dir)

    return _with_recipes(line, go)


def _may_start(jobs: Sequence[CheckedJob]) -> bool:
    """Say what was found; and whether the jobs, or with `sweep.keep_going` those without errors, are to be started."""
    if any(job.findings for job in jobs):
        say(render_findings.report(jobs), error=True)
    bad = [number for number, job in enumerate(jobs) if not job.starts]
    if not bad or len(bad) == len(jobs):
        return not bad
    keep_going = all(job.run.sweep.keep_going for job in jobs)
    then = "the others start" if keep_going else "nothing starts; sweep.keep_going=true would start the others"
    say(f"{len(bad)} of {len(jobs)} jobs cannot start ({spans(bad)}): {then}", error=True)
    return keep_going


def _chosen_later(sweeper: str) -> str:
    return f"hydra/sweeper={sweeper} chooses the combinations as it goes: they are not known beforehand."


def vllm_plugin(line: CommandLine) -> int:
    """Print where the plugin lies: for PYTHONPATH, or for pip (docs/generation.md)."""
    if line.words:
        raise UsageError("vllm-plugin takes no arguments")
    from orchestrator.assets import VLLM_PLUGIN

    say(str(VLLM_PLUGIN))
    return OK


def rules(line: CommandLine) -> int:
    from orchestrator.render import rules as render_rules

    if not line.words:
        say(render_rules.listing(render_rules.EVERY))
        return OK
    found = [rule for rule in render_rules.EVERY if line.words[0].upper() in (rule.code, rule.name.upper())]
    if not found:
        asked = line.words[0].upper()
        family = [rule for rule in render_rules.EVERY if rule.code.startswith(asked)]
        if family:
            say(render_rules.listing(family))
            return OK
        near = get_close_matches(asked, [rule.code for rule in render_rules.EVERY], n=1)
        raise UsageError(f"no rule {line.words[0]}" + (f"; the nearest one is {near[0]}" if near else ""))
    say(render_rules.page(found[0]).rstrip())
    return OK


def why(line: CommandLine) -> int:
    """Where values come from; of a key that holds several, each on a line."""
    from orchestrator.render import why as render_why
    from orchestrator.why import Recipe, UnknownKeyError

    keys = [word for word in line.words if "=" not in word and not word.startswith("~")]
    if line.multirun or not keys:
        raise UsageError("orchestrate why takes keys of one job, e.g. generation.max_model_len +experiment=grpo_math")

    def explain(composer: Composer) -> int:
        recipe = Recipe(composer, [word for word in line.words if word not in keys])
        try:
            data = json.dumps(render_why.as_json(recipe, keys), indent=2) if line.json else ""
            say(data or render_why.text(recipe, keys))
        except UnknownKeyError as error:
            raise UsageError(str(error)) from error
        return OK

    return _with_recipes(line, explain)


def schema(line: CommandLine) -> int:
    """The JSON Schema of a recipe or of a group's files."""
    from orchestrator.fields.json_schema import NoSchemaError, group_schema, recipe_schema

    if len(line.words) > 1:
        raise UsageError("orchestrate schema takes one group, or none for a whole recipe")
    folders = [CONF_DIR, *([Path(line.config_dir)] if line.config_dir else [])]
    try:
        say(json.dumps(group_schema(line.words[0]) if line.words else recipe_schema(folders), indent=2))
    except NoSchemaError as error:
        raise UsageError(str(error)) from error
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
    "why": why,
    "schema": schema,
    "rules": rules,
    "vllm-plugin": vllm_plugin,
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
        message = f"the recipe does not compose: {error}"
        if line.json and line.verb in ("check", "run"):
            say(json.dumps(render_findings.as_json([], error=message), indent=2))
        return _fail(message, FINDINGS)


def _report(line: CommandLine, request: Request, jobs: Sequence[CheckedJob]) -> int:
    if _without_experiment(line):
        say("no +experiment=NAME is chosen: these are the bare groups of conf/", error=True)
    if request.sweeper:
        say(_chosen_later(request.sweeper) + " Checked here is what they all have in common.", error=True)
    as_json = render_findings.as_json(jobs, sweeper=request.sweeper or None)
    say(json.dumps(as_json, indent=2) if line.json else render_findings.report(jobs))
    return int(as_json["exit_code"])


def _run_dir(line: CommandLine) -> Path:
    if len(line.words) != 1:
        raise UsageError(
            f"orchestrate {line.verb} takes one run directory and no overrides, e.g. runs/grpo_math/latest"
        )
    path = Path(line.words[0])
    if not RunPaths(run_dir=path).recipe.is_file():
        raise UsageError(f"{path} is not a run directory (it holds no recipe.yaml)")
    return path.resolve()


def _fail(message: str, code: int) -> int:
    say(f"orchestrate: {message}", error=True)
    return code
