"""The replay's kernels as callables of integers. No numba, unless they have to be compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable

from kraft_codec.kernels.native import library


@functools.cache
def kernel(name: str) -> Callable[..., int]:
    """A kernel by its name (`build.kernels`)."""
    found: Callable[..., int] = library(
        "replay",
        "kraft_audit.replay.kernels.build:kernels",
        packages=("kraft_audit.replay.kernels", "kraft_codec.kernels"),
        seconds=10,
    )[name]
    return found
