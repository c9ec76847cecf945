import asyncio
from collections.abc import Callable

import pytest

from rewards.contract import FunctionSpec
from rewards.running.pool import Pool
from rewards.running.process import WorkerStartError

UserFile = Callable[..., str]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os; print('last words', flush=True); os._exit(7)", r"exited with code 7.*last words"),
        ("import time; time.sleep(30)", "did not start within 1 s"),
        ("def g(completions): ...", "no function 'f'"),
    ],
)
def test_a_worker_that_does_not_start_says_why(user_file: UserFile, source: str, words: str) -> None:
    async def run() -> None:
        pool = Pool([FunctionSpec("f", f"{user_file(source)}:f")], workers=2, timeout_s=1, start_timeout_s=1)
        await pool.start()

    with pytest.raises(WorkerStartError, match=words):
        asyncio.run(run())
