"""The catalogs that a lake can be registered in, and the SQL of each. Imports nothing: `--help` names them."""

from __future__ import annotations

from typing import Final, Literal

Catalog = Literal["unity", "glue", "hive", "athena", "trino", "duckdb"]
DIALECTS: Final[dict[Catalog, str]] = {
    "unity": "spark",
    "glue": "spark",
    "hive": "spark",
    "athena": "athena",
    "trino": "trino",
    "duckdb": "duckdb",
}
"""The SQL of each catalog; Spark can execute that of its own."""
