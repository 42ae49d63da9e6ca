"""The machine-code kernels of the replay, written like those of `kraft_codec.kernels`: int64 in, a status out.

All they share with their caller is one block of int64 slots (`layout`): addresses of tables, and counters. Only the
modules `memory_rows`, `causes_kernel` and `partitions_kernel` import numba, and only to compile.
"""
