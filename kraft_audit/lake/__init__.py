"""The lake without Spark: plans and their ledger, `staging`, `gold`, `quality`, `notices`. Imports no pyspark."""
