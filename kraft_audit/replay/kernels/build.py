"""Which kernels there are. Imported only to compile them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kraft_audit.replay.kernels.columns_kernel import fill_inputs, fill_output, merge_events
from kraft_audit.replay.kernels.interning import intern_ids, rehash_ids, uuid_texts
from kraft_audit.replay.kernels.partition_state import expose_output, rehash
from kraft_audit.replay.kernels.partitions_kernel import compact_arena, replay_events


def kernels() -> Mapping[str, Callable[..., int]]:
    """The kernels by name, as Python functions of int64 arguments."""
    compiled: tuple[Any, ...] = (
        *(intern_ids, rehash_ids, uuid_texts, rehash, compact_arena),
        *(fill_inputs, merge_events, replay_events, expose_output, fill_output),
    )
    return {function.__name__: function.py_func for function in compiled}
