"""The post-process hook behind the server: a worker's time limit, and errors that name it."""

import json
from collections.abc import Callable

import pytest
from reward_server import StartServer

from rewards.asking.transport import Transport
from rewards.client import RewardError

UserFile = Callable[..., str]
SOURCE = """
import json, time

def f(completions):
    return [float(len(c)) for c in completions]

def best(rewards, group_ids, *, scale=1.0):
    top = {g: max(r for r, h in zip(rewards, group_ids) if h == g) for g in group_ids}
    return rewards, [scale * (r - top[g]) for r, g in zip(rewards, group_ids)]

def hangs(rewards):
    time.sleep(60)

def short(rewards):
    return rewards, rewards[:-1]
"""
BATCH = (["p"] * 4, ["a", "ccc", "ffffff", "dddd"], {})


def test_whole_groups_are_processed_and_what_has_no_reward_is_left_out(
    start_server: StartServer, user_file: UserFile
) -> None:
    path = user_file(SOURCE)
    hook = json.dumps({"target": f"{path}:best", "params": {"scale": 10}})
    server = start_server("--function", f"{path}:f", "--post-process", hook)
    reply = server.client().score(
        *BATCH, group_ids=[1, 2, 1, 2], statuses=["completed", "completed", "aborted", "truncated"]
    )
    assert reply.raw == [1.0, 3.0, None, 4.0]
    assert reply.rewards == [0.0, -10.0, None, 0.0]
    assert reply.components == {"f": [1.0, 3.0, None, 4.0]}
    with pytest.raises(RewardError, match="needs whole groups") as error:
        Transport(server.url, None, 5.0).call("POST", "/remote_rm", b'{"prompt": "p", "response": "r", "label": "r"}')
    assert error.value.status == 422
    shapes = {f["name"]: f["shape"] for f in server.client().info()["functions"]}
    assert shapes == {"f": "trl", "post_process": "post_process"}


@pytest.mark.parametrize(
    ("hook", "status", "words"),
    [
        ("hangs", 504, "post_process exceeded its time limit of 1 s"),
        ("short", 500, "post_process returned 3 processed rewards for 4 samples, expected \\(raw, processed\\)"),
    ],
)
def test_a_hook_that_fails_is_named(
    start_server: StartServer, user_file: UserFile, hook: str, status: int, words: str
) -> None:
    path = user_file(SOURCE)
    server = start_server("--function", f"{path}:f", "--post-process", f"{path}:{hook}", "--timeout-s", "1")
    with pytest.raises(RewardError, match=words) as error:
        server.client().score(*BATCH, group_ids=[0] * 4)
    assert error.value.status == status
