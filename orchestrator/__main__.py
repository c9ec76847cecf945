"""`python -m orchestrator`: the console script, for an interpreter whose bin folder is not on the path."""

import sys

from orchestrator.entry import main

sys.exit(main())
