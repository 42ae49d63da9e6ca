"""The replay's kernels as callables of integers. No numba, unless they have to be compiled."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from kraft_codec import columns_batches
from kraft_codec.kernels import native

NAME: Final = "replay"
KERNELS: Final = "kraft_audit.replay.kernels.build:kernels"
PACKAGES: Final = ("kraft_audit.replay.kernels", "kraft_codec.kernels")


@functools.cache
def kernel(name: str) -> native.Function:
    """A kernel by its name (`build.kernels`)."""
    return _library()[name]


@functools.cache
def compile_ahead() -> None:
    """To be called before the decoder's own kernels are: a first start compiles both at the same time."""
    native.compile_ahead(NAME, KERNELS, packages=PACKAGES)


@functools.cache
def _library() -> Mapping[str, native.Function]:
    columns_batches.compile_ahead()  # whoever replays decodes
    return native.library(NAME, KERNELS, packages=PACKAGES)
