"""`from slime.utils.types import Sample` at the top of a reward file, whether or not slime or vime is installed.

Both are training systems that a reward server has no use for; their reward files import this class to name its type.
Any other import from them fails as it would without this. Where they are installed, samples are made of their class:
reward files ask `isinstance(sample, Sample)`, and use what is built in there.
"""

import sys
from importlib.util import find_spec
from types import ModuleType

from rewards.calling.sample import Sample

PACKAGES = ("slime", "vime")


def offer_sample_class() -> None:
    """Put PACKAGE.utils.types with our Sample into sys.modules, for packages that are not installed."""
    for package in PACKAGES:
        if package in sys.modules or _is_installed(package):
            continue
        names = [package, f"{package}.utils", f"{package}.utils.types"]
        modules = {name: ModuleType(name, f"Stands in for {name}, which is not installed.") for name in names}
        modules[names[-1]].Sample = Sample  # type: ignore[attr-defined]
        for name in names[:-1]:
            modules[name].__path__ = []
        sys.modules.update(modules)


def sample_class() -> type[Sample]:
    """Theirs, where a reward file has imported it; its fields include ours. Else ours."""
    modules = (sys.modules.get(f"{package}.utils.types") for package in PACKAGES)
    found = (getattr(module, "Sample", Sample) for module in modules)
    return next((theirs for theirs in found if theirs is not Sample), Sample)


def _is_installed(package: str) -> bool:
    spec = find_spec(package)
    return spec is not None and spec.origin is not None  # a folder of that name, such as a clone, has no origin
