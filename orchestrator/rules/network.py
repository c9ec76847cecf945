"""NET and SEC: addresses and ports, equal where they must be and different where they must be."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from orchestrator.addresses import ANY_ADDRESS, LOOPBACK, host_of, port_of
from orchestrator.findings import Finding
from orchestrator.rules.case import Case
from orchestrator.schema import AUTO, GenerationConfig, RewardConfig

STARTED = {"generation": "embedded", "reward": "local"}
"""The kind of each service that a run starts itself."""


def _services(case: Case) -> Iterator[tuple[str, GenerationConfig | RewardConfig]]:
    yield "generation", case.run.generation
    if case.run.reward.kind != "inprocess":
        yield "reward", case.run.reward


def _started(case: Case) -> Iterator[tuple[str, GenerationConfig | RewardConfig]]:
    return ((name, part) for name, part in _services(case) if part.kind == STARTED[name])


def url_port_mismatch(case: Case) -> Iterator[Finding]:
    """The trainer connects to the port that the server binds.

    ## What it checks
    The port in `generation.url` and `reward.url` against `generation.port` and `reward.port`, `auto` included.
    ## Why it matters
    The trainer would wait for a server that is not there, or talk to another one and train on its answers.
    ## Bad
        generation.port=8001 generation.url=http://127.0.0.1:8000
        reward.url=http://127.0.0.1:9000
    ## Good
        generation.port=8001
        generation.port=8001 generation.url=http://localhost:8001
    """
    for name, part in _services(case):
        named = port_of(part.url)
        in_range = part.port == AUTO or (isinstance(part.port, int) and part.port > 0)  # else NET005 says so
        if part.url and in_range and named is not None and named != part.port:
            yield Finding(
                values={f"{name}.port": part.port, f"{name}.url": part.url},
                problem=f"{name}.port = {part.port}, and the trainer would connect to {part.url}",
                why=f"The trainer would use another server than the {name} server of this recipe, or none.",
                fix=f"set only {name}.port and leave {name}.url at http://${{{name}.host}}:${{{name}.port}}",
            )


def not_an_address(case: Case) -> Iterator[Finding]:
    """A URL is one that can be connected to.

    ## What it checks
    `generation.url` and `reward.url`: http or https, a host, a port that exists, and not an address
    that is only for binding (0.0.0.0, ::).
    ## Why it matters
    0.0.0.0 means "every interface" to a server; as a destination it is undefined, and works on some machines only.
    ## Bad
        generation.url=http://0.0.0.0:8000 generation.port=8000
        generation=external generation.url=http://localhost:99999
        generation.host=::1
        reward=external reward.url=localhost:9000/score reward.port=9000
    ## Good
        reward=external reward.url=http://localhost:9000
    """
    for name, part in _services(case):
        if not part.url:
            continue
        host, port = host_of(part.url), port_of(part.url)
        bare_ipv6 = ":" in host and "[" not in part.url
        if urlsplit(part.url).scheme not in ("http", "https") or not host or bare_ipv6:
            problem = f"{name}.url = {part.url} is not an http address"
        elif port != AUTO and not (isinstance(port, int) and 0 < port < 65536):
            problem = f"{name}.url = {part.url} names no port that exists"
        elif host in ANY_ADDRESS:
            problem = f"{name}.url = {part.url} names a bind address; nothing can be reached under {host}"
        else:
            continue
        yield Finding(
            values={f"{name}.url": part.url},
            problem=problem,
            why="The trainer connects to this address.",
            fix=f"write {name}.url=http://127.0.0.1:{port_of(part.url) or 'PORT'}, or the name of the machine",
        )


def port_used_twice(case: Case) -> Iterator[Finding]:
    """Services that the run starts have ports of their own.

    ## What it checks
    All fixed ports of services that this run starts, against each other and against the addresses of external services
    on this machine.
    ## Why it matters
    The second server cannot bind, or the trainer asks the wrong one.
    ## Bad
        generation.port=8000 reward.port=8000
        generation.port=8000 reward=external reward.url=http://127.0.0.1:8000
    ## Good
        generation.port=8000 reward.port=8001
    """
    taken: dict[int, str] = {}
    for name, part in _services(case):
        local = part.kind == STARTED[name] or host_of(part.url) in LOOPBACK
        if not isinstance(part.port, int) or not local:
            continue
        if part.port in taken:
            yield Finding(
                values={f"{taken[part.port]}.port": part.port, f"{name}.port": part.port},
                problem=f"{taken[part.port]} and {name} both use port {part.port}",
                why="Only one server can listen there; requests for the other would reach it.",
                fix=f"leave {name}.port=auto, or choose another port",
            )
        taken[part.port] = name


def port_in_use(case: Case) -> Iterator[Finding]:
    """A fixed port is free before the run starts.

    ## What it checks
    Each fixed port of a service that the run starts, by trying to bind it.
    ## Why it matters
    Another program's server would answer in the place of ours. It is left alone.
    ## Bad
        generation.port=8000
        facts: {"busy_ports": {"8000": "pid 4711: python -m http.server 8000"}}
    ## Good
        generation.port=8001
        facts: {"busy_ports": {"8000": "pid 4711: python -m http.server 8000"}}
    """
    for name, part in _started(case):
        if isinstance(part.port, int) and part.port in case.facts.busy_ports:
            yield Finding(
                values={f"{name}.port": part.port},
                problem=f"port {part.port} is in use by {case.facts.busy_ports[part.port]}",
                why=f"The {name} server cannot bind it, and the trainer would talk to a stranger.",
                fix=f"leave {name}.port=auto, choose another port, or stop that process",
            )


def port_out_of_range(case: Case) -> Iterator[Finding]:
    """A port is a number that a server can bind.

    ## What it checks
    1024 <= port <= 65535 for services that the run starts.
    ## Why it matters
    Lower ports need root, higher ones do not exist; the server would fail when it starts.
    ## Bad
        generation.port=70000
        reward.port=80
    ## Good
        generation.port=8000
    """
    for name, part in _started(case):
        if isinstance(part.port, int) and not 1024 <= part.port <= 65535:
            yield Finding(
                values={f"{name}.port": part.port},
                problem=f"{name}.port = {part.port} is outside 1024..65535",
                why="The server could not bind it.",
                fix=f"leave {name}.port={AUTO}, or choose a port between 1024 and 65535",
            )


def no_address(case: Case) -> Iterator[Finding]:
    """A service that somebody else runs has an address.

    ## What it checks
    `url` of external services.
    ## Why it matters
    Nothing starts such a service, so nothing can know where it is.
    ## Bad
        reward.kind=external reward.url=''
    ## Good
        reward=external reward.url=http://127.0.0.1:9000
    """
    for name, part in _services(case):
        reported = any(problem.path == f"{name}.url" for problem in case.problems)
        if part.kind == "external" and not part.url and not reported:
            yield Finding(
                values={f"{name}.kind": part.kind, f"{name}.url": part.url},
                problem=f"{name}.kind = external, and {name}.url is empty",
                why="The run does not start this service, so it has to be told where it is.",
                fix=f"set {name}.url=http://host:port, or {name}={STARTED[name]} to have it started",
            )


def exposed_service(case: Case) -> Iterator[Finding]:
    """Services that decide what is trained listen on loopback.

    ## What it checks
    The bind address of the generation server (anything but loopback is an error: it accepts weights from whoever
    connects) and of the reward server (an error without `reward.token_env`).
    ## Why it matters
    Whoever reaches these ports can replace the policy or choose its reward.
    ## Bad
        generation.host=0.0.0.0 generation.url=http://127.0.0.1:auto
        reward.host=0.0.0.0 reward.url=http://127.0.0.1:auto
    ## Good
        reward.host=0.0.0.0 reward.url=http://127.0.0.1:auto reward.token_env=REWARD_TOKEN
    """
    for name, part in _started(case):
        token = isinstance(part, RewardConfig) and part.token_env
        if part.host not in LOOPBACK and not token:
            yield Finding(
                values={f"{name}.host": part.host},
                problem=f"the {name} server would listen on {part.host}, open to the network",
                why="Whoever reaches it can "
                + ("replace the policy's weights." if name == "generation" else "use it and read prompts."),
                fix=f"leave {name}.host=127.0.0.1"
                + (", or name a token: reward.token_env=REWARD_TOKEN" if name == "reward" else ""),
            )


SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|API_?KEY|CREDENTIAL", re.IGNORECASE)
PLACEHOLDERS = ("", "EMPTY", "none", "dummy")


def secret_in_recipe(case: Case) -> Iterator[Finding]:
    """Secrets come from the environment, never from a recipe.

    ## What it checks
    Names in every `env` that look like a secret (TOKEN, SECRET, PASSWORD, API_KEY, CREDENTIAL) and have a value.
    ## Why it matters
    A recipe is written into the run directory, shown by `plan` and shared. Children inherit the environment, so an
    exported variable reaches them without being written anywhere.
    ## Bad
        +trainer.env.HF_TOKEN=hf_abc
    ## Good
        +trainer.env.OPENAI_API_KEY=EMPTY +trainer.env.TOKENIZERS_PARALLELISM=false
    """
    run = case.run
    envs = {
        "reward": run.reward.env,
        "generation": run.generation.env,
        "trainer": run.trainer.env,
        "launcher": run.launcher.env,
    }
    for part, env in envs.items():
        for name, value in env.items():
            if SECRET_NAME.search(name) and "TOKENIZERS" not in name and value not in PLACEHOLDERS:
                yield Finding(
                    values={f"{part}.env.{name}": "(not shown)"},
                    problem=f"{part}.env.{name} looks like a secret, and a recipe is no place for one",
                    why="It would be written into the run directory and shown by `orchestrate plan`.",
                    fix=f"remove it and run: export {name}=...; the processes of a run inherit the environment",
                )


def interpreter_not_found(case: Case) -> Iterator[Finding]:
    """A service's own interpreter exists.

    ## What it checks
    `generation.python` and `reward.python`: a program that can be run.
    ## Why it matters
    The service could not be started.
    ## Bad
        reward.python=/nowhere/bin/python
    ## Good
        reward.python=python3
    """
    for name, part in _started(case):
        if part.python and part.python not in case.facts.programs:
            yield Finding(
                values={f"{name}.python": part.python},
                problem=f"{name}.python = {part.python} is no program that can be run",
                why=f"The {name} server could not be started.",
                fix="give the path of the interpreter in the service's environment: .../bin/python",
            )
