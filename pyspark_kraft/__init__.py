"""Spark looks into every installed package named `pyspark_…` for a `DefaultSource`: format("kraft") needs no import."""

from __future__ import annotations

from kraft_audit.spark.source import KraftDataSource as DefaultSource

__all__ = ["DefaultSource"]
