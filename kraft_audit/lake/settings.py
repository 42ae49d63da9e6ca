"""The settings of a run and of maintenance. Of fleet.yaml, environment and arguments, the later wins.

A value that cannot be used is one line that names the file, the key, the value and what was expected. Nothing here
touches a log dir or a lake: a missing path is a failure of that cluster at run time, not of the settings.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from kraft_audit.capture.plan import expected_of
from kraft_audit.lake.lake_paths import absolute, is_uri
from kraft_audit.tables import LAKE_TABLES
from kraft_audit.text.text_files import YamlError, parse_yaml
from kraft_codec.errors import InputError
from kraft_codec.schemas import Dialect
from kraft_codec.storage.object_store import read_object
from kraft_codec.storage.opener import file_path

Committer = Literal["deltalake", "spark"]

# The environment variable of each setting that a schedule may want to change without editing the file.
ENVIRONMENT: Final[Mapping[str, str]] = {
    "lake": "KRAFT_AUDIT_LAKE",
    "redaction_key_file": "KRAFT_AUDIT_REDACTION_KEY_FILE",
    "committer": "KRAFT_AUDIT_COMMITTER",
}
SHOWN_CHARACTERS_MAX: Final = 400
"""A longer value is cut in an error line; two paths and what is wrong with each fit."""
NAME_MARK: Final = "{name}"
"""Stands for the name of a cluster in `clusters_from`."""
SETTINGS_BYTES_MAX: Final = 16 << 20
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f/\\]{1,128}")


class SettingsError(Exception):
    """A setting that cannot be used, exit code 2. `source` is the file, variable or argument that holds it."""

    def __init__(self, source: str, key: str, value: object, expected: str) -> None:
        shown = "" if value is _MISSING else f" {_shown(value)}:"
        super().__init__(f"{source}: {key}:{shown} expected {expected}")
        self.source = source
        self.key = key
        self.value = None if value is _MISSING else value
        self.expected = expected


class _Missing:
    """Marks a missing key, where None is a value."""


_MISSING: Final = _Missing()


class _ExpectedError(ValueError):
    """What a validator expected; becomes the end of the error line."""


def _cluster_id(text: str) -> str:
    if not _CLUSTER_ID.fullmatch(text):
        raise _ExpectedError("a cluster id of 22 characters, as in meta.properties")
    return text


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise _ExpectedError("a name of 1 to 128 printable characters without slashes")
    return text


def _path(text: str) -> str:
    if not text.strip() or "\x00" in text:
        raise _ExpectedError("a path or URI")
    return text


def _config_value(value: object) -> object:
    """YAML reads `1` and `true` as numbers and booleans; Kafka's configs are text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _static_configs(configs: dict[str, str]) -> dict[str, str]:
    for name, value in configs.items():
        if (expected := expected_of(name, value)) is not None:
            raise _ExpectedError(f"{name} to be {expected}")
    return configs


def _clusters_from(text: str) -> str:
    before, mark, after = text.partition(NAME_MARK)
    is_in_bucket = is_uri(text) and before.count("/") < 3
    if not mark or NAME_MARK in after or "*" in before or is_in_bucket:
        raise _ExpectedError(f"a path or URI with {NAME_MARK} once, as s3://captures/{NAME_MARK}/, and no * before it")
    return text


PathText = Annotated[str, AfterValidator(_path)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


LabelText = Annotated[str, BeforeValidator(_config_value)]


class ClusterLabels(_Strict):
    """Whose a cluster is: kept in the table `clusters`, shown on pages, and what `notify` routes by."""

    owner: LabelText | None = Field(default=None, description="who answers for the cluster, as a team's name")
    environment: LabelText | None = Field(default=None, description="production, test and the like")
    tier: LabelText | None = Field(default=None, description="how much depends on it, as a number or a word")
    contact: LabelText | None = Field(default=None, description="whom to call: a channel, an address, a rota")


class ClusterSettings(_Strict):
    """One cluster: where copies of its metadata log lie, and how to read them."""

    name: Annotated[str, AfterValidator(_name)] = Field(description="how people call the cluster; unique in the file")
    paths: list[PathText] = Field(
        default_factory=list,
        description="log dirs, node dirs, dirs of node dirs, dirs of captures, archives, object store URIs; globs, "
        "** too; none where clusters_from has a folder of this name or cluster_id",
    )
    cluster_id: Annotated[str, AfterValidator(_cluster_id)] | None = Field(
        default=None, description="the id that every replica must carry; any other is a CLUSTER_MISMATCH"
    )
    dialect: Annotated[Dialect, BeforeValidator(lambda value: _dialect(value))] | None = Field(
        default=None, description="the membership protocol that wrote the log; without the key found in the log"
    )
    defaults: Annotated[dict[str, Annotated[str, BeforeValidator(_config_value)]], AfterValidator(_static_configs)] = (
        Field(
            default_factory=dict,
            description="static broker configs that the log cannot know, such as min.insync.replicas",
        )
    )
    labels: ClusterLabels = Field(
        default_factory=ClusterLabels,
        description="owner, environment, tier, contact; without the key as known before",
    )
    running: bool = Field(
        default=False, description="the nodes are live: a log that stopped growing means there is no leader"
    )
    gone: Annotated[list[int], Field(max_length=1000)] = Field(
        default_factory=list, description="ids of nodes that are lost with their disks"
    )


def _dialect(value: object) -> object:
    try:
        return Dialect(value)  # type: ignore[arg-type]  # any other value is the error below
    except ValueError:
        raise _ExpectedError("one of " + ", ".join(Dialect)) from None


class FleetSettings(_Strict):
    """A fleet.yaml with all paths made absolute against the folder of the file."""

    lake: PathText = Field(description="URI or path of the folder that holds the Delta tables")
    clusters: list[ClusterSettings] = Field(
        default_factory=list, description="the clusters to audit; with clusters_from those that need more than a path"
    )
    clusters_from: Annotated[PathText, AfterValidator(_clusters_from)] | None = Field(
        default=None,
        description="a path or URI with {name} in it, as s3://captures/{name}/: each folder there is a cluster",
    )
    redaction_key_file: PathText | None = Field(
        default=None,
        description="one key per lake, kept outside it, made with mode 0600 when absent; default: beside a local lake",
    )
    committer: Committer = Field(
        default="deltalake", description="deltalake commits without a JVM; spark where only Spark reaches the lake"
    )
    listing_threads: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=8, description="clusters looked at once while planning: listing waits for disks and object stores"
    )
    deadline_minutes: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=30, description="how long reading one cluster may take, beside a second a MiB: then it is tried again"
    )
    local_bytes: Annotated[int, Field(ge=0)] = Field(
        default=2 * 10**9,
        description="so many new bytes of logs are read without Spark, and gold tables made of a tenth of that",
    )
    waivers: PathText | None = Field(default=None, description="findings that somebody accepts, as waivers.yaml says")
    staging: PathText | None = Field(
        default=None,
        description="committer spark: a folder that Python workers and Spark both reach; default: the lake",
    )


def load_fleet(
    file: Path | str,
    *,
    arguments: Mapping[str, str | None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> FleetSettings:
    """Read and check one fleet file, here or in an object store.

    `arguments` are the command's own, by setting name (`lake` → given by `--lake`); None means not given.
    Raises SettingsError.
    """
    values = read_yaml(file)
    sources = {key: str(file) for key in FleetSettings.model_fields}
    folders: dict[str, Path | str] = dict.fromkeys(FleetSettings.model_fields, _folder_of(file))
    given = environment if environment is not None else os.environ
    for key, variable in ENVIRONMENT.items():
        if given.get(variable):
            values[key], sources[key], folders[key] = given[variable], variable, Path.cwd()
    for key, value in (arguments or {}).items():
        if value is not None:
            values[key], sources[key], folders[key] = value, f"--{key.replace('_', '-')}", Path.cwd()
    fleet = _checked(values, sources, str(file))
    return _with_absolute_paths(fleet, sources, folders)


def _folder_of(file: Path | str) -> Path | str:
    local = local_file(file)
    return str(file).partition("?")[0].rpartition("/")[0] if local is None else local.resolve().parent


def local_file(file: Path | str) -> Path | None:
    """The file of this machine that a path or a `file://` URI names; None for one in an object store."""
    text = str(file)
    path = file_path(text)
    return Path(text if path is None else path) if path is not None or not is_uri(text) else None


def read_yaml(file: Path | str) -> dict[str, Any]:
    """The mapping in a YAML file, here or in an object store; empty if the file is.

    Raises SettingsError, InputError.
    """
    local = local_file(file)
    try:
        content = read_object(str(file), SETTINGS_BYTES_MAX) if local is None else local.read_bytes()
        values = parse_yaml(content.decode("utf-8"))
    except OSError as problem:
        raise InputError(str(file), problem.strerror or "unreadable") from None
    except UnicodeDecodeError:
        raise InputError(str(file), "no UTF-8 text") from None
    except YamlError as problem:
        raise SettingsError(str(file), problem.where or "file", problem.what, "YAML") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise SettingsError(str(file), "file", values, "settings by name")
    return values


def _refuse_nothing(fleet: FleetSettings, source: str) -> None:
    """Raises SettingsError where there is no cluster, or one without a place to read."""
    if fleet.clusters_from is not None:
        return
    if not fleet.clusters:
        raise _nothing(fleet, "clusters", source, "clusters")
    for index, cluster in enumerate(fleet.clusters):
        if not cluster.paths:
            raise _nothing(cluster, "paths", source, f"clusters[{index}].paths")


def _nothing(model: BaseModel, field: str, source: str, key: str) -> SettingsError:
    """The error of an empty list, or of a key that is not there."""
    if field in model.model_fields_set:
        return SettingsError(source, key, [], "at least one entry")
    return SettingsError(source, key, _MISSING, "a value, found none")


def _checked(values: dict[str, Any], sources: Mapping[str, str], file: str) -> FleetSettings:
    try:
        fleet = FleetSettings.model_validate(values)
    except ValidationError as problem:
        raise _first_error(problem, sources, file) from None
    _refuse_nothing(fleet, file)
    seen: dict[str, int] = {}
    for index, cluster in enumerate(fleet.clusters):
        if cluster.name in seen:
            expected = f"a name that no other cluster has (clusters[{seen[cluster.name]}] has it)"
            raise SettingsError(file, f"clusters[{index}].name", cluster.name, expected)
        seen[cluster.name] = index
    return fleet


def _first_error(problem: ValidationError, sources: Mapping[str, str], file: str) -> SettingsError:
    """One error for one line; an unknown key before a missing one, as a misspelt key causes both."""
    error = min(problem.errors(include_url=False), key=lambda error: error["type"] != "extra_forbidden")
    location = [part for part in error["loc"] if not (isinstance(part, str) and part.startswith("function-"))]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")
    source = sources.get(str(location[0]), file) if location else file
    match error["type"]:
        case "missing":
            return SettingsError(source, key, _MISSING, "a value, found none")
        case "extra_forbidden":
            return SettingsError(source, key, error["input"], _known_keys(location))
        case "value_error":
            return SettingsError(source, key, error["input"], str(error["ctx"]["error"]))
        case "literal_error":
            return SettingsError(source, key, error["input"], "one of " + ", ".join(get_args(Committer)))
        case "too_short":
            return SettingsError(source, key, error["input"], "at least one entry")
        case kind:
            return SettingsError(source, key, error["input"], _KINDS.get(kind, error["msg"]))


_KINDS: Final = {
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}


def _known_keys(location: list[int | str]) -> str:
    model = ClusterLabels if "labels" in location else ClusterSettings if location[0] == "clusters" else FleetSettings
    known = list(model.model_fields)
    nearest = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.5)
    return f"a known key, perhaps {nearest[0]}" if nearest else "one of the keys " + ", ".join(known)


def _shown(value: object) -> str:
    """The value on one line, cut where it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "…"


def _with_absolute_paths(
    fleet: FleetSettings, sources: Mapping[str, str], folders: Mapping[str, Path | str]
) -> FleetSettings:
    lake = absolute(fleet.lake, folders["lake"])
    if fleet.redaction_key_file is not None:
        key_file = absolute(fleet.redaction_key_file, folders["redaction_key_file"])
        if is_uri(key_file):
            raise SettingsError(sources["redaction_key_file"], "redaction_key_file", key_file, "a local file")
    elif is_uri(lake):
        raise SettingsError(
            sources["lake"], "redaction_key_file", _MISSING, "a local file, as the lake is no local folder"
        )
    else:
        key_file = lake.rstrip("/") + ".redaction-key"
    if Path(key_file).is_relative_to(lake) and not is_uri(lake):
        raise SettingsError(sources["redaction_key_file"], "redaction_key_file", key_file, "a file outside the lake")
    staging = None if fleet.staging is None else absolute(fleet.staging, folders["staging"])
    waivers = None if fleet.waivers is None else absolute(fleet.waivers, folders["waivers"])
    folder = folders["clusters"]
    clusters = [
        cluster.model_copy(update={"paths": [absolute(path, folder) for path in cluster.paths]})
        for cluster in fleet.clusters
    ]
    return fleet.model_copy(
        update={
            "lake": lake,
            "redaction_key_file": key_file,
            "waivers": waivers,
            "staging": staging,
            "clusters": clusters,
            "clusters_from": None if fleet.clusters_from is None else absolute(fleet.clusters_from, folder),
        }
    )


WEEK_HOURS: Final = 168
# Old rows of these tables are never read again, except the few rows of the ledger that maintenance leaves. The other
# tables stay for ever: the pipeline resumes from them, a run from the archive reads them, or they are history that
# Kafka itself no longer has.
MAY_BE_FORGOTTEN: Final = ("plans", "files", "records")

Days = Annotated[int, Field(ge=1)]


class MaintainSettings(_Strict):
    """The settings of `kraft-audit lake maintain`, all with defaults. Sizes in bytes, times in the unit of the name."""

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
        default_factory=dict, description="table to columns: liquid clustering by Spark, sorted by deltalake"
    )


def load_maintain(file: Path | None) -> MaintainSettings:
    """Read and check the file; without a file, the defaults. Raises SettingsError."""
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


def only_clusters(fleet: FleetSettings, file: Path | str, names: Sequence[str] | None) -> FleetSettings:
    """The fleet with only these clusters. Raises SettingsError for a name that the file does not have."""
    if not names:
        return fleet
    known = {cluster.name: cluster for cluster in fleet.clusters}
    for name in names:
        if name not in known:
            raise SettingsError("--cluster", "name", name, f"a cluster of {file}")
    return fleet.model_copy(update={"clusters": [known[name] for name in dict.fromkeys(names)]})
