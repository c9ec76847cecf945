"""Clients of the reward server: RewardClient asks it anything, RemoteReward is a reward function for TRL's trainers."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rewards.asking.columns import data_columns, encode_batch
from rewards.asking.exchange import NoAnswerError, is_loopback
from rewards.asking.forwarding import address
from rewards.asking.refusal import FIRST_PAUSE_S
from rewards.asking.score_reply import Described, RewardError, ScoreReply, parse_functions, parse_reply
from rewards.asking.transport import HTTP_OK, HTTP_UNAVAILABLE, Transport
from rewards.batch import Text
from rewards.calling.targets import near

SCORE_PATH = "/v1/score"

__all__ = [
    "FIRST_PAUSE_S",
    "HTTP_OK",
    "HTTP_UNAVAILABLE",
    "RemoteReward",
    "RewardClient",
    "RewardError",
    "ScoreReply",
    "is_loopback",
    "parse_reply",
]


class RewardClient:
    """One session to one server. Not for several threads at once."""

    def __init__(self, base_url: str, token: str | None = None, timeout_s: float = 60.0) -> None:
        """`timeout_s` bounds each call, retries included."""
        self._transport = Transport(base_url, token, timeout_s)
        self.base_url, self.timeout_s = self._transport.base_url, timeout_s

    def health(self) -> bool:
        """Whether the server is ready to score now. Never raises; asks once, and takes `timeout_s` at most."""
        try:
            reply = self._transport.exchange.ask("GET", self.base_url + "/health", None, self.timeout_s)
        except NoAnswerError:
            return False
        return reply.status == HTTP_OK

    def info(self) -> dict[str, Any]:
        """What the server says about itself and its functions. Raises RewardError."""
        return self._transport.call("GET", "/info")

    def score(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        columns: Mapping[str, Sequence[Any]],
        group_ids: Sequence[str | int] | None = None,
        statuses: Sequence[str] | None = None,
        evaluation: bool = False,
    ) -> ScoreReply:
        """Score one batch; in an evaluation, functions with an `eval_key` count by it. Raises RewardError."""
        body = encode_batch(
            prompts,
            completions,
            columns,
            group_ids=None if group_ids is None else list(group_ids),
            statuses=None if statuses is None else list(statuses),
            evaluation=evaluation,
        )
        return parse_reply(self._transport.call("POST", SCORE_PATH, body), len(prompts))

    def close(self) -> None:
        self._transport.exchange.close()


class RemoteReward:
    """A reward function for TRL's own trainers (GRPO, RLOO) that asks a reward server.

    Sent are the data's columns, and `completion_ids` where a function of the server wants them. A masked sample, an
    aborted one and one that is nobody's gets None, as TRL has it. May be pickled, and called by several threads and
    processes: each has a connection of its own.
    """

    def __init__(
        self,
        url: str,
        *,
        function: str | None = None,
        token: str | None = None,
        token_env: str | None = None,
        num_generations: int | None = None,
        timeout_s: float = 300.0,
        name: str | None = None,
    ) -> None:
        """`function`: whose rewards; None = the weighted total of all, after the server's post-process hook.

        `token_env`: the environment variable that holds the bearer token. `num_generations`: the trainer's, for a
        server with group functions or a hook: consecutive completions are then sent as groups of that size.
        `timeout_s` bounds each call, retries included. `name`: in TRL's metrics; default the function's.
        """
        address(url, "")  # raises ValueError
        if token is not None and token_env is not None:
            raise ValueError("give token or token_env, not both")
        if num_generations is not None and num_generations < 1:
            raise ValueError(f"num_generations must be 1 or more, not {num_generations}")
        self.url = url.rstrip("/").removesuffix(SCORE_PATH)  # the route is given to clients of other systems
        self.function, self.timeout_s = function, timeout_s
        self.num_generations, self._token, self._token_env = num_generations, token, token_env
        self.__name__ = name or function or "remote_reward"
        self._local = threading.local()

    def __call__(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """A reward per sample. Raises RewardError, with the server's own words where it refuses."""
        group_ids = self._group_ids(prompts)
        client = self._client()
        data = data_columns(columns)
        if completion_ids is not None and self._local.wants_ids:
            data["completion_ids"] = [list(ids) for ids in completion_ids]
        reply = client.score(prompts, completions, data, group_ids)
        self._log(reply, columns.get("log_metric"), columns.get("log_extra"))
        if self.function is None:
            return reply.rewards
        # A sample on which another function failed has no reward at all: TRL would take this part for the whole.
        component = reply.components.get(self.function)
        if component is None:
            raise RewardError(
                f"{self.url}: the reply has no rewards of {self.function!r} (of {list(reply.components)})"
            )
        return [None if total is None else part for part, total in zip(component, reply.rewards, strict=True)]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_local"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._local = threading.local()

    def _client(self) -> RewardClient:
        """This thread's, made at its first call; a fork of the process must not share its parent's connection."""
        local = self._local
        if getattr(local, "pid", None) != os.getpid():
            client = RewardClient(self.url, self._read_token(), self.timeout_s)
            functions = self._functions(client)
            names = [f.name for f in functions if f.shape != "post_process"]
            if self.function is not None and self.function not in names:
                raise RewardError(f"{self.url} has no reward function {self.function!r}{near(self.function, names)}")
            local.wants_ids = any(f.wants_completion_ids for f in functions)
            local.client, local.pid = client, os.getpid()
        found: RewardClient = local.client
        return found

    def _read_token(self) -> str | None:
        if self._token_env is None:
            return self._token
        token = os.environ.get(self._token_env, "").strip()
        if not token:
            raise RewardError(f"the environment variable {self._token_env} is unset or empty: it holds the token")
        return token

    def _functions(self, client: RewardClient) -> list[Described]:
        info = client.info()
        try:
            return parse_functions(info)
        except RewardError as error:
            raise RewardError(f"{self.url}: {error}") from error

    def _group_ids(self, prompts: Sequence[Text]) -> list[int] | None:
        size = self.num_generations
        if size is None:
            return None
        if len(prompts) % size:
            raise RewardError(
                f"{len(prompts)} completions are no whole groups of {size}: with several processes a group lies on two "
                "of them. Let per_device_train_batch_size x steps_per_generation (in an evaluation: "
                "per_device_eval_batch_size) be a multiple of num_generations"
            )
        for index, prompt in enumerate(prompts):
            if prompt != prompts[index - index % size]:
                raise RewardError(
                    f"sample {index} has another prompt than the first of its group of {size}: num_generations of "
                    "RemoteReward must be the trainer's (num_generations_eval, where it evaluates)"
                )
        return [index // size for index in range(len(prompts))]

    def _log(
        self, reply: ScoreReply, log_metric: Callable[..., Any] | None, log_extra: Callable[..., Any] | None
    ) -> None:
        """The components beside the total, what else functions said, and how many samples have no reward."""
        columns: dict[str, list[Any]] = dict(reply.components) if self.function is None else {}
        columns |= {name: c for name, c in reply.logs.items() if self.function in (None, name.partition("/")[0])}
        if reply.raw is not None and self.function is None:
            columns["raw"] = reply.raw
        for name, column in columns.items():
            numbers = [value for value in column if isinstance(value, (int, float))]
            if log_metric is not None and numbers:
                log_metric(f"{self.__name__}/{name}", sum(numbers) / len(numbers))
            if log_extra is not None:
                log_extra(f"{self.__name__}/{name}", column)
        if log_metric is not None:
            log_metric(f"{self.__name__}/unscored", float(sum(reward is None for reward in reply.rewards)))
