"""The signature of a pack, as securesystemslib's DSSE reads it: a change shows, however the manifest is renewed."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from kraft_audit.commands.cli import run_command
from kraft_audit.findings.pack.evidence_pack import MANIFEST, SIGNATURE, ClusterEvidence, write_pack
from kraft_audit.findings.pack.pack_verification import verify_pack
from kraft_audit.findings.pack.signed_statement import (
    NoStatementError,
    key_id_of,
    read_private_key,
    read_public_key,
    read_statement,
)
from kraft_audit.rules.judging import check
from kraft_codec.errors import InputError
from tests.builders.histories import HistoryBuilder

KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
OTHER = Ed25519PrivateKey.from_private_bytes(b"o" * 32)


@pytest.fixture
def evidence(build: HistoryBuilder) -> ClusterEvidence:
    build.three_nodes().damage(2, "BAD_CRC")
    history = build.history()
    return ClusterEvidence(history, list(check(history)), picture="<svg/>")


@pytest.fixture
def pack(evidence: ClusterEvidence, tmp_path: Path) -> Path:
    write_pack(tmp_path / "pack.zip", [evidence], tool_version="1", made_at_ms=5, key=KEY)
    return tmp_path / "pack.zip"


def _members(pack: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(pack) as zipped:
        return {name: zipped.read(name) for name in zipped.namelist()}


def _written(members: dict[str, bytes], out: Path) -> Path:
    with zipfile.ZipFile(out, "w") as zipped:
        for name, content in members.items():
            zipped.writestr(name, content)
    return out


def _renewed(members: dict[str, bytes]) -> dict[str, bytes]:
    """The members with a manifest that agrees with all of them."""
    manifest = json.loads(members[MANIFEST])
    manifest["files"] = {
        name: {"sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}
        for name, content in members.items()
        if name not in (MANIFEST, SIGNATURE)
    }
    return {**members, MANIFEST: json.dumps(manifest).encode()}


def test_another_implementation_verifies_the_statement(pack: Path) -> None:
    members = _members(pack)
    envelope = Envelope.from_dict(json.loads(members[SIGNATURE]))
    key_id = key_id_of(KEY.public_key())
    envelope.verify([SSlibKey.from_crypto(KEY.public_key(), key_id)], 1)
    with pytest.raises(VerificationError):
        envelope.verify([SSlibKey.from_crypto(OTHER.public_key(), key_id)], 1)
    statement = json.loads(envelope.payload)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    (subject,) = statement["subject"]
    assert subject == {"name": MANIFEST, "digest": {"sha256": hashlib.sha256(members[MANIFEST]).hexdigest()}}


def test_a_whole_pack_is_signed_by_its_key_alone(pack: Path) -> None:
    digest = hashlib.sha256(_members(pack)[MANIFEST]).hexdigest()
    verdict = verify_pack(pack, expected=digest.upper(), key=KEY.public_key())
    assert (verdict.problems, verdict.is_signature_valid) == ((), True)
    assert verdict.signed_by == (key_id_of(KEY.public_key()),)
    assert verify_pack(pack).is_signature_valid is None
    assert verify_pack(pack, key=OTHER.public_key()).problems == (f"{SIGNATURE}: not signed by this key",)


def test_every_changed_byte_fails(pack: Path, tmp_path: Path) -> None:
    """A bit of each member, at both ends and in the middle, with and without a manifest that agrees again."""
    members = _members(pack)
    digest = hashlib.sha256(members[MANIFEST]).hexdigest()
    assert any(name.endswith("picture.svg") for name in members)
    for name, content in members.items():
        for place in sorted({0, len(content) // 2, len(content) - 1} if content else ()):
            changed = {**members, name: content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]}
            written = _written(changed, tmp_path / "changed.zip")
            assert not verify_pack(written, key=KEY.public_key()).is_whole, (name, place)
            if name in (MANIFEST, SIGNATURE):
                continue
            written = _written(_renewed(changed), tmp_path / "changed.zip")
            assert not verify_pack(written, key=KEY.public_key()).is_whole, (name, place)
            assert not verify_pack(written, expected=digest).is_whole, (name, place)
            assert not verify_pack(written).is_whole, "the statement is about another manifest"
            unsigned = {each: value for each, value in _renewed(changed).items() if each != SIGNATURE}
            written = _written(unsigned, tmp_path / "changed.zip")
            assert not verify_pack(written, key=KEY.public_key()).is_whole
            assert not verify_pack(written, expected=digest).is_whole
            assert verify_pack(written).is_whole, "only what is written down elsewhere shows this"


def test_a_bit_of_the_zip_changes_no_content_unnoticed(pack: Path, tmp_path: Path) -> None:
    whole, members = pack.read_bytes(), _members(pack)
    noticed = 0
    for place in range(0, len(whole), 83):
        changed = tmp_path / "changed.zip"
        changed.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << place % 8)]) + whole[place + 1 :])
        if verify_pack(changed, key=KEY.public_key()).is_whole:
            assert _members(changed) == members, "a date, a mode: nothing that a reader is given"
        else:
            noticed += 1
    assert noticed > len(whole) // 83 * 0.8


def test_signed_again_it_is_the_same_to_the_byte(pack: Path, evidence: ClusterEvidence, tmp_path: Path) -> None:
    write_pack(tmp_path / "again.zip", [evidence], tool_version="1", made_at_ms=5, key=KEY)
    assert (tmp_path / "again.zip").read_bytes() == pack.read_bytes()
    write_pack(tmp_path / "unsigned.zip", [evidence], tool_version="1", made_at_ms=5)
    signed, unsigned = _members(pack), _members(tmp_path / "unsigned.zip")
    assert unsigned == {name: content for name, content in signed.items() if name != SIGNATURE}


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"[" * 100_000, b'{"payloadType": 1}',
     b'{"payloadType": "application/vnd.in-toto+json", "payload": "!", "signatures": []}',
     b'{"payloadType": "application/vnd.in-toto+json", "payload": "e30=", "signatures": []}'],
)  # fmt: skip
def test_what_is_no_statement_is_named(pack: Path, tmp_path: Path, content: bytes) -> None:
    with pytest.raises(NoStatementError):
        read_statement(content)
    written = _written({**_members(pack), SIGNATURE: content}, tmp_path / "changed.zip")
    (problem,) = verify_pack(written, key=KEY.public_key()).problems
    assert problem.startswith(SIGNATURE)


def test_only_plain_ed25519_keys_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    pem, pkcs8 = Encoding.PEM, PrivateFormat.PKCS8
    file.write_bytes(KEY.private_bytes(pem, pkcs8, NoEncryption()))
    assert read_private_key(file).public_key() == KEY.public_key()
    file.write_bytes(KEY.public_key().public_bytes(pem, PublicFormat.SubjectPublicKeyInfo))
    assert read_public_key(file) == KEY.public_key()
    others = [
        b"no key: s3cret",
        KEY.private_bytes(pem, pkcs8, BestAvailableEncryption(b"s3cret")),
        generate_private_key(SECP256R1()).private_bytes(pem, pkcs8, NoEncryption()),
    ]
    for content in others:
        file.write_bytes(content)
        for read in (read_private_key, read_public_key):
            with pytest.raises(InputError, match="expected an Ed25519") as caught:
                read(file)
            assert "s3cret" not in str(caught.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_public_key(tmp_path / "none")


@pytest.mark.slow
def test_the_command_signs_and_verifies(samples: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private, public, out = tmp_path / "private.pem", tmp_path / "public.pem", tmp_path / "out.zip"
    private.write_bytes(KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    sample = str(samples / "divergence.tgz")
    assert run_command(["evidence", sample, "--out", str(out), "--sign", str(private)]) == 0
    digest = capsys.readouterr().out.split()[-1]
    verify = ["evidence", "--verify", str(out)]
    assert run_command([*verify, "--expect", digest, "--key", str(public)]) == 0
    assert "the key signed it" in capsys.readouterr().out
    assert run_command([*verify, "--expect", "0" * 64]) == 1
    assert run_command([*verify, "--expect", "x"]) == 2
    assert run_command([*verify, "--key", str(private)]) == 2
    assert run_command(["evidence", sample, "--out", str(out), "--key", str(public)]) == 2
    with zipfile.ZipFile(out) as zipped:
        (picture,) = [zipped.read(name) for name in zipped.namelist() if name.endswith("/picture.svg")]
    assert picture.startswith(b"<svg ")
    assert private.read_text().splitlines()[1] not in str(_members(out))
