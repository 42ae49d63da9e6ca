"""Arrays of numbers, named for what the numbers are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
"""Places of rows in a table, of batches in an index."""
Times = npt.NDArray[np.int64]
"""Milliseconds since the epoch."""
Mask = npt.NDArray[np.bool_]
"""Which of some rows."""
