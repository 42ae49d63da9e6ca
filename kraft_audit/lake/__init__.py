"""The lake without Spark: plan, stage, commit, close, the ledger, queries. Imports no pyspark."""
