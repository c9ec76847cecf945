"""NET and ORD: addresses that lead to the service that is meant."""

from collections.abc import Iterator

from orchestrator.addresses import ANY_ADDRESS, host_of, is_loopback, is_number, port_of
from orchestrator.findings import Finding, skipped
from orchestrator.kinds import generation_kind
from orchestrator.rules.case import Case
from orchestrator.rules.services import STARTED, asked_by_rewards, services, started
from orchestrator.schema import AUTO


def not_an_address(case: Case) -> Iterator[Finding]:
    """A URL is one that can be connected to.

    ## What it checks
    `generation.url`, `reward.url`, `reward.judge.url` and environments: http or https, a host and a port that exists.
    `launcher.main_address`: a bare name or address, its port stands in `launcher.main_port`.
    ## Why it matters
    The trainer would fail at its first request, after everything has started.
    ## Bad
        generation=external generation.url=http://localhost:99999
        generation.host=::1
        reward=external reward.url=localhost:9000/score reward.port=9000
        reward.judge.url=localhost:8001/v1
        launcher=torchrun launcher.num_machines=2 launcher.main_address=node1:29500
    ## Good
        reward=external reward.url=http://localhost:9000
    """
    urls = {f"{name}.url": part.url for name, part in services(case) if case.is_sound(f"{name}.port")}
    for path, url in (urls | asked_by_rewards(case)).items():
        if not url:
            continue
        host, port = host_of(url), port_of(url)
        bare_ipv6 = ":" in host and "[" not in url
        if not url.startswith(("http://", "https://")) or not host or bare_ipv6:
            problem = f"{path} = {url} is not an http address"
        elif port != AUTO and not (isinstance(port, int) and 0 < port < 65536):
            problem = f"{path} = {url} names no port that exists"
        else:
            continue
        yield Finding(
            values={path: url},
            problem=problem,
            why="The trainer or a reward function connects to this address.",
            fix=f"write {path}=http://HOST:{port if isinstance(port, int) and 0 < port < 65536 else 'PORT'}",
        )
    address = case.run.launcher.main_address
    if address and ("/" in address or (":" in address and not is_number(address))):
        yield Finding(
            values={"launcher.main_address": address},
            problem=f"launcher.main_address = {address} is more than a name or an address",
            why="Every process would look up the whole text as a machine's name.",
            fix="write the name alone, and the port in launcher.main_port",
        )


def bind_address_as_destination(case: Case) -> Iterator[Finding]:
    """A destination is an address that leads somewhere.

    ## What it checks
    Every address that something connects to (`generation.url`, `reward.url`, `reward.judge.url`, environments,
    `launcher.main_address`, `trainer.args.vllm_server_host` and `vllm_server_base_url`): not 0.0.0.0 or ::, which only
    mean "every interface" to a server. A warning, and an error where the two ends are on different machines.
    ## Why it matters
    Linux sends it to the machine itself, other systems nowhere; a weight-sync group that is told to meet there waits
    until its time-out.
    ## Bad
        generation.host=0.0.0.0 generation.trusted_network=true
        +trainer.args.vllm_server_host=0.0.0.0
        reward=external reward.url=http://0.0.0.0:9000
    ## Good
        generation.host=0.0.0.0 generation.trusted_network=true generation.url=http://127.0.0.1:auto
    """
    run = case.run
    across = set()
    if run.generation.num_machines > 0:
        across |= {"generation.url", "trainer.args.vllm_server_host", "trainer.args.vllm_server_base_url"}
    if run.launcher.num_machines > 1:
        across.add("launcher.main_address")
    args = run.trainer.args
    targets = {name + ".url": part.url for name, part in services(case)}
    targets["launcher.main_address"] = run.launcher.main_address or ""
    targets |= asked_by_rewards(case) | {
        f"trainer.args.{key}": str(args.get(key) or "") for key in ("vllm_server_host", "vllm_server_base_url")
    }
    for path, target in targets.items():
        host = host_of(target) if "//" in target else target.strip("[]")
        if host in ANY_ADDRESS:
            several = path in across
            yield Finding(
                severity="error" if several else "warning",
                values={path: target},
                problem=f"{path} = {target} is an address to listen on, not one to connect to",
                why="It leads to this machine on Linux and nowhere elsewhere; a weight-sync group waits there in vain.",
                fix=f"write {path}={target.replace(host, 'NAME-OF-THE-MACHINE' if several else '127.0.0.1')}",
            )


def loopback_over_machines(case: Case) -> Iterator[Finding]:
    """Parts on several machines meet at an address that all of them reach.

    ## What it checks
    With several training machines: `launcher.main_address` is not loopback (a warning, for on the first machine itself
    it works), and it or MASTER_ADDR in the environment is there. With machines that only generate: `generation.url` is
    not loopback (an error).
    ## Why it matters
    127.0.0.1 is another machine on every machine: the processes wait for each other until the time-out.
    ## Bad
        launcher=torchrun launcher.num_machines=2 launcher.main_address=127.0.0.1
        generation=vllm generation.num_machines=1
    ## Good
        launcher=torchrun launcher.num_machines=2 launcher.main_address=node1
    """
    launcher, generation = case.run.launcher, case.run.generation
    address = launcher.main_address
    if launcher.num_machines > 1 and not address and "MASTER_ADDR" not in case.facts.environment:
        yield skipped(
            f"where the {launcher.num_machines} training machines meet is left to their scheduler",
            "set launcher.main_address, or check where MASTER_ADDR is set",
        )
    if launcher.num_machines > 1 and address and is_loopback(address):
        yield Finding(
            severity="warning",
            values={"launcher.num_machines": launcher.num_machines, "launcher.main_address": address},
            problem=f"{launcher.num_machines} machines are to meet at {address}, which is another one on each",
            why="Their processes would wait for each other until the time-out.",
            fix="set launcher.main_address to the first machine's name",
        )
    elsewhere = generation_kind(generation).server and generation.num_machines > 0
    if elsewhere and generation_kind(generation).started and is_loopback(generation.host):
        yield Finding(
            values={"generation.num_machines": generation.num_machines, "generation.host": generation.host},
            problem=f"the generation server is on another machine and would listen on {generation.host} only",
            why="The trainer's machine cannot reach it there.",
            fix="set generation.host=0.0.0.0 and, on a closed network, generation.trusted_network=true",
        )
    if elsewhere and is_loopback(host_of(generation.url)):
        yield Finding(
            values={"generation.num_machines": generation.num_machines, "generation.url": generation.url},
            problem=f"the generation server is on another machine, and generation.url is {generation.url}",
            why="127.0.0.1 is the trainer's own machine.",
            fix="set generation.url=http://NAME-OF-THAT-MACHINE:PORT",
        )


def no_address(case: Case) -> Iterator[Finding]:
    """Every service has an address, and one that somebody else runs has a port.

    ## What it checks
    `url` of generation and reward server; of external ones that it names no `auto` port, which only the run could pick.
    ## Why it matters
    Nothing starts an external service, so nothing can know where it is.
    ## Bad
        reward.kind=external reward.url=''
        reward.kind=external
        generation.url=''
    ## Good
        reward=external reward.url=http://127.0.0.1:9000
    """
    for name, part in services(case):
        reported = any(problem.path == f"{name}.url" for problem in case.problems)
        external = part.kind == "external"
        if not reported and (not part.url or (external and port_of(part.url) == AUTO)):
            yield Finding(
                values={f"{name}.kind": part.kind, f"{name}.url": part.url},
                problem=f"{name}.kind = {part.kind}, and {name}.url is {part.url or 'empty'}",
                why="The run does not start this service, so it has to be told where it is."
                if external
                else "The trainer would not know where to connect.",
                fix=f"set {name}.url=http://host:port, or {name}={STARTED[name]} to have it started"
                if external
                else f"leave {name}.url at http://${{{name}.host}}:${{{name}.port}}",
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
    for name, part in started(case):
        if part.python and part.python not in case.facts.programs:
            yield Finding(
                values={f"{name}.python": part.python},
                problem=f"{name}.python = {part.python} is no program that can be run",
                why=f"The {name} server could not be started.",
                fix="give the path of the interpreter in the service's environment: .../bin/python",
            )
