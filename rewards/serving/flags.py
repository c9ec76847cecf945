"""The reward server's command line: its flags, and what can be wrong with them before anything starts."""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rewards.calling.post_process import NAME as HOOK_NAME
from rewards.calling.post_process import hook_spec
from rewards.calling.targets import LoadError, source_file, split_target
from rewards.contract import FunctionSpec, SpecError, spec_from_mapping
from rewards.protocols.common import END_TEXTS
from rewards.serving.gold import GoldError, GoldSet, load_gold
from rewards.serving.settings import Settings

LEAST_QUEUE = 65_536
LEAST_REQUEST_S = 300.0
UNITS_PER_REQUEST = 10


class StartError(Exception):
    """The server cannot start: what, where, and how to fix it."""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="rewards.server",
        description="Scores completions with reward functions, over HTTP: POST /v1/score (native), /get_reward "
        "(Align-Anything, OpenRLHF), /remote_rm (vime, slime); GET /health, /info, /metrics, /openapi.json.",
        formatter_class=_Help,
    )
    p.add_argument(
        "--function",
        action="append",
        required=True,
        metavar="TARGET",
        help="built-in name, package.module:name, file.py:name, or a JSON object {name, target, weight, ...}; repeat",
    )
    p.add_argument(
        "--post-process",
        metavar="TARGET",
        help="hook over whole groups, after the functions: group_norm, package.module:name, file.py:name, or a JSON "
        "object {target, params}",
    )
    p.add_argument("--on-error", choices=("fail", "mask"), default="fail", help="mask: such samples get no reward")
    p.add_argument("--workers", type=int, default=1, help="processes; 0: built-ins inside the server")
    p.add_argument("--timeout-s", type=float, default=10.0, help="limit of one unit (sample, group or batch), seconds")
    p.add_argument("--start-timeout-s", type=float, default=120.0, help="limit for a worker's imports and self-tests")
    _network_flags(p.add_argument_group("network"))
    _limit_flags(p.add_argument_group("limits of a request"))
    _dialect_flags(p.add_argument_group("other systems' dialects"))
    p.add_argument(
        "--log-samples",
        action="store_true",
        help="a JSON line per sample on stderr, and why requests are refused, with all texts",
    )
    return p


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Names the defaults that there are."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default in (None, False) else super()._get_help_string(action)


def _network_flags(p: argparse._ArgumentGroup) -> None:
    p.add_argument("--host", default="127.0.0.1", help="address to listen on; others than loopback want a token")
    p.add_argument("--port", type=int, default=8008, help="0: any free port; it is printed")
    p.add_argument(
        "--token-env",
        metavar="NAME",
        help="environment variable that holds the bearer token, needed for everything but /health",
    )


def _limit_flags(p: argparse._ArgumentGroup) -> None:
    p.add_argument("--max-batch", type=int, default=4096, help="samples per request; more: 413")
    p.add_argument("--max-body-mb", type=float, default=64.0, help="MiB per request; more: 413")
    p.add_argument(
        "--max-queue",
        type=int,
        help="samples that wait or are being scored, of all requests; more: 503 with Retry-After; "
        f"without it {LEAST_QUEUE}, or --max-batch where that is more",
    )
    p.add_argument(
        "--request-timeout-s",
        type=float,
        help="limit of a whole request, from its head to its answer: 504, or 408 where it did not arrive; "
        f"without it {UNITS_PER_REQUEST} times --timeout-s, but no less than {LEAST_REQUEST_S:g}",
    )


def _dialect_flags(p: argparse._ArgumentGroup) -> None:
    p.add_argument(
        "--gold",
        type=Path,
        metavar="FILE",
        help="gold answers by question, .jsonl or .json, for Align-Anything's clients, which send none",
    )
    p.add_argument("--gold-question", metavar="KEY", help="key of the question; without it: question, prompt, problem")
    p.add_argument("--gold-answer", metavar="KEY", help="key of the answer; without it: answer, solution, ...")
    p.add_argument(
        "--gold-threshold",
        type=float,
        default=0.9,
        metavar="RATIO",
        help="least similarity of a question with slips in several long words; with a slip in one it always counts; "
        "1: none at all",
    )
    p.add_argument(
        "--end-text",
        action="append",
        metavar="TEXT",
        help="special token that clients of OpenRLHF, vime and slime leave at the ends of a text, cut off before it is "
        "scored; repeat; without it those of common models: <|im_end|>, <|endoftext|>, <|eot_id|>, </s> and their like",
    )


def read_settings(args: argparse.Namespace) -> Settings:
    """Raises StartError."""
    if args.max_batch < 1 or not 0 < args.max_body_mb < float("inf"):
        raise StartError("--max-batch and --max-body-mb must be numbers above 0")
    queue = max(LEAST_QUEUE, args.max_batch) if args.max_queue is None else args.max_queue
    if queue < args.max_batch:
        raise StartError(f"--max-queue {queue} is below --max-batch {args.max_batch}: such a batch never fits")
    within_s = args.request_timeout_s
    if within_s is None:
        within_s = max(LEAST_REQUEST_S, UNITS_PER_REQUEST * args.timeout_s)
    if not within_s > 0:
        raise StartError("--request-timeout-s must be above 0")
    return Settings(
        workers=args.workers,
        timeout_s=args.timeout_s,
        on_error=args.on_error,
        max_batch=args.max_batch,
        max_body_bytes=int(args.max_body_mb * 2**20),
        max_queue=queue,
        request_timeout_s=within_s,
        golds=read_golds(args),
        end_texts=tuple(args.end_text) if args.end_text else END_TEXTS,
        log_samples=args.log_samples,
        token=read_token(args.token_env),
    )


def read_golds(args: argparse.Namespace) -> GoldSet | None:
    if args.gold is None:
        if args.gold_question or args.gold_answer:
            raise StartError("--gold-question and --gold-answer say how to read --gold FILE, which is not given")
        return None
    try:
        return load_gold(args.gold, args.gold_question, args.gold_answer, args.gold_threshold)
    except GoldError as error:
        raise StartError(str(error)) from error


def parse_function(text: str) -> FunctionSpec:
    """A `--function` value. Raises StartError."""
    try:
        raw = json.loads(text) if text.lstrip().startswith("{") else {"target": text}
        spec = spec_from_mapping(raw)
        source_file(split_target(spec.target)[0])
    except json.JSONDecodeError as error:
        raise StartError(f"--function {text}: not valid JSON: {error}") from error
    except (SpecError, LoadError) as error:
        raise StartError(f"--function {text}: {error}") from error
    return spec


def parse_functions(texts: Sequence[str]) -> list[FunctionSpec]:
    specs = [parse_function(text) for text in texts]
    names = [spec.name for spec in specs]
    for name in names:
        if name == HOOK_NAME:
            raise StartError(f"a reward function must not be named {name!r}: the hook's column is called so")
        if names.count(name) > 1:
            how = 'give one of them another name: --function \'{"name": "other", "target": ...}\''
            raise StartError(f"two functions are named {name!r}: {how}")
    return specs


def parse_hook(text: str | None) -> FunctionSpec | None:
    """The `--post-process` value. Raises StartError."""
    if not text:
        return None
    try:
        raw: dict[str, Any] = json.loads(text) if text.lstrip().startswith("{") else {"target": text}
        if unknown := sorted(set(raw) - {"target", "params"}):
            raise StartError(f"--post-process {text}: unknown keys {unknown}; it has target and params")
        if not isinstance(raw.get("target"), str) or not raw["target"]:
            raise StartError(f"--post-process {text}: target must be a text such as group_norm or file.py:name")
        spec = hook_spec(raw["target"], raw.get("params"))
        source_file(split_target(spec.target)[0])
    except json.JSONDecodeError as error:
        raise StartError(f"--post-process {text}: not valid JSON: {error}") from error
    except (SpecError, LoadError) as error:
        raise StartError(f"--post-process {text}: {error}") from error
    return spec


def read_token(name: str | None) -> str | None:
    if name is None:
        return None
    token = os.environ.get(name, "").strip()
    if not token:
        raise StartError(f"--token-env {name}: this environment variable is unset or empty: export it")
    if not token.isascii() or not token.isprintable():  # clients do not agree on how a header carries others
        raise StartError(f"--token-env {name}: the token must be printable ASCII characters only")
    return token
