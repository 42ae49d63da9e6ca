"""`python -m kraft_audit` is the command `kraft-audit`."""

from __future__ import annotations

from kraft_audit.commands.cli import main

if __name__ == "__main__":
    main()
