"""What the reward server says, against what the recipe means."""

import os
from collections.abc import Mapping
from typing import Any

from orchestrator.facts import Facts
from orchestrator.ledgers.batches import largest_request, run_batches
from orchestrator.schema import RewardConfig, RunConfig
from orchestrator.supervise.handshake.functions import compare_functions
from orchestrator.supervise.handshake.identity import no_answer, who_answers
from orchestrator.supervise.handshake.interview import Interview
from orchestrator.supervise.handshake.sample import score_a_sample
from rewards.client import RewardClient, RewardError

QUESTION_TIMEOUT_S = 15.0
PROTOCOL = "orchestrate-rewards/1"
DIALECT = "/v1/score"
UNAUTHORISED = 401


def ask_reward(talk: Interview, run: RunConfig, facts: Facts) -> None:
    """Every question; stops where nobody answers."""
    reward = run.reward
    token = (os.environ.get(reward.token_env) or "").strip() if reward.token_env else ""
    client = RewardClient(reward.url, token=token or None, timeout_s=QUESTION_TIMEOUT_S)
    talk.asking = "GET /info"
    try:
        said = client.info()
        _server(talk, run, said)
        compare_functions(talk, run, facts, said)
        score_a_sample(talk, run, facts, client, said["functions"])
        talk.asking = "GET /info"
        talk.samples_scored = int(client.info()["samples_scored"])
    except RewardError as error:
        _no_answer(talk, reward, token, error)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        talk.fail(
            "answers",
            f"{talk.url} answered {talk.asking} with something else than a reward server of this version does.",
            said=f"{type(error).__name__}: {error}",
            fix="start it from the same version of orchestrate",
        )
    finally:
        client.close()


def _no_answer(talk: Interview, reward: RewardConfig, token: str, error: RewardError) -> None:
    if error.status == UNAUTHORISED:
        _refused_token(talk, reward, token)
    elif error.status is None:
        talk.fail("server", f"{no_answer(str(error), talk.url)}.", said=str(error), fix=_who_mends(talk))
    else:
        talk.fail(
            "server",
            f"what answers at {talk.url} is {who_answers(talk.url)}.",
            said=str(error),
            why=f"The trainer asks for scores by POST {DIALECT}.",
            fix="let reward.url name a server of python -m rewards.server",
        )


def _who_mends(talk: Interview) -> str:
    if talk.started:
        return "look at its log"
    return (
        "start it first (python -m rewards.server --function ... --port ...): with reward.kind=external somebody else "
        "runs the server and the run only asks it; or let the run start one: reward=local"
    )


def _refused_token(talk: Interview, reward: RewardConfig, token: str) -> None:
    if not reward.token_env:
        problem, fix = "the recipe names none", "reward.token_env=NAME, and export NAME=the server's token"
    elif not token:
        problem, fix = f"{reward.token_env} is unset or empty here", f"export {reward.token_env}=the server's token"
    else:
        problem = f"the one in {reward.token_env} is another"
        fix = f"export {reward.token_env}= what the server was started with"
    talk.fail(
        "token",
        f"{talk.url} wants its bearer token ({UNAUTHORISED} on /info), and {problem}.",
        said=UNAUTHORISED,
        why="Every request for scores would be refused.",
        fix=fix,
    )


def _server(talk: Interview, run: RunConfig, said: Mapping[str, Any]) -> None:
    """What holds for the server as a whole."""
    reward, other = run.reward, "start it from the same version of orchestrate"
    pid = said.get("pid")
    if reward.kind == "local":
        talk.compare("process", talk.pid, pid, why="A stale server of another run?", fix="orchestrate stop RUN")
    talk.pid = pid if isinstance(pid, int) else talk.pid
    talk.compare("protocol", PROTOCOL, said.get("protocol"), why="Its replies may mean other things.", fix=other)
    talk.skip("version", "recorded only: the protocol is what must agree", said=said.get("version"))
    dialects = list(said.get("dialects", ()))
    talk.compare(
        "dialect",
        DIALECT,
        DIALECT if DIALECT in dialects else dialects,
        why="The trainer speaks this one.",
        fix=other,
    )
    talk.compare(
        "on_error",
        reward.on_error,
        said.get("on_error"),
        why="Errors would end the run, or not, against the recipe.",
        fix=talk.either(f"--on-error {reward.on_error}", f"reward.on_error={said.get('on_error')}"),
    )
    _request_size(talk, run, said.get("max_batch"))


def _request_size(talk: Interview, run: RunConfig, room: Any) -> None:
    needed = largest_request(run.evaluation, run_batches(run))
    if not isinstance(room, int):
        talk.skip("samples in one request", "it does not say how many it takes", meant=f"at least {needed}")
        return
    talk.compare(
        "samples in one request",
        f"at least {needed}",
        room,
        agrees=room >= needed,
        why="The first batch would be refused with 413.",
        fix=talk.either(f"--max-batch {needed}", "a smaller trainer.args.per_device_train_batch_size"),
    )
