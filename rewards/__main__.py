"""`python -P -m rewards check|probe ...`. `-P`: a `rewards.py` of the user's in the working directory is not taken."""

import sys

from rewards.commands import main

if __name__ == "__main__":
    sys.exit(main())
