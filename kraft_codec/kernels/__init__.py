"""The machine-code kernels of the columnar decoder, written in Python for numba.

`numba` is imported by `build`, by `memory` and by the modules of kernels, which all import `memory`: `batches`,
`records`, `text`, `text_values`, `typed`, `walk`, `primitives`. They are imported only to compile (`library`). The
object code is cached in a private folder and loaded by `native` through LLVM alone: a warm start imports neither numba
nor these modules. All arithmetic with addresses of tables is in `memory`; `codes` names what stands in them.

Rules that every kernel obeys:
- it takes and returns int64 only: addresses, positions, counts; it allocates nothing and never raises;
- it returns a status, and says where it stopped through memory that its caller gave;
- every read of input bytes is checked against the end of the range that it belongs to.
"""
