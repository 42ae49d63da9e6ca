"""The lake: plans and their ledger, `staging`, `gold`, `quality`, `notices`. Imports nothing that needs a JVM."""
