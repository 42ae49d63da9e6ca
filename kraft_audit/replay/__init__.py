"""From the bytes of a cluster's replicas to tables: pure functions, Arrow out, without Spark."""
