"""How a run starts its reward server: what the command line says, read by the server's own parser."""

import json
from pathlib import Path

from talking import recipe

import launchers.reward
from launchers.context import Context
from orchestrator.ledgers.replies import longest_reply_s
from orchestrator.schema import PostProcessConfig, RewardFunctionConfig, RunConfig
from rewards.serving.flags import parse_functions, parser, read_settings


def flags(run: RunConfig) -> list[str]:
    step = launchers.reward.step(run, Context(interpreter="python", run_dir=Path("run")))
    return list(step.argv[step.argv.index("rewards.server") + 1 :])


def started(**reward: object) -> RunConfig:
    functions = [
        RewardFunctionConfig(name="a", target="accuracy", shape="trl", key="x", eval_key="y", only={"source": ["s"]})
    ]
    run = recipe(reward={"kind": "local", "port": 1234, "functions": functions, "timeout_s": 3.0, **reward})
    run.trainer.args = {"per_device_train_batch_size": 100_000}
    return run


def test_functions_and_hook() -> None:
    run = started(post_process=PostProcessConfig(target="group_norm", params={"std": False}))
    args = parser().parse_args(flags(run))
    (function,) = parse_functions(args.function)
    assert (function.shape, function.key, function.eval_key) == ("trl", "x", "y")
    assert function.only == {"source": ["s"]}
    assert json.loads(args.post_process) == {"target": "group_norm", "params": {"std": False}}
    assert parser().parse_args(flags(started())).post_process is None


def test_the_limits_fit_the_largest_batch() -> None:
    run = started()
    settings = read_settings(parser().parse_args(flags(run)))
    assert settings.max_batch == settings.max_queue == 100_000
    # The server ends a request before the trainer stops waiting for it, and says why.
    assert 3.0 * 100_000 < settings.request_timeout_s < longest_reply_s(run.reward, 100_000)
