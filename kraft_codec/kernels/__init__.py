"""The machine-code kernels of the columnar decoder, written in Python for numba.

`numba` is imported by the modules that hold kernels (`memory`, `checksum`, `varints`, `framing`, `walk`, `records`,
`typed`, `text`) and by nothing else here: they are imported only to compile. The compiled object code is kept in a
private folder and loaded by `native` through LLVM alone, so that a warm start imports neither numba nor these modules.

Rules that every kernel obeys:
- it takes and returns int64 only: addresses, positions, counts; it allocates nothing and never raises;
- it returns a status, and says where it stopped through memory that its caller gave;
- every read of input bytes is checked against the end of the range that it belongs to.
"""
