"""`check`, `plan` and `dry_run` write nothing, anywhere that a user or a library writes, and reach no network."""

import os
from pathlib import Path

import pytest

from tests.orchestrated import orchestrate

EXPERIMENT = "+experiment=grpo_math"
REWARD = "def score(prompts, completions, answer, **kwargs):\n    return [0.0 for _ in completions]\n"
ROWS = '{"prompt": "1+1=", "answer": "2"}\n{"prompt": "1+2=", "answer": "3"}\n'
OWN = (
    "data=jsonl", "data.path=rows.jsonl", "data.heldout_path=rows.jsonl", "data.rows=null", "evaluation.rows=2",
    "reward.functions.0.target=mine.py:score",
)  # fmt: skip
CHECKS = {
    "check": ("check", EXPERIMENT),
    "json": ("check", "--json", EXPERIMENT),
    "errors": ("check", EXPERIMENT, "limits.generations=7", "generaton.port=1"),
    "dry_run": (EXPERIMENT, "dry_run=true"),
    "plan": ("plan", EXPERIMENT),
    "sweep": ("check", "-m", EXPERIMENT, "seed=1,2", "reward=local,inprocess"),
    "own files": ("check", "--config-dir", "groups", EXPERIMENT, *OWN),
    "hub ids": ("check", EXPERIMENT, "model.name=Qwen/Qwen2.5-0.5B-Instruct", "generation.model=org/other"),
    "vllm": ("check", EXPERIMENT, "generation=vllm", "launcher=torchrun", "trainer=rloo"),
    "others' services": (
        "check", EXPERIMENT, "reward=external", "reward.url=http://reward.example.com:9000",
        "generation=external", "generation.url=http://generation.example.com:8000",
        "reward.judge.url=https://judge.example.com/v1",
    ),
}  # fmt: skip

WATCH = """
import os, socket, sys

def refuse(name, address):
    with open(os.environ["REACHED"], "a") as log:
        log.write(f"{name} {address!r}\\n")
    raise OSError(f"no network in this test: {name} {address!r}")

class Watched(socket.socket):
    def connect(self, address):
        refuse("connect", address)
    def connect_ex(self, address):
        refuse("connect_ex", address)
    def sendto(self, *words):
        refuse("sendto", words[-1])

real = socket.getaddrinfo
def getaddrinfo(host, *words, **more):
    numeric = more.get("flags", 0) & socket.AI_NUMERICHOST
    if not numeric and host not in (None, "", "localhost", "127.0.0.1", "::1"):
        refuse("getaddrinfo", host)
    return real(host, *words, **more)

socket.socket = socket.SocketType = Watched
socket.getaddrinfo = getaddrinfo
for name in ("gethostbyname", "gethostbyname_ex"):
    setattr(socket, name, lambda host, name=name: refuse(name, host))
"""
"""A sitecustomize: every process of the check imports it first, whatever it imports later."""


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file and folder below: size, and time of the last change."""
    found = {str(path): path.lstat() for path in [folder, *folder.rglob("*")]}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


def homes(folder: Path) -> dict[str, str]:
    """Each place that a user or a library keeps something in, as a folder of its own."""
    names = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "HF_HOME", "TMPDIR")
    places = {name: folder / name.lower() for name in names}
    for place in places.values():
        place.mkdir(parents=True)
    return {name: str(place) for name, place in places.items()}


def places_to_work_in(folder: Path) -> Path:
    """A user's working directory: data, a reward function, recipes and earlier runs are there already."""
    for name in ("runs/grpo_math", "groups/experiment"):
        (folder / "work" / name).mkdir(parents=True)
    (folder / "work" / "mine.py").write_text(REWARD)
    (folder / "work" / "rows.jsonl").write_text(ROWS)
    return folder / "work"


@pytest.mark.parametrize("words", CHECKS.values(), ids=CHECKS)
def test_nothing_is_written_and_nobody_is_asked(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch" / "sitecustomize.py").write_text(WATCH)
    reached = tmp_path / "reached.log"
    work, env = places_to_work_in(tmp_path / "user"), homes(tmp_path / "user" / "homes")
    env |= {"PYTHONPATH": str(tmp_path / "watch"), "REACHED": str(reached)}
    before = tree(tmp_path / "user")
    done = orchestrate(*words, cwd=work, env=env)
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert tree(tmp_path / "user") == before
    assert not reached.exists(), reached.read_text()


def test_the_watch_sees_what_it_is_there_for(tmp_path: Path) -> None:
    """Otherwise the test above would pass with a watch that nothing loads."""
    (tmp_path / "sitecustomize.py").write_text(WATCH)
    (tmp_path / "hydra_plugins").mkdir()
    (tmp_path / "hydra_plugins" / "curious.py").write_text(
        "import urllib.request\ntry:\n    urllib.request.urlopen('http://127.0.0.1:9/', timeout=1)\nexcept OSError:\n"
        "    pass\n"
    )
    env = {"PYTHONPATH": str(tmp_path), "REACHED": str(tmp_path / "reached.log")}
    assert orchestrate("check", EXPERIMENT, cwd=tmp_path, env=env).returncode == 0
    assert "127.0.0.1" in (tmp_path / "reached.log").read_text()
    assert "REACHED" not in os.environ
