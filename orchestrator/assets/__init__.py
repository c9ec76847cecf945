"""Files that ship with the package."""

from pathlib import Path

ASSETS = Path(__file__).resolve().parent

TINY_MATH = ASSETS / "tiny_math"
"""A checkpoint small enough to train in a test; examples/tiny_math/build.py makes it."""

VLLM_PLUGIN = ASSETS.parent / "generation" / "vllm_plugin"
"""On a server's PYTHONPATH vLLM finds our weight-transfer backend there, with nothing to install."""
