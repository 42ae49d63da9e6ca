"""The machine-code kernels of the replay, by name. They are written like those of `kraft_codec.kernels`.

All that they share with their caller is one block of int64 slots (`layout`): addresses of tables, and counters. The
arithmetic with addresses is in `memory_rows`. The modules of kernels import numba; `kernel_list` imports them, and is
called only to compile.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final

from kraft_codec.kernels import library as decoder
from kraft_codec.kernels import native

NAME: Final = "replay"
KERNELS: Final = "kraft_audit.replay.kernels:kernel_list"
PACKAGES: Final = ("kraft_audit.replay.kernels", *native.DECODER_PACKAGES)


@functools.cache
def kernel(name: str) -> native.Kernel:
    """A kernel by its name in `kernel_list`."""
    return _kernels()[name]


@functools.cache
def compile_ahead() -> None:
    """Begins to compile the replay before the decoder is compiled: a first start does both at once."""
    native.compile_ahead(NAME, KERNELS, packages=PACKAGES)


@functools.cache
def _kernels() -> Mapping[str, native.Kernel]:
    decoder.compile_ahead()  # whoever replays decodes
    return native.library(NAME, KERNELS, packages=PACKAGES)


def kernel_list() -> dict[str, native.Kernel]:
    """The kernels by name, as Python functions of int64 arguments. Imports numba."""
    from kraft_audit.replay.kernels import partition_columns, partition_events, partition_state

    compiled: tuple[Any, ...] = (
        *(partition_columns.intern_ids, partition_columns.rehash_ids, partition_columns.uuid_texts),
        *(partition_columns.fill_inputs, partition_columns.merge_events, partition_columns.fill_output),
        *(partition_events.replay_events, partition_events.compact_arena),
        *(partition_state.expose_output, partition_state.rehash),
    )
    return {function.__name__: function.py_func for function in compiled}
