"""Equal rows of several integer columns get equal numbers: many times faster than np.unique over rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def numbered(*columns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A number for each row; rows are equal exactly if their numbers are. Numbers are below the count of rows."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        number = np.unique(number * max(len(values), 1) + place.reshape(-1), return_inverse=True)[1].reshape(-1)
    return number.astype(np.int64)
