"""`python -m kraft_capture`, and where the one file starts."""

import sys

from kraft_capture.cli import main

if __name__ == "__main__":
    sys.exit(main())
