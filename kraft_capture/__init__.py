"""Copies KRaft metadata logs from the disks of controllers into a store, and proves what it copied.

Standard library only, Python 3.9 or newer, and nothing else of this project: it runs on a broker's host.
`scripts/one_file_capture.py` packs this folder into one file that Python runs as it is.
docs/capture-format.md is the contract of what is written; docs/capture.md says how it is used.
"""

__version__ = "0.1.0"
