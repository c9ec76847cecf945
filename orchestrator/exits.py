"""Exit codes, as README.md lists them."""

OK = 0
RUN_FAILED = 1
FINDINGS = 2
SERVICE_FAILED = 3
USAGE = 64
"""The command line itself is wrong (EX_USAGE of sysexits.h)."""
SIGNALLED = 128
"""Plus the number of the signal that stopped the run."""
