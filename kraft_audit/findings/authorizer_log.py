"""Kafka's authorizer log: which admin requests were allowed, to whom, from where and when.

StandardAuthorizer writes a line for each operation on each resource that a request needs. In KRaft a broker forwards
admin requests, and the active controller authorizes them for the user who sent them: the lines are in the controllers'
logs, under the clock that also stamps the metadata log. Allowed operations are logged at DEBUG, denied ones at INFO.
(StandardAuthorizerData.logAuditMessage and ControllerApis; lines of a real cluster of Kafka 4.3.1.)
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from kraft_codec.errors import InputError
from kraft_codec.file_names import printable

ADMIN_REQUESTS: Final = frozenset({
    *("CreateTopics", "DeleteTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs", "CreateAcls"),
    *("DeleteAcls", "AlterClientQuotas", "AlterUserScramCredentials", "UpdateFeatures"),
})  # fmt: skip
"""Requests whose lines are kept; a broker's log has very many others."""
LINE_BYTES_MAX: Final = 1 << 16
_GZIP: Final = b"\x1f\x8b"
_MARK: Final = b" for request = "
_MESSAGE: Final = re.compile(
    r"Principal = (?P<principal>.*) is (?P<verdict>Allowed|Denied) operation = (?P<operation>[A-Z_]+)"
    r" from host = (?P<host>\S*) on resource = (?P<type>\w+):\w+:(?P<name>.*) for request = (?P<request>\w+)"
    r" with resourceRefCount = \d+(?P<rest>.*)"
)
_ONCE: Final = ("Principal = ", " operation = ", " from host = ", " on resource = ", " for request = ")
"""A line with one of these twice can be read in two ways, as a user's name may hold anything."""
_TIME: Final = re.compile(
    r"(?P<second>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
_OFFSET: Final = re.compile(r"([+-])(\d\d):?(\d\d)")


@dataclass(frozen=True, slots=True)
class AllowedRequest:
    """One line: a user was allowed an operation on a resource, for an admin request.

    It was written in [time_ms, time_ms + spread_ms): the digits of its time leave so much open.
    """

    time_ms: int
    spread_ms: int
    principal: str
    host: str
    request: str
    operation: str
    resource_type: str
    resource_name: str
    is_super_user: bool = False


@dataclass(frozen=True, slots=True)
class AuthorizerLog:
    """What the files of one or more authorizer logs hold, in the order of time.

    `sources`: each file with its size and SHA-256. `unread_count` lines are about requests, and cannot be read one way.
    """

    requests: tuple[AllowedRequest, ...]
    sources: tuple[dict[str, Any], ...] = ()
    line_count: int = 0
    allowed_count: int = 0
    unread_count: int = 0
    zone: tzinfo = UTC


def read_authorizer_logs(paths: Sequence[Path], zone: tzinfo = UTC) -> AuthorizerLog:
    """The logs at these paths: files, plain or gzip, or folders with files that have `authorizer` in their name.

    `zone` is that of times without one. Raises InputError where a path cannot be read, or holds no line of such a log.
    """
    requests: list[AllowedRequest] = []
    sources = []
    lines = allowed = unread = 0
    for file in _files(paths):
        counted = _Reader(zone)
        sources.append(counted.read(file))
        requests += counted.requests
        lines, allowed, unread = lines + counted.lines, allowed + counted.allowed, unread + counted.unread
    if not lines:
        raise InputError(", ".join(map(str, paths)), "no line of Kafka's authorizer log: 'Principal = … is Allowed …'")
    requests.sort(key=attrgetter("time_ms"))
    return AuthorizerLog(tuple(requests), tuple(sources), lines, allowed, unread, zone)


def time_zone(text: str) -> tzinfo:
    """UTC, an offset such as +02:00, or a name such as Europe/Berlin. Raises ValueError."""
    offset = _OFFSET.fullmatch(text)
    if text in ("UTC", "Z"):
        return UTC
    if offset is not None:
        return timezone((1 if offset[1] == "+" else -1) * timedelta(hours=int(offset[2]), minutes=int(offset[3])))
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{text!r}: expected UTC, an offset as +02:00, or a zone as Europe/Berlin") from None


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            named = [
                Path(folder, name)
                for folder, _, names in os.walk(path)
                for name in names
                if "authorizer" in name.lower()
            ]
            if not named:
                raise InputError(str(path), "no file with `authorizer` in its name")
            yield from sorted(named)
        elif path.exists():
            yield path
        else:
            raise InputError(str(path), "no such file")


class _Hashed:
    """A file whose bytes are hashed as they are read."""

    def __init__(self, opened: IO[bytes]) -> None:
        self._opened = opened
        self.digest = hashlib.sha256()
        self.size_bytes = 0

    def read(self, size: int = -1) -> bytes:
        content = self._opened.read(size)
        self.digest.update(content)
        self.size_bytes += len(content)
        return content


class _Reader:
    """Reads one file line by line; counts what it holds."""

    def __init__(self, zone: tzinfo) -> None:
        self.zone = zone
        self.requests: list[AllowedRequest] = []
        self.lines = self.allowed = self.unread = 0
        self._seconds: dict[tuple[str, str | None], int | None] = {}

    def read(self, path: Path) -> dict[str, Any]:
        """The row of a file that was read, as sources of evidence are listed."""
        try:
            with path.open("rb") as opened:
                hashed = _Hashed(opened)
                is_gzip = opened.peek(len(_GZIP)).startswith(_GZIP)
                for line in _lines(hashed, is_gzip=is_gzip):
                    if _MARK in line:
                        self._take(line.decode("utf-8", "replace"))
                while hashed.read(1 << 20):
                    pass
        except (OSError, EOFError, zlib.error) as problem:
            raise InputError(str(path), getattr(problem, "strerror", None) or f"damaged gzip: {problem}") from None
        return {
            "root": printable(str(path)),
            "path": "",
            "size_bytes": hashed.size_bytes,
            "sha256": hashed.digest.hexdigest(),
        }

    def _take(self, line: str) -> None:
        if any(line.count(part) != 1 for part in _ONCE):
            self.unread += _ONCE[0] in line
            return
        match = _MESSAGE.search(line)
        if match is None:
            return
        self.lines += 1
        if match["verdict"] == "Denied":
            return
        self.allowed += 1
        if match["request"] not in ADMIN_REQUESTS:
            return
        at = self._time(line[: match.start()]) or self._time(match["rest"])
        if at is None:
            self.unread += 1
            return
        request = AllowedRequest(
            *at,
            principal=match["principal"],
            host=match["host"],
            request=match["request"],
            operation=match["operation"],
            resource_type=match["type"],
            resource_name=match["name"],
            is_super_user="rule SuperUser" in match["rest"],
        )
        self.requests.append(request)

    def _time(self, text: str) -> tuple[int, int] | None:
        """(time, how much its digits leave open) in milliseconds; None without a time, or with one that was twice."""
        match = _TIME.search(text)
        if match is None:
            return None
        key = (match["second"], match["zone"])
        if key not in self._seconds:
            self._seconds[key] = _second_ms(match["second"], match["zone"], self.zone)
        second_ms = self._seconds[key]
        if second_ms is None:
            return None
        digits = match["fraction"] or ""
        return second_ms + int(digits.ljust(3, "0")[:3]), max(1, 1000 // 10 ** len(digits))


def _second_ms(second: str, zone_text: str | None, zone: tzinfo) -> int | None:
    """None where it is no time, or the clock of its zone showed it twice, or not at all."""
    try:
        moment = datetime.fromisoformat(second)
        moment = moment.replace(tzinfo=zone if zone_text is None else time_zone(zone_text))
        if moment.utcoffset() != moment.replace(fold=1).utcoffset():
            return None
        return int(moment.timestamp()) * 1000
    except (ValueError, OverflowError):
        return None


def _lines(file: _Hashed, *, is_gzip: bool) -> Iterator[bytes]:
    """Whole lines; the rest of one that is longer than any line of such a log is left out."""
    source: Any = gzip.GzipFile(fileobj=file) if is_gzip else file  # type: ignore[call-overload]
    rest = b""
    while chunk := source.read(1 << 20):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line for line in lines if len(line) <= LINE_BYTES_MAX)
        if len(rest) > LINE_BYTES_MAX:
            rest = rest[: LINE_BYTES_MAX + 1]
    if len(rest) <= LINE_BYTES_MAX:
        yield rest
