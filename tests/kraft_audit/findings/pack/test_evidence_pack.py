"""The evidence pack: complete, the same bytes for the same evidence, and every change of it noticed."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from kraft_audit.capture.path_plans import plan_path
from kraft_audit.findings.pack.evidence_pack import (
    ClusterEvidence,
    archive_source,
    gather,
    sources_of,
    wanted_offsets,
    write_pack,
)
from kraft_audit.findings.pack.pack_verification import verify_pack
from kraft_audit.pipeline.history_collector import read_history
from kraft_audit.quorum.ordered_reading import OrderedReading
from kraft_audit.reading import ReadingSettings
from kraft_audit.rules.judging import check
from kraft_codec.records.redaction import Redactor
from kraft_codec.storage.opener import open_storage
from tests.builders.histories import HistoryBuilder

KEY = b"k" * 32


def _evidence(folder: Path) -> ClusterEvidence:
    (plan,) = plan_path(str(folder), open_storage=open_storage, captured_at_ms=1)
    with OrderedReading(plan, ReadingSettings(open_storage, Redactor(KEY))) as ordered:
        history = read_history(ordered)
        return gather(ordered.reading, history, list(check(history)), open_storage)


def _rewritten(pack: Path, out: Path, changes: dict[str, bytes | None]) -> Path:
    with zipfile.ZipFile(pack) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            content = changes.get(name, source.read(name))
            if content is not None:
                target.writestr(name, content)
        for name in changes.keys() - set(source.namelist()):
            target.writestr(name, changes[name] or b"")
    return out


@pytest.fixture
def pack(build: HistoryBuilder, tmp_path: Path) -> Path:
    build.three_nodes().damage(2, "BAD_CRC")
    history = build.history()
    write_pack(tmp_path / "out.zip", [ClusterEvidence(history, list(check(history)))], tool_version="1", made_at_ms=5)
    return tmp_path / "out.zip"


def test_records_and_headers_of_the_findings(small_corpus: Path, tmp_path: Path) -> None:
    evidence = _evidence(small_corpus / "divergence")
    (suffix,) = {f.from_offset for f in evidence.findings if f.rule == "KQ001" and f.status == "raised"}
    of_suffix = [row for row in evidence.headers if row["base_offset"] == suffix]
    assert {row["leader_epoch"] for row in of_suffix} == {2, 3}  # the ex-leader's batch and the canonical one
    assert {row["offset"] for row in evidence.records} <= set(wanted_offsets(evidence.findings))
    write_pack(tmp_path / "a.zip", [evidence], tool_version="1", made_at_ms=5)
    with zipfile.ZipFile(tmp_path / "a.zip") as zipped:
        (name,) = [name for name in zipped.namelist() if name.endswith("headers.jsonl")]
        headers = [json.loads(line) for line in zipped.read(name).splitlines()]
    assert headers
    for row in headers:
        content = (small_corpus / "divergence" / row["path"] / row["file_name"]).read_bytes()
        assert bytes.fromhex(row["header"]) == content[row["position"] : row["position"] + 61]
    assert verify_pack(tmp_path / "a.zip").is_whole


def test_losses_have_a_row_each(captured_logs: Path, tmp_path: Path) -> None:
    """The nine partitions whose last known leader was elected after all brokers were killed, as KP020 names them."""
    evidence = _evidence(captured_logs / "elr" / "29-stopped")
    write_pack(tmp_path / "a.zip", [evidence], tool_version="1", made_at_ms=5)
    with zipfile.ZipFile(tmp_path / "a.zip") as zipped:
        (name,) = [name for name in zipped.namelist() if name.endswith("losses.jsonl")]
        rows = [json.loads(line) for line in zipped.read(name).splitlines()]
    reported = {f"{row['topic']}-{row['partition']}" for row in rows if row["grade"] in ("possible", "proven")}
    assert reported == {f.subject for f in evidence.findings if f.rule == "KP020" and f.status == "raised"}
    assert len(reported) == 9
    assert all(row["evidence"] for row in rows)


def test_same_evidence_same_bytes(build: HistoryBuilder, tmp_path: Path) -> None:
    history = build.three_nodes().history()
    evidence = ClusterEvidence(history, list(check(history)))
    digests = [write_pack(tmp_path / name, [evidence], tool_version="1", made_at_ms=5) for name in ("a.zip", "b.zip")]
    assert digests[0] == digests[1]
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_packs_of_one_input_differ_by_times_of_reading_alone(small_corpus: Path, tmp_path: Path) -> None:
    """Under one key, made at one time: what differs are the columns that say when files were read."""
    times = {"read_from_ms", "read_to_ms"}
    reported: list[dict[str, list[dict[str, object]]]] = []
    for name in ("a.zip", "b.zip"):
        evidence = _evidence(small_corpus / "divergence" / "12-after-truncation")
        write_pack(tmp_path / name, [evidence], tool_version="1", made_at_ms=5)
        with zipfile.ZipFile(tmp_path / name) as pack:
            files = {file: pack.read(file).decode() for file in pack.namelist() if file != "manifest.json"}
        rows = {
            file: [json.loads(line) for line in text.splitlines()] for file, text in files.items() if "jsonl" in file
        }
        rows |= {file: json.loads(text) for file, text in files.items() if "jsonl" not in file}
        reported.append(rows)
    assert any(row.keys() & times for rows in reported[0].values() for row in rows)
    for file, rows in reported[0].items():
        for row, second in zip(rows, reported[1][file], strict=True):
            assert {name: row[name] for name in row.keys() - times} == {
                name: second[name] for name in row.keys() - times
            }


def test_a_whole_pack(pack: Path) -> None:
    verdict = verify_pack(pack)
    assert (verdict.problems, verdict.file_count) == ((), 13)


@pytest.mark.parametrize(
    ("change", "problem"),
    [(b"[]\n", "SHA-256 differs"), (None, "missing")],
)
def test_a_changed_or_missing_file_is_named(pack: Path, tmp_path: Path, change: bytes | None, problem: str) -> None:
    with zipfile.ZipFile(pack) as zipped:
        (name,) = [name for name in zipped.namelist() if name.endswith("findings.json")]
    verdict = verify_pack(_rewritten(pack, tmp_path / "changed.zip", {name: change}))
    assert verdict.problems == (f"{name}: {problem}",)


def test_an_added_file_is_named(pack: Path, tmp_path: Path) -> None:
    verdict = verify_pack(_rewritten(pack, tmp_path / "changed.zip", {"extra.txt": b"x"}))
    assert verdict.problems == ("extra.txt: not in the manifest",)


@pytest.mark.parametrize("content", [b"", b"no zip at all", b"PK\x03\x04" + b"\x00" * 40])
def test_what_is_no_pack_is_said_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(content)
    (problem,) = verify_pack(tmp_path / "x.zip").problems
    assert problem.startswith("cannot be read as an evidence pack")


def test_a_manifest_of_another_shape(pack: Path, tmp_path: Path) -> None:
    verdict = verify_pack(_rewritten(pack, tmp_path / "changed.zip", {"manifest.json": b"[1]"}))
    assert not verdict.is_whole


def test_a_pack_of_another_format_is_reported(pack: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(pack) as zipped:
        manifest = json.loads(zipped.read("manifest.json"))
    content = json.dumps({**manifest, "format": "kraft-audit evidence 99"}).encode()
    verdict = verify_pack(_rewritten(pack, tmp_path / "changed.zip", {"manifest.json": content}))
    assert verdict.problems == ("manifest.json: format 'kraft-audit evidence 99', expected 'kraft-audit evidence 1'",)


def test_a_pack_that_claims_to_be_huge_is_not_read(pack: Path, tmp_path: Path) -> None:
    """Each entry of the zip's directory says that its file is four gigabytes long."""
    content = pack.read_bytes()
    files, *entries = content.split(b"PK\x01\x02")
    huge = [entry[:20] + b"\xf0\xff\xff\xff" + entry[24:] for entry in entries]
    (tmp_path / "huge.zip").write_bytes(b"PK\x01\x02".join([files, *huge]))
    assert verify_pack(tmp_path / "huge.zip").problems == ("larger than any pack",)


def test_a_file_that_unpacks_to_more_than_any_has_is_not_read_on(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verify_pack(pack).is_whole
    monkeypatch.setattr("kraft_audit.findings.pack.pack_verification.MEMBER_BYTES_MAX", 100)
    (problem,) = verify_pack(pack).problems
    assert problem.endswith("manifest.json is larger than any file of a pack")


def test_a_member_that_unpacks_to_more_than_any_has_is_not_read_on(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(pack) as whole:
        sizes = {info.filename: info.file_size for info in whole.infolist()}
    largest = max(sizes, key=lambda name: sizes[name])
    assert largest != "manifest.json"
    monkeypatch.setattr("kraft_audit.findings.pack.pack_verification.MEMBER_BYTES_MAX", sizes[largest] - 1)
    (problem,) = verify_pack(pack).problems
    assert problem.endswith(f"{largest} is larger than any file of a pack")


def test_an_archive_that_cannot_be_read_has_its_reason() -> None:
    reported = archive_source("/proc/self/mem")
    assert reported == {"root": "/proc/self/mem", "path": "", "sha256": None, "unread": "Input/output error"}


def test_a_file_larger_than_any_of_a_log_dir_is_not_hashed(small_corpus: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(small_corpus / "mini-4.4.0", tmp_path / "logs")
    file = next(folder.rglob("*.checkpoint"))
    file.chmod(0o600)
    os.truncate(file, (16 << 30) + 1)
    (plan,) = plan_path(str(folder), open_storage=open_storage, captured_at_ms=1)
    (source,) = [source for source in sources_of(plan, open_storage) if source["path"] == str(file.relative_to(folder))]
    assert source["sha256"] is None
    assert source["unread"] == "LIMIT at 0: 17179869185 bytes, expected at most 17179869184"


def test_the_manifest_has_the_hash_of_what_was_read(small_corpus: Path, tmp_path: Path) -> None:
    folder = small_corpus / "divergence" / "10-uncommitted-suffix-live"
    evidence = _evidence(folder)
    archive = tmp_path / "incident.tgz"
    with tarfile.open(archive, "w:gz") as target:
        target.add(folder, folder.name)
    reported = archive_source(str(archive))
    assert reported is not None
    assert archive_source(archive.as_uri()) == {**reported, "root": archive.as_uri()}
    write_pack(tmp_path / "pack.zip", [evidence], tool_version="0", made_at_ms=1, more_sources=[reported])
    with zipfile.ZipFile(tmp_path / "pack.zip") as pack:
        first, *sources = json.loads(pack.read("manifest.json"))["sources"]
    assert first["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    hashed = {source["path"]: (source["size_bytes"], source["sha256"]) for source in sources}
    files = {name: (folder / name).read_bytes() for name in hashed}
    assert hashed == {name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()}
    read = {str(file.relative_to(folder)) for pattern in ("*.log", "*.checkpoint") for file in folder.rglob(pattern)}
    assert read <= hashed.keys()
    assert not any(name.endswith((".index", ".timeindex")) for name in hashed), "what is never read"
    assert archive_source(str(folder)) is None
    assert verify_pack(tmp_path / "pack.zip").is_whole


def test_a_file_that_grew_is_hashed_as_far_as_it_was_read(small_corpus: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(small_corpus / "mini-4.4.0", tmp_path / "logs")
    (plan,) = plan_path(str(folder), open_storage=open_storage, captured_at_ms=1)
    log = max(folder.rglob("*.log"), key=lambda file: file.stat().st_size)
    before = log.read_bytes()
    log.chmod(0o600)
    log.write_bytes(before + b"more")
    meta = next(folder.rglob("meta.properties"))
    meta.unlink()
    reported = {source["path"]: source for source in sources_of(plan, open_storage)}
    grown = reported[str(log.relative_to(folder))]
    assert (grown["size_bytes"], grown["sha256"]) == (len(before), hashlib.sha256(before).hexdigest())
    gone = reported[str(meta.relative_to(folder))]
    assert gone["sha256"] is None
    assert "no longer there" in gone["unread"]
