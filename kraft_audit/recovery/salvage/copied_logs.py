"""Whether a folder holds what a broker's disk holds of lost records, so that the broker may truncate them.

The folder is one that `salvage` wrote, or copies of the broker's log dirs.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from kraft_audit.capture.path_plans import plan_path
from kraft_audit.losses.replica_disks import ReplicaLog, ReplicaLogs, replica_logs
from kraft_audit.recovery.may_i.permission import CopiedLogs
from kraft_audit.recovery.salvage.held_batches import PIECE_BYTES
from kraft_audit.recovery.salvage.held_logs import CopyState, copies_of
from kraft_audit.recovery.salvage.manifest import FORMAT, SALVAGE_MANIFEST
from kraft_audit.rules.cluster_history import ClusterHistory
from kraft_audit.rules.columns.loss_holders import HolderState, Loss, LossHolder, losses
from kraft_codec.errors import InputError
from kraft_codec.storage.opener import open_storage

MANIFEST_BYTES_MAX: Final = 1 << 30


def copied_logs(history: ClusterHistory, broker: int, path: str) -> CopiedLogs:
    """What of the broker's lost records a folder lacks. Raises InputError where it is neither."""
    held = [(loss, holder) for loss in losses(history) for holder in loss.intact if holder.broker_id == broker]
    wanted = {(loss.event.topic, loss.event.partition) for loss, _ in held}
    ends = _Ends(history.read_disks(wanted, {}) if wanted else {})
    manifest = _manifest(path)
    if manifest is not None:
        of_manifest = _OfManifest(Path(path), manifest, history)
        reasons = [(loss, of_manifest.lacks(loss, holder, ends.of(loss, holder))) for loss, holder in held]
    else:
        reasons = _lacking_in_dirs(history.cluster_id, held, path, wanted, ends)
    return CopiedLogs(path, tuple((loss.event.key, reason) for loss, reason in reasons if reason is not None))


class _Ends:
    """Where the logs of holders end, as far as the disks below PATH show it."""

    def __init__(self, logs: ReplicaLogs) -> None:
        self._logs = logs

    def of(self, loss: Loss, holder: LossHolder) -> int | None:
        event = loss.event
        ends = [
            log.log_end_offset
            for log in self._logs.get((event.topic, event.partition), ())
            if log.broker_id == holder.broker_id
            and log.topic_id == event.topic_id
            and log.directory_id in (None, holder.directory_id or log.directory_id)
            and log.log_end_offset is not None
        ]
        return max(ends, default=None)


def _lacking_in_dirs(
    cluster_id: str,
    held: Sequence[tuple[Loss, LossHolder]],
    path: str,
    wanted: Collection[tuple[str, int]],
    ends: _Ends,
) -> list[tuple[Loss, str | None]]:
    with open_storage(path) as storage:
        plans = plan_path(path, open_storage=lambda _: nullcontext(storage), captured_at_ms=time.time_ns() // 1_000_000)
        copied: dict[tuple[str, int], list[ReplicaLog]] = {}
        for plan in plans:
            if plan.cluster_id == cluster_id:
                for place, logs in replica_logs(storage, plan, wanted, every_capture=True).items():
                    copied.setdefault(place, []).extend(logs)
        reasons: list[tuple[Loss, str | None]] = []
        for loss, holder in held:
            event = loss.event
            own = [log for log in copied.get((event.topic, event.partition), ()) if log.topic_id == event.topic_id]
            state, its = copies_of(storage, event, holder, own)
            reasons.append((loss, _lacks(loss, holder, state, its, ends.of(loss, holder))))
    return reasons


def _lacks(
    loss: Loss, holder: LossHolder, state: CopyState, its: Sequence[ReplicaLog], known_end: int | None
) -> str | None:
    name = loss.event.name
    if state is not CopyState.CAPTURED:
        return f"it holds no segments of {name} from before broker {holder.broker_id} followed another leader"
    end = max((log.log_end_offset or 0 for log in its), default=0)
    if known_end is None:
        is_clean = holder.now is HolderState.STOPPED and any(log.is_clean for log in its)
        return None if is_clean else f"nothing below PATH shows whether {name} ends at {end} on the broker too"
    return None if end >= known_end else f"its {name} ends at {end}, that of the broker at {known_end}"


def _manifest(path: str) -> Mapping[str, Any] | None:
    """The manifest of a folder that `salvage` wrote; None where it is none. Raises InputError."""
    file = Path(path) / SALVAGE_MANIFEST
    try:
        if not file.is_file():
            return None
        if file.stat().st_size > MANIFEST_BYTES_MAX:
            raise InputError(str(file), f"more than {MANIFEST_BYTES_MAX} bytes")
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(str(file), problem.strerror or str(problem)) from None
    except (ValueError, RecursionError):
        raise InputError(str(file), "no JSON as `salvage` writes it") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(str(file), f"not what `salvage` writes: expected the format {FORMAT!r}")
    return document


class _OfManifest:
    """What a salvaged folder says that it holds, with its files checked against their hashes."""

    def __init__(self, folder: Path, manifest: Mapping[str, Any], history: ClusterHistory) -> None:
        self._folder = folder
        self._is_other = manifest.get("cluster_id") != history.cluster_id
        self._partitions = {
            (each["topic_id"], each["partition"]): each for each in _checked(folder, manifest.get("partitions"))
        }
        self._verified: dict[tuple[str, int], str | None] = {}

    def lacks(self, loss: Loss, holder: LossHolder, known_end: int | None) -> str | None:
        """Why the folder does not hold what a holder has of a loss; None where it does."""
        event = loss.event
        place = (event.topic_id, event.partition)
        partition = None if self._is_other else self._partitions.get(place)
        its = [] if partition is None else partition["losses"]
        saved = next((each for each in its if each["leader_epoch"] == event.leader_epoch), None)
        if partition is None or saved is None:
            return f"it has nothing of {event.name} and leader epoch {event.leader_epoch}"
        captured = [each for each in saved["holders"] if each["copy"] == CopyState.CAPTURED]
        is_whole = any(each["is_witness"] and each["state"] == HolderState.STOPPED for each in captured)
        if not is_whole and not any(each["broker_id"] == holder.broker_id for each in captured):
            return f"its {event.name} was not taken from broker {holder.broker_id}"
        if not all(each["is_covered"] for each in partition["damaged"]):
            return f"its {event.name} has damaged bytes: {SALVAGE_MANIFEST} names them"
        end = max((each["log_end_offset"] or 0 for each in partition["sources"]), default=0)
        if known_end is not None and end < known_end:
            return f"its {event.name} was taken up to {end}, that of the broker ends at {known_end}"
        if place not in self._verified:
            self._verified[place] = _unlike(self._folder, partition["files"])
        return self._verified[place]


def _checked(folder: Path, partitions: Any) -> list[Mapping[str, Any]]:
    """The partitions of a manifest. Raises InputError where one of them lacks what `salvage` writes."""
    try:
        for each in partitions:
            _ = each["topic_id"], each["partition"]
            _ = [(loss["leader_epoch"], loss["holders"]) for loss in each["losses"]]
            _ = [
                (h["copy"], h["is_witness"], h["state"], h["broker_id"]) for ls in each["losses"] for h in ls["holders"]
            ]
            _ = [damaged["is_covered"] for damaged in each["damaged"]]
            _ = [source["log_end_offset"] for source in each["sources"]]
            _ = [(file["name"], file["size_bytes"], file["sha256"]) for file in each["files"]]
    except (TypeError, KeyError):
        raise InputError(str(folder / SALVAGE_MANIFEST), "not as `salvage` writes it") from None
    return list(partitions)


def _unlike(folder: Path, files: Sequence[Mapping[str, Any]]) -> str | None:
    """Why the files are not those that were written; None where they are."""
    for each in files:
        path = folder / str(each["name"])
        try:
            if not path.resolve().is_relative_to(folder.resolve()) or path.stat().st_size != each["size_bytes"]:
                return f"{each['name']} is not as it was written"
            digest = hashlib.sha256()
            with path.open("rb") as file:
                while piece := file.read(PIECE_BYTES):
                    digest.update(piece)
        except OSError:
            return f"{each['name']} cannot be read"
        if digest.hexdigest() != each["sha256"]:
            return f"{each['name']} is not as it was written"
    return None
