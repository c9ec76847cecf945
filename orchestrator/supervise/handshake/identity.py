"""What it is that answers at an address, where it is not what the recipe means."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import requests

from orchestrator.generation import EMBEDDED
from rewards.client import is_loopback

TIMEOUT_S = 3.0
PLAIN_SERVER = "TRL up to 1.10 needs that server; TRL 1.11 and newer, and orchestrate, need vLLM's own `vllm serve`"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Of one GET."""

    status: int
    body: Any
    """Parsed JSON; None for anything else."""


def who_answers(url: str) -> str:
    """In words. Asks a few harmless GETs, none longer than TIMEOUT_S; what only answers POST says 405 to them."""
    with requests.Session() as session:
        session.trust_env = not is_loopback(url)
        ask = _asker(session, url.rstrip("/"))
        for recognise in (_reward_server, _openai_server, _trl_server, _foreign_reward_server):
            if words := recognise(ask):
                return words
    return "something that is neither a generation server nor a reward server"


Ask = Callable[[str], Answer]


def _asker(session: requests.Session, url: str) -> Ask:
    known: dict[str, Answer] = {}

    def ask(path: str) -> Answer:
        if path not in known:
            known[path] = _get(session, url + path)
        return known[path]

    return ask


def _get(session: requests.Session, url: str) -> Answer:
    try:
        reply = session.get(url, timeout=TIMEOUT_S, allow_redirects=False)
    except requests.RequestException:  # it has no say in what this is
        return Answer(status=0, body=None)
    try:
        return Answer(status=reply.status_code, body=reply.json())
    except ValueError:
        return Answer(status=reply.status_code, body=None)


def _reward_server(ask: Ask) -> str | None:
    info = ask("/info")
    protocol = info.body.get("protocol") if isinstance(info.body, Mapping) else None
    ours = str(protocol).startswith("orchestrate-rewards/") or (info.status == 401 and ask("/v1/score").status == 405)
    return "a reward server of orchestrate" if ours else None


def _openai_server(ask: Ask) -> str | None:
    models = ask("/v1/models").body
    if not isinstance(models, Mapping) or not isinstance(models.get("data"), list):
        return None
    said = ask("/version").body
    version = said.get("version") if isinstance(said, Mapping) else None
    if isinstance(said, Mapping) and said.get("engine") == EMBEDDED:
        return f"the embedded generation server of orchestrate {version}"
    owners = {card.get("owned_by") for card in models["data"] if isinstance(card, Mapping)}
    if owners == {"vllm"}:
        return f"vLLM {version or '(of unknown version)'}"
    return f"an OpenAI-compatible server (owned_by {', '.join(sorted(map(str, owners)))})"


def _trl_server(ask: Ask) -> str | None:
    old = ask("/get_world_size/").status == 200 and ask("/init_communicator/").status == 405
    return f"the `trl vllm-serve` of an older TRL ({PLAIN_SERVER})" if old else None


def _foreign_reward_server(ask: Ask) -> str | None:
    if ask("/get_reward").status == 405:
        return "an OpenRLHF or Align-Anything reward server (POST /get_reward)"
    if ask("/seed_session").status == 405 and ask("/verify").status == 405:
        return "a NeMo Gym resources server (POST /seed_session, /verify)"
    return None


def no_answer(error: str, url: str) -> str:
    """Why nobody answered, from a client's words."""
    if "efused" in error:
        return f"nothing listens on {url} (connection refused)"
    for sign in ("not known", "resolve", "name resolution", "No address"):
        if sign in error:
            return f"the host of {url} cannot be resolved"
    if "SSL" in error or "certificate" in error:
        return f"{url} speaks another protocol than its scheme says, or its certificate is not trusted"
    return f"{url} is of no use: {error}"
