"""NET and ORD: ports, equal on both ends, free, and nobody else's."""

from collections.abc import Iterator

from orchestrator.addresses import ANY_ADDRESS, host_of, is_loopback, port_of
from orchestrator.findings import Finding, skipped
from orchestrator.kinds import generation_kind
from orchestrator.ledgers.ports import Port, ports
from orchestrator.rules.case import Case
from orchestrator.rules.services import STARTED, asked_by_rewards, same_host, started
from orchestrator.schema import AUTO, GenerationConfig


def url_port_mismatch(case: Case) -> Iterator[Finding]:
    """The trainer connects to the port that the server binds.

    ## What it checks
    The port in `generation.url` and `reward.url` against `generation.port` and `reward.port`, `auto` included; of
    servers that the run starts on this machine also the host, and that it is http. An external one is at its url.
    ## Why it matters
    The trainer would wait for a server that is not there, or talk to another one and train on its answers.
    ## Bad
        generation.port=8001 generation.url=http://127.0.0.1:8000
        reward.url=http://127.0.0.1:9000
        generation.port=8000 generation.url=http://gpu7:8000
        reward.port=9000 reward.url=https://127.0.0.1:9000
    ## Good
        generation.port=8001
        generation.port=8001 generation.url=http://localhost:8001
    """
    for name, part in started(case):
        away = is_loopback(part.host) and part.url and not is_loopback(host_of(part.url))
        remote = isinstance(part, GenerationConfig) and part.num_machines > 0  # NET007's
        if host_of(part.url) not in ANY_ADDRESS and not remote and (away or part.url.startswith("https://")):
            yield Finding(
                values={f"{name}.host": part.host, f"{name}.url": part.url},
                problem=f"the {name} server would listen on http://{part.host}, and the trainer connect to {part.url}",
                why=f"The trainer would use another server than the {name} server of this recipe, or none.",
                fix=f"leave {name}.url at http://${{{name}.host}}:${{{name}.port}}",
            )
    for name, part in started(case):
        if not case.is_sound(f"{name}.port"):
            continue
        named = port_of(part.url)
        in_range = part.port == AUTO or (isinstance(part.port, int) and part.port > 0)  # else NET005 says so
        if part.url and in_range and named is not None and named != part.port:
            yield Finding(
                values={f"{name}.port": part.port, f"{name}.url": part.url},
                problem=f"{name}.port = {part.port}, and the trainer would connect to {part.url}",
                why=f"The trainer would use another server than the {name} server of this recipe, or none.",
                fix=f"set only {name}.port and leave {name}.url at http://${{{name}.host}}:${{{name}.port}}",
            )


def port_used_twice(case: Case) -> Iterator[Finding]:
    """No two parts use one port.

    ## What it checks
    Every port that the recipe names on this machine: API, reward, weight-sync group, rendezvous, judge, environments.
    A judge at the policy's own address is NET009's; one foreign server may answer under several paths.
    ## Why it matters
    Only one can listen; requests for the other would reach it.
    ## Bad
        generation.port=8000 reward.port=8000
        generation.port=8000 reward=external reward.url=http://127.0.0.1:8000
        generation=vllm_nccl generation.port=8000 generation.weight_sync.port=8000
        generation.port=8000 reward.environment.urls=[http://127.0.0.1:9000,http://127.0.0.1:9000]
    ## Good
        generation.port=8000 reward.port=8001
        generation=colocate reward.environment.urls=[http://127.0.0.1:8000]
    """
    taken: dict[int, Port] = {}
    for port in ports(case.run):
        if not isinstance(port.number, int):
            continue
        first = taken.setdefault(port.number, port)
        if first is port or {first.part, port.part} == {"generation", "judge"}:
            continue
        if port.started or first.started or port.url == first.url:  # one server of somebody else's may have many paths
            yield Finding(
                values={one.path: one.number if one.started else one.url for one in (first, port)},
                problem=f"{first.part} and {port.part} both use port {port.number}",
                why="Only one server can listen there; requests for the other would reach it.",
                fix=f"leave {port.path}=auto, or choose another port"
                if port.started
                else f"correct {port.path}, or choose another port for {first.part}",
            )


def port_in_use(case: Case) -> Iterator[Finding]:
    """A fixed port is free before the run starts.

    ## What it checks
    Each fixed port that the run opens (API, reward, weight-sync group, rendezvous), by trying to bind it.
    ## Why it matters
    Another program's server would answer in the place of ours. It is left alone.
    ## Bad
        generation.port=8000
        facts: {"busy_ports": {"8000": "pid 4711: python -m http.server 8000"}}
        generation=vllm_nccl generation.weight_sync.port=51216
        facts: {"busy_ports": {"51216": "pid 4711: python other.py"}}
    ## Good
        generation.port=8001
        facts: {"busy_ports": {"8000": "pid 4711: python -m http.server 8000"}}
    """
    for port in ports(case.run):
        if port.started and isinstance(port.number, int) and port.number in case.facts.busy_ports:
            yield Finding(
                values={port.path: port.number},
                problem=f"port {port.number} is in use by {case.facts.busy_ports[port.number]}",
                why=f"{port.part} cannot bind it, and the other end would talk to a stranger or wait.",
                fix=f"leave {port.path}=auto, choose another port, or stop that process",
            )


def port_out_of_range(case: Case) -> Iterator[Finding]:
    """A port is a number that a server can bind.

    ## What it checks
    1024 <= port <= 65535 for every port that the run opens.
    ## Why it matters
    Lower ports need root, higher ones do not exist; the server would fail when it starts.
    ## Bad
        generation.port=70000
        reward.port=80
        launcher=torchrun launcher.main_port=80
    ## Good
        generation.port=8000
    """
    for port in ports(case.run):
        if port.started and isinstance(port.number, int) and not 1024 <= port.number <= 65535:
            yield Finding(
                values={port.path: port.number},
                problem=f"{port.path} = {port.number} is outside 1024..65535",
                why="It could not be bound.",
                fix=f"leave {port.path}={AUTO}, or choose a port between 1024 and 65535",
            )


def trainer_connects_elsewhere(case: Case) -> Iterator[Finding]:
    """TRL's own client goes to the server and the group port of the recipe.

    ## What it checks
    `trainer.args.vllm_server_base_url`, `vllm_server_host`, `vllm_server_port` and `vllm_group_port`, where a recipe
    gives them, against `generation.url` and `generation.weight_sync.port`.
    ## Why it matters
    One end of the group waits for the other for minutes, on two ports.
    ## Bad
        generation=vllm_nccl generation.port=8000 +trainer.args.vllm_server_port=8001
        generation=vllm_nccl generation.weight_sync.port=51300 +trainer.args.vllm_group_port=51216
        generation=vllm_nccl generation.port=8001 +trainer.args.vllm_server_base_url=http://localhost:8000
    ## Good
        generation=vllm_nccl generation.port=8001 +trainer.args.vllm_server_port=8001
    """
    run, args = case.run, case.run.trainer.args
    if not generation_kind(run.generation).server:
        return  # SYN008 says that there is no server
    url, port = run.generation.url, run.generation.weight_sync.port
    meant = {
        "vllm_server_base_url": ("generation.url", url),
        "vllm_server_host": ("generation.url", url),
        "vllm_server_port": ("generation.url", url),
        "vllm_group_port": ("generation.weight_sync.port", port),
    }
    for key, (path, value) in meant.items():
        given = args.get(key)
        if given is not None and not _same_place(key, given, value):
            yield Finding(
                values={f"trainer.args.{key}": given, path: value},
                problem=f"trainer.args.{key} = {given}, and {path} = {value}",
                why="The two ends would wait for each other at two places.",
                fix=f"remove trainer.args.{key}: it follows from {path}",
            )


def _same_place(key: str, given: object, meant: object) -> bool:
    url = str(meant)
    match key:
        case "vllm_server_base_url":
            return same_host(host_of(str(given)), host_of(url)) and port_of(str(given)) == port_of(url)
        case "vllm_server_host":
            return str(given) in ANY_ADDRESS or same_host(str(given), host_of(url))  # NET006 judges 0.0.0.0
        case "vllm_server_port":
            return given == port_of(url)
        case _:
            return given == meant


def judge_at_the_policy(case: Case) -> Iterator[Finding]:
    """A judge or an environment is not the policy's own server.

    ## What it checks
    `reward.judge.url` and `reward.environment.urls` against the address of the generation server. A judge whose
    `reward.judge.model` is the policy itself is meant and passes.
    ## Why it matters
    The judge's requests get 404, or the policy grades itself while it is trained.
    ## Bad
        generation.port=8000 reward.judge.url=http://127.0.0.1:8000/v1
        generation.port=8000 reward.environment.urls=[http://localhost:8000]
    ## Good
        generation.port=8000 reward.judge.url=http://127.0.0.1:8001/v1
    """
    run = case.run
    if not generation_kind(run.generation).server:
        return
    itself = run.reward.judge.model in (run.generation.model, run.generation.args.get("served_model_name"))
    for path, url in asked_by_rewards(case).items():
        if not url or (path == "reward.judge.url" and itself):
            continue
        if _same_place("vllm_server_base_url", url, run.generation.url):
            yield Finding(
                values={path: url, "generation.url": run.generation.url},
                problem=f"{path} = {url} is the generation server of this recipe",
                why="Its requests get 404 there, or the policy grades itself.",
                fix=f"give {path} the address of the service that is meant, or generation.port another one",
            )


def nothing_listens_yet(case: Case) -> Iterator[Finding]:
    """Services that somebody else runs on this machine are up.

    ## What it checks
    For external services, judges and environments on loopback: that some process listens on their port now. A warning,
    for they may come up before the run needs them; the handshake asks them before the trainer starts.
    ## Why it matters
    The first reward request comes minutes after the start, and would be refused.
    ## Bad
        reward=external reward.url=http://127.0.0.1:5000
        facts: {"listening": [22]}
    ## Good
        reward=external reward.url=http://127.0.0.1:5000
        facts: {"listening": [22, 5000]}
    """
    listening = case.facts.listening
    for port in ports(case.run):
        if port.started or not isinstance(port.number, int):
            continue
        if isinstance(listening, str):
            yield skipped(f"whether anybody listens on port {port.number} is not known: {listening}", "start the run")
        elif port.number not in listening:
            yield Finding(
                severity="warning",
                values={port.path: port.url},
                problem=f"nothing listens on port {port.number} of this machine, where {port.part} is to be",
                why="The run does not start it, and would end at the handshake."
                if port.part in STARTED
                else "The run does not start it, and reward functions that ask it would fail.",
                fix="start that service first"
                + (f", or {port.part}={STARTED[port.part]} to have it started" if port.part in STARTED else ""),
            )
