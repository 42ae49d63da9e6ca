"""What maintenance is told: one YAML file, every key with a default. A value that cannot be used is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kraft_audit.settings import SettingsError, read_yaml
from kraft_audit.spark.tables import LAKE_TABLES

WEEK_HOURS: Final = 168
# Old rows of these are never read again, but for the few of the ledger that maintenance leaves. The other tables stay
# for ever: they are what the pipeline goes on from, what a run from the archive reads, or history that Kafka itself no
# longer has.
MAY_BE_FORGOTTEN: Final = ("plans", "files", "records")

Days = Annotated[int, Field(ge=1)]


class MaintainSettings(BaseModel):
    """How a lake is kept. Sizes in bytes, times in the unit that the name ends with."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    target_file_bytes: Annotated[int, Field(ge=1 << 20)] = Field(
        default=256 << 20, description="compaction joins files smaller than half of this"
    )
    vacuum_hours: Annotated[int, Field(ge=24)] = Field(
        default=WEEK_HOURS, description="unused files younger than this stay: readers and open plans may hold them"
    )
    keep_days: dict[str, Days] = Field(
        default_factory=dict, description="table to days: rows of plans closed longer ago are deleted"
    )
    cluster_by: dict[str, list[str]] = Field(
        default_factory=dict, description="table to columns: liquid clustering by Spark, Z-order by deltalake"
    )


def load_maintain(file: Path | None) -> MaintainSettings:
    """Read and check the file; None gives the defaults. Raises SettingsError."""
    if file is None:
        return MaintainSettings()
    values = read_yaml(file)
    try:
        settings = MaintainSettings.model_validate(values)
    except ValidationError as problem:
        error = problem.errors(include_url=False)[0]
        key = ".".join(str(part) for part in error["loc"])
        known = ", ".join(MaintainSettings.model_fields)
        expected = f"one of the keys {known}" if error["type"] == "extra_forbidden" else error["msg"]
        raise SettingsError(str(file), key, error["input"], expected) from None
    _check_tables(str(file), settings)
    return settings


def _check_tables(file: str, settings: MaintainSettings) -> None:
    for table, days in settings.keep_days.items():
        if table not in MAY_BE_FORGOTTEN:
            raise SettingsError(file, f"keep_days.{table}", days, "one of the tables " + ", ".join(MAY_BE_FORGOTTEN))
    for table, columns in settings.cluster_by.items():
        known: Any = LAKE_TABLES[table].column_names if table in LAKE_TABLES else columns
        wrong = [column for column in columns if column not in known]
        if wrong or not columns:
            raise SettingsError(file, f"cluster_by.{table}", columns, "columns of the table")
