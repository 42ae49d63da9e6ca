"""Record batches and records read and written by their schemas: the readable reference; redaction."""
