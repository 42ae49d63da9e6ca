"""The replay's kernels as callables of integers. No numba, unless they have to be compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from kraft_codec.kernels import native

NAME: Final = "replay"
KERNELS: Final = "kraft_audit.replay.kernels.build:kernels"
PACKAGES: Final = ("kraft_audit.replay.kernels", "kraft_codec.kernels")


@functools.cache
def kernel(name: str) -> Callable[..., int]:
    """A kernel by its name (`build.kernels`)."""
    found: Callable[..., int] = native.library(NAME, KERNELS, packages=PACKAGES)[name]
    return found


@functools.cache
def compile_ahead() -> None:
    """To be called before the decoder's own kernels are: a first start compiles both at the same time."""
    native.compile_ahead(NAME, KERNELS, packages=PACKAGES)
