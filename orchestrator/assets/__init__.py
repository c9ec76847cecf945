"""Files that ship with the package."""

from pathlib import Path

TINY_MATH = Path(__file__).parent / "tiny_math"
"""A checkpoint small enough to train in a test; examples/tiny_math/build.py makes it."""
