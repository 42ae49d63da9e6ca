"""Every parser of bytes and texts that others wrote, what it may say of bad ones, and mutated inputs for them.

A parser may give a value or raise one of its own errors. Anything else (an IndexError, a hang, memory beyond the input)
is a fault. Where a writer exists, what was read and written again reads the same.

`mutated` makes inputs blindly; `python -m tests.fuzz.guided PARSER SECONDS` lets atheris follow the branches.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import random
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kraft_audit.capture.named_times import named_time
from kraft_audit.commands.ending import UsageError
from kraft_audit.findings.pack.pack_verification import verify_pack
from kraft_audit.lake.settings import SettingsError, load_fleet
from kraft_audit.rules.rule_settings import RuleSettingsError, parse_rule_settings, parse_waivers
from kraft_codec import columns
from kraft_codec.errors import CodecError, InputError
from kraft_codec.file_names import parse_file_name
from kraft_codec.files import broker_disks, configuration, indexes, properties, state_files
from kraft_codec.records.batch import Batch, read_batches
from kraft_codec.records.record import decode_records, read_control_key, read_control_value, read_metadata_value
from kraft_codec.schemas import CONTROL_TYPES, Dialect
from kraft_codec.storage.archives import ArchiveStorage
from kraft_codec.storage.random_access import EntryKind, Limits
from tests.builders.captures import SMALL_CORPUS
from tests.fuzz import command_line

SMALL: Final = Limits(member_count=1_000, expansion_free_bytes=1 << 20, spool_bytes=4 << 20, index_skip_bytes=4 << 20)
BYTES_MAX: Final = 8192
TOKENS: Final = (
    b"\0", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"-1", b"2147483648", b"null",
    b"{}", b"[]", b'""', b"\n", b"\r\n", b"version=", b"\\u0000", b"\xed\xa0\x80", b"../", b"e400", b"&a [*a]", b": ",
    b"PK\x05\x06", b"PK\x03\x04", b"\x1f\x8b\x08", b"ustar",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parser:
    """A parser by name: sound inputs, what it does with one, what it may raise."""

    name: str
    seeds: Callable[[], list[bytes]]
    parse: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = (CodecError,)

    def feed(self, data: bytes) -> bool:
        """Whether it gave a value. What it may not raise comes out."""
        try:
            self.parse(data)
        except self.refusals:
            return False
        return True


def kept_file(name: str) -> Path:
    """The inputs that guided runs found for a parser: a line of base64 each (scripts/keep_inputs.py writes it)."""
    return Path(__file__).with_name("inputs") / f"{name}.txt"


def kept_inputs(name: str) -> list[bytes]:
    file = kept_file(name)
    return [base64.b64decode(line) for line in file.read_text(encoding="ascii").splitlines()] if file.exists() else []


def mutated(parser: Parser, count: int, seed: int) -> Iterator[bytes]:
    """`count` inputs: sound ones with bytes changed, cut, doubled or replaced by tokens and parts of others."""
    chance = random.Random(seed)  # noqa: S311
    seeds = parser.seeds()
    for _ in range(count):
        data = bytearray(chance.choice(seeds)[:BYTES_MAX])
        for _ in range(chance.choice((1, 1, 2, 4, 8))):
            _mutate(data, seeds, chance)
        yield bytes(data[:BYTES_MAX])


def _mutate(data: bytearray, seeds: list[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    end = min(len(data), at + chance.choice((1, 2, 4, 16, 64)))
    match chance.randrange(6):
        case 0 if data:
            data[min(at, len(data) - 1)] ^= 1 << chance.randrange(8)
        case 1:
            data[at:end] = chance.randbytes(end - at)
        case 2:
            del data[at:end]
        case 3:
            data[at:at] = data[at:end]
        case 4:
            data[at:end] = chance.choice(TOKENS)
        case _:
            seed = chance.choice(seeds)
            start = chance.randrange(len(seed) + 1)
            data[at:end] = seed[start : start + chance.choice((4, 32, 256))]


def _log(data: bytes) -> None:
    for found in read_batches(data):
        if isinstance(found, Batch):
            with contextlib.suppress(CodecError):
                decode_records(data, found.header)


def _columns(data: bytes) -> None:
    found = columns.index_batches(data)
    columns.index_records(data, found)


def _control(data: bytes) -> None:
    dialect = list(Dialect)[data[0] % len(Dialect)] if data else Dialect.KIP853
    number = read_control_key(data[1:5])
    control = CONTROL_TYPES[dialect].get(number)
    if control is not None:
        read_control_value(control, data[5:])


def _again(parse: Callable[[bytes], Any], write: Callable[[Any], bytes]) -> Callable[[bytes], None]:
    """Reads, writes, reads again: the same value."""

    def both(data: bytes) -> None:
        value = parse(data)
        assert parse(write(value)) == value, value

    return both


def _archive(data: bytes) -> None:
    with ArchiveStorage(io.BytesIO(data), "fuzzed", limits=SMALL, keep_indexes=True) as storage:
        folders = [""]
        while folders:
            folder = folders.pop()
            for entry in storage.list_dir(folder).entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.kind is EntryKind.DIRECTORY:
                    folders.append(path)
                elif entry.kind is EntryKind.FILE:
                    with contextlib.suppress(CodecError), storage.open(path) as file:
                        file.read_at(0, file.size_bytes)


def _in_a_file(parse: Callable[[Path], object]) -> Callable[[bytes], None]:
    def from_file(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "input"
            path.write_bytes(data)
            parse(path)

    return from_file


def _text(parse: Callable[[str, str], object]) -> Callable[[bytes], None]:
    return lambda data: parse(data.decode(errors="replace"), "fuzzed")


def _found(pattern: str, at_most: int = 6) -> Callable[[], list[bytes]]:
    def found() -> list[bytes]:
        paths = sorted(SMALL_CORPUS.rglob(pattern), key=lambda path: (path.stat().st_size, str(path)))
        return [path.read_bytes() for path in paths[:: max(1, len(paths) // at_most)]]

    return found


def _batches() -> list[bytes]:
    log = SMALL_CORPUS / "crafted/all-records-all-versions/__cluster_metadata-0/00000000000000000000.log"
    data = log.read_bytes()
    batches = [found for found in read_batches(data) if isinstance(found, Batch)]
    return [data[batch.header.position :][: batch.header.size_bytes] for batch in batches]


def _values() -> list[bytes]:
    return [
        bytes(record.raw.value or b"")
        for batch in _batches()
        for found in read_batches(batch)
        if isinstance(found, Batch) and not found.header.is_control
        for record in decode_records(batch, found.header)
    ]


def _controls() -> list[bytes]:
    return [
        bytes([number]) + bytes(record.raw.key or b"") + bytes(record.raw.value or b"")
        for batch in [*_batches(), *_found("*.checkpoint")()]
        for found in read_batches(batch)
        if isinstance(found, Batch) and found.header.is_control
        for record in decode_records(batch, found.header)
        for number in range(len(Dialect))
    ]


def _archives() -> list[bytes]:
    """A tar, a gzipped one and a zip of a small node dir."""
    folder = next(path.parent for path in sorted(SMALL_CORPUS.rglob("quorum-state")))
    names = {f"node-1/__cluster_metadata-0/{path.name}": path.read_bytes()[:2000] for path in folder.glob("*")}
    made = []
    for mode in ("w", "w:gz"):
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode=mode) as archive:
            for name, content in names.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
        made.append(whole.getvalue())
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in names.items():
            pack.writestr(name, content)
    return [*made, whole.getvalue()]


def _packs() -> list[bytes]:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as pack:
        pack.writestr("manifest.json", '{"format": "kraft-audit evidence 1", "files": {"a": {"sha256": "00"}}}')
        pack.writestr("a", "content")
    return [whole.getvalue()]


def _broker_disks() -> list[bytes]:
    head = b'{"format":"kraft-capture-disks/1","cluster_id":"c","node_id":1,"at_ms":5,"partition_count":1,'
    head += b'"vanished_count":0,"left_out_count":0}\n'
    disk = b'{"log_dir":"/d","directory_id":null,"lock":"held","files":{"replication-offset-checkpoint":'
    disk += b'{"mtime_ms":4,"text":"0\\n1\\nt 0 16\\n"}}}\n'
    partition = b'{"name":"t-0","partition.metadata":"version: 0\\ntopic_id: Bl2Ec9zTQUqPzJgMZzRy0g",'
    return [head + disk + partition + b'"leader-epoch-checkpoint":"0\\n1\\n3 17\\n","epochs_mtime_ms":3}\n']


def _configurations() -> list[bytes]:
    return [
        b"process.roles=broker,controller\nnode.id=3\ncontroller.quorum.voters=1@a:9093,\\\n  3@[::1]:9093\n",
        b"log.dirs=/a,/b\nlisteners=SASL_SSL://:9092\nlistener.security.protocol.map=C:SSL\nssl.key.password=x\n",
    ]


def _configuration(data: bytes) -> None:
    read = configuration.parse_configuration(data, "server.properties")
    if configuration.NodeConfiguration.from_json(read.to_json()) != read:
        raise AssertionError("not read again as it was written")


def _named_time(data: bytes) -> None:
    """A name has a length of time in it, or none."""
    time = named_time(data.decode(errors="surrogateescape"))
    if time is not None and time.from_ms >= time.to_ms:
        raise AssertionError(time)


def _clean_shutdown() -> list[bytes]:
    return [*_found(".kafka_cleanshutdown")(), b'{"version":0,"brokerEpoch":7}']


CAPTURE_NOTE: Final = b'{"cluster_id":"c","node_id":1,"read_from_ms":1790000000000,"read_to_ms":1790000000250}'
NAMES: Final = (b"kafka-20261129T220315Z.tar.gz", b"2026-11-29_22.03+01:00/node-1", b"disks.1790000000.1790000000250")
FLEET: Final = b"lake: lake\nclusters:\n  - name: one\n    paths: [/logs/a, s3://b/c]\n    dialect: kip853\n"
WAIVERS: Final = b"waivers:\n  - {rule: KP001, cluster: '*', subject: orders-0, who: a, why: b, until: 2027-01-31}\n"
RULES: Final = b"KB001:\n  max_restarts_an_hour: 7\nKB002: {max_age_days: 30}\n"

PARSERS: Final = {
    parser.name: parser
    for parser in (
        Parser("log", _batches, _log),
        Parser("log-columns", _batches, _columns),
        Parser("snapshot", _found("*.checkpoint"), _log),
        Parser("metadata-record", _values, read_metadata_value),
        Parser("control-record", _controls, _control),
        Parser("broker-disks", _broker_disks, lambda data: broker_disks.parse_broker_disks(gzip.compress(data, 1))),
        Parser(
            "quorum-state",
            _found("quorum-state"),
            _again(state_files.parse_quorum_state, state_files.format_quorum_state),
        ),
        Parser(
            "meta.properties",
            _found("meta.properties"),
            _again(properties.parse_meta_properties, properties.format_meta_properties),
        ),
        Parser("server.properties", _configurations, _configuration),
        Parser(
            "leader-epoch-checkpoint",
            _found("leader-epoch-checkpoint"),
            _again(state_files.parse_leader_epoch_checkpoint, state_files.format_leader_epoch_checkpoint),
        ),
        Parser(
            "offset-checkpoint",
            _found("*-offset-checkpoint"),
            _again(state_files.parse_offset_checkpoint, state_files.format_offset_checkpoint),
        ),
        Parser(
            "partition.metadata",
            _found("partition.metadata"),
            _again(state_files.parse_partition_metadata, state_files.format_partition_metadata),
        ),
        Parser(
            "clean-shutdown",
            _clean_shutdown,
            _again(state_files.parse_clean_shutdown, state_files.format_clean_shutdown),
        ),
        Parser("offset-index", _found("*.index"), indexes.parse_offset_index),
        Parser("time-index", _found("*.timeindex"), indexes.parse_time_index),
        Parser("producer-state", lambda: [indexes.format_producer_state()], indexes.parse_producer_state),
        Parser("capture-note", lambda: [CAPTURE_NOTE], state_files.parse_capture_note),
        Parser("named-time", lambda: list(NAMES), _named_time, ()),
        Parser("file-name", lambda: [b"0" * 20 + b".log", b"0" * 20 + b"-0000000003.checkpoint", b"quorum-state"],
               lambda data: parse_file_name(data.decode(errors="surrogateescape"))),
        Parser("archive", _archives, _archive, (CodecError, InputError)),
        Parser("fleet.yaml", lambda: [FLEET], _in_a_file(lambda path: load_fleet(path, environment={})),
               (SettingsError, InputError)),
        Parser("rules.yaml", lambda: [RULES], _text(parse_rule_settings), (RuleSettingsError,)),
        Parser("waivers.yaml", lambda: [WAIVERS], _text(parse_waivers), (RuleSettingsError,)),
        Parser("evidence", _packs, _in_a_file(verify_pack), ()),
        Parser("command-line", lambda: list(command_line.SEEDS), command_line.parse_command_line, (UsageError,)),
    )
}  # fmt: skip
