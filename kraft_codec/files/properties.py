"""`meta.properties`: who a log dir belongs to, in Java's properties text.

Sources: `MetaProperties`, `MetaPropertiesVersion`, `PropertiesUtils` (3.9 to 4.4), `java.util.Properties`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kraft_codec.errors import CodecError, Reason
from kraft_codec.text.java_text import uuid_bytes

MAX_PROPERTIES_BYTES: Final = 64 << 10
_SEPARATOR: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_PROPERTY_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_INT32_TEXT: Final = re.compile(r"[+-]?[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """A log dir's properties: `entries` has every key in file order, unknown ones too; `comments` what follows `#`.

    Version 0 names the node `broker.id` and may lack everything; version 1 has `node.id`, `cluster.id` and,
    from 3.7 on, `directory.id`.
    """

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    entries: tuple[tuple[str, str], ...]
    comments: tuple[str, ...] = ()


def meta_properties(
    *,
    version: int = 1,
    cluster_id: str | None = None,
    node_id: int | None = None,
    directory_id: str | None = None,
    date: str = "Thu Jan 01 00:00:00 UTC 1970",
) -> MetaProperties:
    """The value that Kafka on Java 17 writes for a log dir: keys in the order of a Java hash table."""
    values = {
        "version": str(version),
        "cluster.id": cluster_id,
        "broker.id" if version == 0 else "node.id": None if node_id is None else str(node_id),
        "directory.id": directory_id,
    }
    present = [(key, value) for key, value in values.items() if value is not None]
    entries = tuple(sorted(present, key=lambda entry: java_hash_bucket(entry[0])))
    return MetaProperties(version, cluster_id, node_id, directory_id, entries, ("", date))


def written_ms(meta: MetaProperties) -> int | None:
    """When the file was written, as `java.util.Properties.store` notes it; None where it is not in UTC."""
    for comment in meta.comments:
        try:
            moment = datetime.strptime(comment.strip(), "%a %b %d %H:%M:%S UTC %Y").replace(tzinfo=UTC)
        except ValueError:
            continue
        return int(moment.timestamp()) * 1000
    return None


def java_hash_bucket(key: str) -> int:
    """The bucket of a key in a `java.util.Properties` of up to 11 entries: they are stored in this order."""
    code = 0
    for character in key:
        code = (31 * code + ord(character)) & 0xFFFFFFFF
    return (code ^ (code >> 16)) & 15


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Reads `meta.properties`; raises CodecError(BAD_FILE) where Kafka would refuse the file."""
    if len(data) > MAX_PROPERTIES_BYTES:
        raise CodecError(Reason.LIMIT, 0, f"{len(data)} bytes, expected at most {MAX_PROPERTIES_BYTES}")
    entries, comments = _parse_properties(data)
    version = _integer(entries, "version")
    version = 0 if version is None else version
    if version not in (0, 1):
        raise CodecError(Reason.BAD_FILE, entries["version"].position, f"version {version}: expected 0 or 1")
    node_id = _integer(entries, "broker.id" if version == 0 else "node.id")
    if version == 1:
        for key in ("node.id", "cluster.id"):
            if key not in entries:
                raise CodecError(Reason.BAD_FILE, len(data), f"version 1 without {key}")
    values = tuple((key, entry.value) for key, entry in entries.items())
    cluster_id = entries["cluster.id"].value if "cluster.id" in entries else None
    return MetaProperties(version, cluster_id, node_id, _directory_id(entries), values, tuple(comments))


def format_meta_properties(meta: MetaProperties) -> bytes:
    """The file as `java.util.Properties.store` writes it: comments, then a `key=value` line an entry."""
    lines = [f"#{comment}\n" for comment in meta.comments]
    lines += [f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}\n" for key, value in meta.entries]
    return "".join(lines).encode()


def parse_properties(data: bytes) -> list[tuple[str, str]]:
    """The entries of any properties file, of equal keys the last; raises CodecError(BAD_FILE) where Java would."""
    entries, _ = _parse_properties(data)
    return [(key, entry.value) for key, entry in entries.items()]


def with_entries(data: bytes, values: Mapping[str, str], *, removed: Collection[str], comment: str) -> bytes:
    """The file with these entries after all others, in place of its own of these keys; the rest byte for byte.

    Entries whose keys are `removed` go too. `comment` stands before the new ones. Raises CodecError(BAD_FILE).
    """
    text, encoding = _decoded(data)
    gone = {*values, *removed}
    kept = "".join(taken for taken, line in _logical_lines(text) if line[0] in "#!" or _split(line, 0)[0] not in gone)
    end = "" if not kept or kept.endswith("\n") else "\n"
    # The blank line ends a last line that is continued.
    lines = ["", f"# {comment}", *(f"{key}={_doubled(value)}" for key, value in values.items())]
    return kept.encode(encoding) + (end + "".join(f"{_ascii(line)}\n" for line in lines)).encode("ascii")


def _doubled(value: str) -> str:
    """A value as people write it: of what Java would read otherwise it can hold backslashes alone."""
    return value.replace("\\", "\\\\")


def _ascii(text: str) -> str:
    """With escapes for what Java, which reads Latin-1, and people, who write UTF-8, would read differently."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 0x7F else f"\\u{code:04x}" for code in codes)


@dataclass(frozen=True, slots=True)
class _Entry:
    value: str
    position: int


def _integer(entries: dict[str, _Entry], key: str) -> int | None:
    entry = entries.get(key)
    if entry is None:
        return None
    text = entry.value.strip()
    if _INT32_TEXT.fullmatch(text) is None or not -(2**31) <= int(text) < 2**31:
        raise CodecError(Reason.BAD_FILE, entry.position, f"{key} is not an int32")
    return int(text)


def _directory_id(entries: dict[str, _Entry]) -> str | None:
    entry = entries.get("directory.id")
    if entry is None:
        return None
    try:
        uuid_bytes(entry.value)
    except ValueError:
        raise CodecError(Reason.BAD_FILE, entry.position, "directory.id is not a uuid") from None
    return entry.value


def _parse_properties(data: bytes) -> tuple[dict[str, _Entry], list[str]]:
    """Entries in file order (a repeated key takes its last value, as in Java) and comments."""
    text, _ = _decoded(data)
    entries: dict[str, _Entry] = {}
    comments: list[str] = []
    position = 0
    for taken, line in _logical_lines(text):
        if line[0] in "#!":
            comments.append(line[1:])
        else:
            key, value = _split(line, position)
            entries.pop(key, None)
            entries[key] = _Entry(value, position)
        position += len(taken.encode())
    return entries, comments


def _decoded(data: bytes) -> tuple[str, str]:
    """The text, and its encoding: Kafka writes UTF-8 and reads Latin-1, so no byte is an error."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


def _logical_lines(text: str) -> list[tuple[str, str]]:
    """(text taken, line): leading blanks dropped, continuation lines joined, blank lines taken by the line after."""
    lines: list[tuple[str, str]] = []
    taken: list[str] = []
    pending: list[str] = []
    for line in re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", text):
        taken.append(line)
        content = line.rstrip("\r\n").lstrip(" \t\f")
        is_comment = not pending and content[:1] in ("#", "!")
        backslash_count = len(content) - len(content.rstrip("\\"))
        if backslash_count % 2 and not is_comment:
            pending.append(content[:-1])
            continue
        content = "".join([*pending, content])
        pending.clear()
        if content:
            lines.append(("".join(taken), content))
            taken.clear()
    if content := "".join(pending):
        lines.append(("".join(taken), content))
    return lines


def _split(line: str, position: int) -> tuple[str, str]:
    match = _SEPARATOR.match(line)
    key = match[0] if match else ""
    value = line[len(key) :].lstrip(" \t\f")
    if value[:1] in ("=", ":"):
        value = value[1:].lstrip(" \t\f")
    return _unescape(key, position), _unescape(value, position)


def _unescape(text: str, position: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\" and at < len(text):
            character = text[at]
            at += 1
            if character == "u":
                digits = text[at : at + 4]
                if re.fullmatch(r"[0-9A-Fa-f]{4}", digits) is None:
                    raise CodecError(Reason.BAD_FILE, position, "malformed \\uxxxx escape")
                character = chr(int(digits, 16))
                at += 4
            else:
                character = _PROPERTY_ESCAPES.get(character, character)
        parts.append(character)
    return _without_lone_surrogates("".join(parts))


def _without_lone_surrogates(text: str) -> str:
    """Java holds text as UTF-16: two escapes may make one character, and half of one cannot be written as UTF-8."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _escape(text: str, *, is_key: bool) -> str:
    """`Properties.saveConvert` without unicode escapes, as Kafka stores through a UTF-8 writer."""
    parts: list[str] = []
    for index, character in enumerate(text):
        if character == " ":
            parts.append("\\ " if is_key or index == 0 else " ")
        elif character in "\t\n\r\f":
            parts.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[character])
        elif character in "\\=:#!":
            parts.append("\\" + character)
        else:
            parts.append(character)
    return "".join(parts)
