"""The members of a tar stream, read once from front to back, with every length bounded before it is believed.

Formats: POSIX ustar and pax, GNU long names, GNU sparse files in all four forms (the old header, pax 0.0, 0.1 and
1.0), as described in the GNU tar manual ("Basic Tar Format", "Storing Sparse Files"). Python's own tarfile serves as a
witness in the tests and is not used here: it trusts sizes that a hostile header names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kraft_codec.errors import CodecError, Reason
from kraft_codec.storage.archive_members import Budget, ByteSource, Member, MemberKind, StreamContent

BLOCK_BYTES: Final = 512
_MAX_EXTENSION_BYTES: Final = 1 << 20
_MAX_SPARSE_RUNS: Final = 100_000
_MAX_PAX_LENGTH_DIGITS: Final = 20  # as many as CPython's tarfile (3.13) takes
_MAX_SIZE: Final = 1 << 60
_USTAR_MAGIC: Final = b"ustar\0"
_CHECKSUM: Final = slice(148, 156)
_OLD_SPARSE_RUNS: Final = (386, 4, 482)  # position, count, "more blocks follow" flag
_OLD_SPARSE_BLOCK: Final = (0, 21, 504)


_MEMBER_KINDS: Final = {
    b"0": MemberKind.FILE,
    b"\0": MemberKind.FILE,
    b"7": MemberKind.FILE,
    b"S": MemberKind.FILE,
    b"5": MemberKind.DIRECTORY,
    b"D": MemberKind.DIRECTORY,
    b"1": MemberKind.LINK,
    b"2": MemberKind.LINK,
}


@dataclass(slots=True)
class _Extension:
    """What pax and GNU headers say of the member that follows them."""

    values: dict[str, str] = field(default_factory=dict)
    sparse_runs: list[tuple[int, int]] = field(default_factory=list)
    refusal: CodecError | None = None


def tar_members(source: ByteSource, budget: Budget) -> Iterator[Member]:
    """The members in order. Take a member's chunks before the next one is asked for; what is left of it is skipped.

    Raises CodecError where the stream ends too soon or is no tar any more; what was given before stays valid.
    """
    extension = _Extension()
    while True:
        block = _read_block(source, budget)
        if not block.strip(b"\0"):
            source.finish(budget)
            return
        _require_checksum(block, source)
        stored_bytes = _number(block[124:136], source)
        flag = block[156:157]
        if flag in (b"x", b"X", b"L", b"K", b"g", b"V", b"N"):
            _read_extension(extension, flag, stored_bytes, source, budget)
            continue
        member, content = _member(block, flag, stored_bytes, extension, source, budget)
        extension = _Extension()
        padding = -content.remaining_bytes % BLOCK_BYTES
        yield member
        content.skip()
        source.read_exactly(padding)


def _member(
    block: bytes, flag: bytes, stored_bytes: int, extension: _Extension, source: ByteSource, budget: Budget
) -> tuple[Member, StreamContent]:
    values = extension.values
    kind = _MEMBER_KINDS.get(flag, MemberKind.SPECIAL)
    if "size" in values:
        stored_bytes = _decimal(values["size"], source)
    if kind is MemberKind.LINK or flag == b"5":
        stored_bytes = 0  # a hard link may name the size of its target; no data follows
    name = values.get("GNU.sparse.name", values.get("path")) or _text(_header_name(block))
    if flag == b"\0" and name.endswith("/"):
        kind, stored_bytes = MemberKind.DIRECTORY, 0
    content = StreamContent(source, budget, stored_bytes)
    mtime_ms = _mtime_ms(block, values, source)
    member = Member(name, kind, stored_bytes, mtime_ms, content, extension.refusal)
    if kind is MemberKind.FILE and (flag == b"S" or any(key.startswith("GNU.sparse") for key in values)):
        # The map itself is part of the stream, so it is read even where its values are then refused.
        try:
            _make_sparse(member, content, block, flag, extension)
        except _SparseError as error:
            member.refusal = CodecError(Reason.BAD_FILE, source.consumed_bytes, str(error))
    return member, content


class _SparseError(Exception):
    """A map of a sparse file that contradicts itself: the member is refused, the stream goes on."""


def _make_sparse(member: Member, content: StreamContent, block: bytes, flag: bytes, extension: _Extension) -> None:
    values, source = extension.values, content.source
    if flag == b"S":
        member.size_bytes = _number(block[483:495], source)
        runs = _old_sparse_runs(block, source, content.budget)
    elif values.get("GNU.sparse.major") == "1":
        member.size_bytes = _decimal(values.get("GNU.sparse.realsize", ""), source)
        runs = _leading_sparse_runs(content)
    else:
        member.size_bytes = _decimal(values.get("GNU.sparse.size", ""), source)
        numbers = values.get("GNU.sparse.map", "")
        flat = [_decimal(number, source) for number in numbers.split(",")] if numbers else []
        runs = list(zip(flat[::2], flat[1::2], strict=False)) or extension.sparse_runs
    _require_runs(runs, member.size_bytes, content.remaining_bytes)
    content.runs = runs


def _require_runs(runs: list[tuple[int, int]], size_bytes: int, stored_bytes: int) -> None:
    if len(runs) > _MAX_SPARSE_RUNS:
        raise _SparseError(f"a sparse file of more than {_MAX_SPARSE_RUNS} pieces")
    end = 0
    for position, length in runs:
        if position < end or position + length > size_bytes:
            raise _SparseError("a sparse file whose pieces do not follow each other")
        end = position + length
    if sum(length for _, length in runs) != stored_bytes:
        raise _SparseError("a sparse file whose pieces are not what is stored")


def _old_sparse_runs(block: bytes, source: ByteSource, budget: Budget) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    position, count, more = _OLD_SPARSE_RUNS
    while True:
        for start in range(position, position + 24 * count, 24):
            if block[start : start + 24].strip(b"\0"):
                runs.append(
                    (_number(block[start : start + 12], source), _number(block[start + 12 : start + 24], source))
                )
        if not block[more] or len(runs) > _MAX_SPARSE_RUNS:
            return runs
        block = _read_block(source, budget)
        position, count, more = _OLD_SPARSE_BLOCK


def _leading_sparse_runs(content: StreamContent) -> list[tuple[int, int]]:
    """Form 1.0: the map stands before the data, a decimal number a line, padded to whole blocks."""
    numbers: list[int] = []
    text = b""
    while not numbers or len(numbers) <= 2 * numbers[0]:
        line, newline, rest = text.partition(b"\n")
        if newline:
            text = rest
            if not line.isdigit() or len(line) > 19:
                raise _SparseError("a sparse file whose map is no list of numbers")
            numbers.append(int(line))
            if numbers[0] > _MAX_SPARSE_RUNS:
                raise _SparseError(f"a sparse file of more than {_MAX_SPARSE_RUNS} pieces")
            continue
        if content.remaining_bytes < BLOCK_BYTES or len(text) > BLOCK_BYTES:
            raise _SparseError("a sparse file whose map has no end")
        missing = BLOCK_BYTES
        while missing:
            part = content.take(missing)
            missing -= len(part)
            text += part
    return list(zip(numbers[1::2], numbers[2::2], strict=True))


def _read_extension(extension: _Extension, flag: bytes, stored_bytes: int, source: ByteSource, budget: Budget) -> None:
    content = StreamContent(source, budget, stored_bytes)
    if stored_bytes > _MAX_EXTENSION_BYTES:
        detail = f"a header of {stored_bytes} bytes, expected at most {_MAX_EXTENSION_BYTES}"
        extension.refusal = CodecError(Reason.LIMIT, source.consumed_bytes, detail)
        content.skip()
    else:
        data = b"".join(chunk for _, chunk in content.chunks())
        if flag == b"L":
            extension.values["path"] = _text(data.rstrip(b"\0"))
        elif flag in (b"x", b"X"):
            _read_pax(extension, data, source)
    source.read_exactly(-stored_bytes % BLOCK_BYTES)


def _read_pax(extension: _Extension, data: bytes, source: ByteSource) -> None:
    r"""Records `<length> <key>=<value>\n`, the length in bytes counting itself."""
    position = 0
    offsets: list[int] = []
    while position < len(data):
        space = data.find(b" ", position, position + _MAX_PAX_LENGTH_DIGITS + 1)
        digits = data[position:space] if space > 0 else b""
        end = position + int(digits) if digits.isdigit() else 0
        if not space < end <= len(data) or data[end - 1 : end] != b"\n":
            extension.refusal = CodecError(Reason.BAD_FILE, source.consumed_bytes, "its pax header is damaged")
            return
        key, _, value = data[space + 1 : end - 1].partition(b"=")
        name = _text(key)
        if name == "GNU.sparse.offset":
            offsets.append(_decimal(_text(value), source))
        elif name == "GNU.sparse.numbytes" and offsets:
            extension.sparse_runs.append((offsets.pop(), _decimal(_text(value), source)))
        extension.values[name] = _text(value)
        position = end


def _read_block(source: ByteSource, budget: Budget) -> bytes:
    block = source.read_exactly(BLOCK_BYTES)
    budget.charge(BLOCK_BYTES, source.consumed_bytes)
    return block


def _require_checksum(block: bytes, source: ByteSource) -> None:
    """The sum of the header's bytes, its own field as blanks; some writers summed signed bytes."""
    counted = block[: _CHECKSUM.start] + b" " * 8 + block[_CHECKSUM.stop :]
    unsigned = sum(counted)
    signed = unsigned - 256 * sum(1 for byte in counted if byte > 127)
    if _octal(block[_CHECKSUM]) not in (unsigned, signed):
        raise CodecError(Reason.BAD_FILE, source.consumed_bytes, "not a tar header where one should be")


def _header_name(block: bytes) -> bytes:
    name = block[:100].split(b"\0", 1)[0]
    prefix = block[345:500].split(b"\0", 1)[0] if block[257:263] == _USTAR_MAGIC else b""
    return prefix + b"/" + name if prefix else name


def _mtime_ms(block: bytes, values: dict[str, str], source: ByteSource) -> int:
    """Milliseconds since 1970; 0 for a time that no clock shows."""
    try:
        seconds = float(values["mtime"]) if "mtime" in values else float(_number(block[136:148], source))
    except (ValueError, CodecError):
        return 0
    return int(seconds * 1000) if 0 <= seconds < 1e11 else 0


def _number(digits: bytes, source: ByteSource) -> int:
    """An octal number, or one of base 256 where the first bit is set (GNU, beyond 8 GiB)."""
    value: int | None
    if digits[0] & 0x80:
        value = int.from_bytes(bytes([digits[0] & 0x7F]) + digits[1:], "big") if digits[0] != 0xFF else -1
    else:
        value = _octal(digits)
    if value is None or not 0 <= value <= _MAX_SIZE:
        raise CodecError(Reason.BAD_FILE, source.consumed_bytes, "a number in a tar header is damaged")
    return value


def _octal(digits: bytes) -> int | None:
    text = digits.split(b"\0", 1)[0].strip(b" ")
    try:
        return int(text, 8) if text else 0
    except ValueError:
        return None


def _decimal(text: str, source: ByteSource) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise CodecError(Reason.BAD_FILE, source.consumed_bytes, "a number in a pax header is damaged")
    return int(text)


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")
