"""One attempt to find out whether a service may be used, and whether it is the one that we started."""

from dataclasses import dataclass

import requests

from orchestrator.steps import HttpProbe
from orchestrator.supervise.ports import PortOwner, port_owners
from orchestrator.supervise.procs import (
    RUN_ID_VARIABLE,
    descendants,
    has_variable,
    identity_of,
    read_table,
)

BODY_CHARS = 200


@dataclass(frozen=True)
class Healthy:
    """It answered 200."""


@dataclass(frozen=True)
class Unhealthy:
    """It did not."""

    reason: str


def probe(target: HttpProbe) -> Healthy | Unhealthy:
    """One GET. No proxy, no netrc, no redirect: what answers must be the service itself."""
    try:
        with requests.Session() as session:
            session.trust_env = False
            answer = session.get(target.url, timeout=target.timeout_s, allow_redirects=False, stream=True)
            if answer.status_code == 200:
                return Healthy()
            body = next(answer.iter_content(BODY_CHARS), b"").decode(errors="replace")
    except requests.Timeout:
        return Unhealthy(f"no answer within {target.timeout_s:g} s")
    except requests.ConnectionError as error:
        return Unhealthy(_connection_reason(error))
    except requests.RequestException as error:
        return Unhealthy(str(error))
    return Unhealthy(f"{answer.status_code}: {body.strip()}")


def owns_port(pid: int, port: int, host: str | None = None, run_id: str | None = None) -> bool | PortOwner:
    """True when every listener on the port is the process `pid` or below it, False when nobody listens.

    Otherwise the listener that is not. With `run_id`, a process that was started with it counts as well: a server
    that turned itself into a daemon is below nobody.
    """
    owners = port_owners(port, host)
    table = read_table()
    tree = {one.pid for one in descendants(table, [identity_of(pid)])}
    for owner in owners:
        if owner.pid is None:
            return owner
        gone = owner.pid not in table
        by_run = run_id is not None and has_variable(owner.pid, RUN_ID_VARIABLE, run_id)
        if owner.pid not in tree and not by_run and not gone:
            return owner
    return any(owner.pid in table for owner in owners if owner.pid is not None)


def _connection_reason(error: requests.ConnectionError) -> str:
    text = str(error)
    if "refused" in text:
        return "connection refused"
    if "resolve" in text:
        return "the host name cannot be resolved"
    return text.split("Caused by ")[-1][:BODY_CHARS]
