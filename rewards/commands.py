"""The verbs `check` and `probe`: `orchestrate reward ...`, or `python -P -m rewards ...` without the rest."""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml

from rewards.asking.dialects import DIALECTS
from rewards.checking.proving import check
from rewards.checking.report import check_json, check_text, probe_json, probe_text
from rewards.checking.rows import RowsError, read_rows
from rewards.contract import GRANULARITIES, SHAPES, FunctionSpec, SpecError, spec_from_mapping
from rewards.printing import say
from rewards.probing.http import Asker
from rewards.probing.probe import probe
from rewards.probing.route import Pair

USAGE = 64  # EX_USAGE of sysexits.h
SIGNALLED = 128  # plus the number of the signal
LONGEST_TIMEOUT_S = 3600.0


class UsageError(Exception):
    """The command line is wrong."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{self.format_usage().strip()}")


def parser(prog: str) -> argparse.ArgumentParser:
    top = _Parser(prog=prog, description="Prove a reward function, or a running reward server, before training.")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="check | probe", parser_class=_Parser)
    _check_flags(verbs.add_parser("check", help="contract test of a reward function: no model, no GPU, no server"))
    _probe_flags(verbs.add_parser("probe", help="speak every reward dialect to a running server"))
    return top


def _check_flags(p: argparse.ArgumentParser) -> None:
    p.description = "Runs a reward function in a worker, as a server would. Exit codes: 0 ok, 2 errors, 64 usage."
    p.add_argument("target", metavar="FILE.py:FUNC", help="or package.module:name, or the name of a built-in")
    p.add_argument("--data", type=Path, metavar="ROWS.jsonl", help="JSON lines: `prompt` and the columns it needs")
    p.add_argument("--prompt", default="prompt", metavar="NAME", help="the key that holds the prompt (prompt)")
    p.add_argument("--column", action="append", default=[], metavar="OURS=THEIRS", help="rename a column; repeat")
    p.add_argument("--rows", type=int, default=8, metavar="N", help="rows of --data that are used, from its top (8)")
    p.add_argument("--param", action="append", default=[], metavar="NAME=VALUE", help="keyword argument, YAML; repeat")
    p.add_argument("--key", help="the entry of a returned dict that is the reward")
    p.add_argument("--eval-key", help="the entry that counts for held-out rows")
    p.add_argument("--shape", choices=[shape for shape in SHAPES if shape != "post_process"], help="not to be guessed")
    p.add_argument("--granularity", choices=GRANULARITIES, help="what one call gets")
    p.add_argument("--group-size", type=int, default=4, metavar="N", help="completions of one prompt (4)")
    p.add_argument("--timeout-s", type=_seconds, default=10.0, metavar="S", help="limit of one call, seconds (10)")
    p.add_argument("--json", action="store_true", help="for machines")


def _probe_flags(p: argparse.ArgumentParser) -> None:
    p.description = "Exit codes: 0 a dialect is honoured and right scores above wrong, 2 problems, 3 nobody answers."
    p.add_argument("url", metavar="URL", help="http://host:port, with or without a route")
    p.add_argument("--prompt", help="a question that the server knows (What is 1+1?)")
    p.add_argument("--gold", help="its right answer (2), which is then tried in several forms")
    p.add_argument("--right", help="a whole completion that is right")
    p.add_argument("--wrong", help="a whole completion that is wrong")
    p.add_argument("--dialect", action="append", default=[], choices=list(DIALECTS), help="only this one; repeat")
    p.add_argument("--token-env", metavar="NAME", help="environment variable that holds the bearer token")
    p.add_argument("--timeout-s", type=_seconds, default=10.0, metavar="S", help="limit of one request, seconds (10)")
    p.add_argument("--json", action="store_true", help="for machines")


def main(argv: Sequence[str] | None = None, prog: str = "python -P -m rewards") -> int:
    """Returns the exit code."""
    try:
        args = parser(prog).parse_args(argv)
        return _check(args) if args.verb == "check" else _probe(args)
    except UsageError as error:
        say(f"{prog}: {error}", sys.stderr)
        return USAGE
    except SystemExit as end:  # argparse after --help
        return int(end.code or 0)
    except KeyboardInterrupt:
        return SIGNALLED + signal.SIGINT


def _check(args: argparse.Namespace) -> int:
    if args.rows < 1 or args.group_size < 1:
        raise UsageError("--rows and --group-size must be 1 or more")
    try:
        spec = _spec(args)
        names = dict(_named(text, "--column") for text in args.column)
        rows = read_rows(args.data, args.rows, args.prompt, names) if args.data else []
    except (SpecError, RowsError) as error:
        raise UsageError(str(error)) from error
    report = check(spec, rows, group_size=args.group_size, timeout_s=args.timeout_s)
    _say(json.dumps(check_json(report), indent=2) if args.json else check_text(report))
    return report.exit_code


def _spec(args: argparse.Namespace) -> FunctionSpec:
    return spec_from_mapping(
        {
            "target": args.target,
            "params": dict(_param(text) for text in args.param),
            "key": args.key,
            "eval_key": args.eval_key,
            "shape": args.shape,
            "granularity": args.granularity,
        }
    )


def _param(text: str) -> tuple[str, Any]:
    name, value = _named(text, "--param")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UsageError(f"--param {text}: the value is no YAML: {' '.join(str(error).split())}") from error


def _named(text: str, flag: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"{flag} {text}: write NAME=VALUE")
    return name, value


def _probe(args: argparse.Namespace) -> int:
    token = os.environ.get(args.token_env, "").strip() if args.token_env else None
    if token == "":
        raise UsageError(f"--token-env {args.token_env}: this environment variable is unset or empty: export it")
    try:
        pair = Pair.given(args.prompt, args.gold, args.right, args.wrong)
        report = probe(args.url, pair, Asker(token, args.timeout_s), args.dialect)
    except ValueError as error:
        raise UsageError(str(error)) from error
    _say(json.dumps(probe_json(report), indent=2) if args.json else probe_text(report))
    return report.exit_code


def _say(text: str) -> None:
    """`| head -1` closes the pipe: the exit code must not suffer."""
    try:
        say(text, sys.stdout)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to come, at exit too


def _seconds(text: str) -> float:
    """For argparse, which makes a usage error of a ValueError."""
    value = float(text)
    if not 0 < value <= LONGEST_TIMEOUT_S:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most {LONGEST_TIMEOUT_S:g} seconds")
    return value
