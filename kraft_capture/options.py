"""The command line: its options, and the store, log dirs and state folder that they name."""

from __future__ import annotations

import argparse
import os
import re
import urllib.parse
from pathlib import Path

from kraft_capture import __version__
from kraft_capture.broker_disks import PARTITIONS_MAX
from kraft_capture.clocks import StoreClock
from kraft_capture.credentials import CredentialChain
from kraft_capture.errors import UsageError
from kraft_capture.http_requests import HttpClient, Pace
from kraft_capture.log_dirs import log_dirs_in
from kraft_capture.s3_store import S3Store, s3_place
from kraft_capture.stores import FolderStore, HttpStore, PipeStore, Store

_EPILOG = """examples:
  kraft-capture --config /etc/kafka/server.properties --to s3://captures/kraft
  kraft-capture --log-dirs /var/lib/kafka --to /mnt/captures --once
  kraft-capture --tar incident.tgz --log-dirs /var/lib/kafka kafka-1 kafka-2 kafka-3

exit codes: 0 everything is in the store; 1 something is not in the store; 2 wrong usage; 3 something is unreadable
"""


def argument_parser() -> argparse.ArgumentParser:
    """Every option, with its help."""
    parser = argparse.ArgumentParser(
        prog="kraft-capture",
        description="Copy the KRaft metadata log of this host into a store. kraft-capture never writes to a log dir.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("hosts", nargs="*", metavar="HOST", help="with --tar: copy from these hosts by ssh, not from this one")
    add("--version", action="version", version=f"kraft-capture {__version__}")
    source = parser.add_argument_group("what to read")
    source.add_argument("--log-dirs", metavar="DIR,DIR", action="append", help="log.dirs of the node; repeatable")
    source.add_argument(
        "--config",
        metavar="FILE",
        help="server.properties of the node, which names its log dirs; its voters, roles and timeouts are copied too, "
        "never a password",
    )
    source.add_argument("--no-config-copy", action="store_true", help="copy nothing of the --config file")
    # What a remote run is told by the one that starts it: the file names no log dirs then, and may be missing.
    source.add_argument("--config-copy", metavar="FILE", help=argparse.SUPPRESS)
    source.add_argument(
        "--partitions",
        metavar="N",
        type=_count,
        default=PARTITIONS_MAX,
        help="on a broker: copy the leader epochs and topic ids of at most N partitions, never their records; 0 copies "
        f"none (default: {PARTITIONS_MAX})",
    )
    target = parser.add_argument_group("where to")
    target.add_argument(
        "--to", metavar="URI", help="copy to a folder, s3://BUCKET/PREFIX, https://…, or any URI with --pipe-to"
    )
    target.add_argument(
        "--pipe-to",
        metavar="CMD",
        help="send each object to the stdin of this command; {uri} stands for the object's name",
    )
    target.add_argument(
        "--state",
        metavar="DIR",
        help="keep state in this folder (default: $STATE_DIRECTORY or ~/.local/state/kraft-capture)",
    )
    target.add_argument("--region", help="region of the bucket (default: $AWS_REGION)")
    target.add_argument(
        "--endpoint-url", metavar="URL", help="endpoint of an S3-compatible store (default: $AWS_ENDPOINT_URL)"
    )
    target.add_argument(
        "--kms-key", metavar="ARN", help="encrypt by SSE-KMS with this key; `default` is the key of the bucket"
    )
    target.add_argument(
        "--headers-file", metavar="FILE", help="for https://…: file of headers, one 'Name: value' per line"
    )
    target.add_argument(
        "--ca-bundle", metavar="FILE", help="trust these certificates (default: $AWS_CA_BUNDLE, then the system's)"
    )
    when = parser.add_argument_group("when")
    when.add_argument("--once", action="store_true", help="read twice, 10 s apart, send everything, and exit")
    when.add_argument(
        "--every", metavar="S", type=_seconds, default=5.0, help="read new batches every S seconds (default: 5)"
    )
    when.add_argument(
        "--ship-every", metavar="S", type=_seconds, default=900.0, help="send at least every S seconds (default: 900)"
    )
    when.add_argument(
        "--durable",
        action="store_true",
        help="call fdatasync on the log, so that its batches count as on disk at once, not after 10 s",
    )
    limits = parser.add_argument_group("limits and figures")
    limits.add_argument("--max-mbps", metavar="N", type=_seconds, help="send at most N megabits per second")
    limits.add_argument(
        "--timeout",
        metavar="S",
        type=_seconds,
        default=30.0,
        help="limit for a request or a command, in seconds (default: 30)",
    )
    limits.add_argument("--full-priority", action="store_true", help="run at normal CPU and I/O priority")
    limits.add_argument("--metrics", metavar="FILE", help="after each pass, write FILE.prom for the node exporter")
    tar = parser.add_argument_group("one incident")
    tar.add_argument(
        "--tar", metavar="FILE", help="write one archive for `kraft-audit check` and exit; `-` writes to stdout"
    )
    tar.add_argument("--ssh", metavar="CMD", default="ssh -o BatchMode=yes", help="command that reaches a HOST")
    tar.add_argument(
        "--remote-python",
        metavar="CMD",
        default="python3",
        help="Python on the HOST, for example 'sudo -n -u kafka python3'",
    )
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text}: expected a number above 0")
    return value


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text}: expected a number of partitions, or 0")
    return int(text)


def log_dirs_of(options: argparse.Namespace) -> list[str]:
    """The log dirs to search, in their order."""
    named = [part.strip() for value in options.log_dirs or [] for part in value.split(",") if part.strip()]
    if options.config:
        named += log_dirs_in(options.config)
    if not named:
        raise UsageError("no log dirs: name them with --log-dirs or --config")
    return list(dict.fromkeys(os.path.abspath(name) for name in named))  # noqa: PTH100


def configuration_file_of(options: argparse.Namespace) -> str | None:
    """The configuration to copy with a node's log; None where there is none, or it is not wanted."""
    file: str | None = options.config_copy or options.config
    return None if options.no_config_copy else file


def state_folder_of(options: argparse.Namespace) -> Path:
    """Where the copier keeps its state."""
    named = options.state or os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if named:
        return Path(named)
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")  # noqa: PTH111
    return Path(base) / "kraft-capture"


def require_apart(folder: Path, log_dirs: list[str], what: str) -> None:
    """Raises UsageError where something would be written below a log dir."""
    resolved = os.path.realpath(folder)
    for log_dir in log_dirs:
        if os.path.commonpath([resolved, os.path.realpath(log_dir)]) == os.path.realpath(log_dir):
            raise UsageError(
                f"{what} {folder} lies in the log dir {log_dir}, which is only read: choose a folder elsewhere"
            )


def make_store(options: argparse.Namespace) -> tuple[Store, str]:
    """(the store, the destination without what could be secret); raises UsageError."""
    if not options.to:
        raise UsageError("no destination: name one with --to, or write an archive with --tar")
    to = str(options.to)
    scheme = match[1].lower() if (match := re.match(r"([a-z][a-z0-9+.-]*)://", to, re.IGNORECASE)) else ""
    if options.pipe_to:
        if "{uri}" not in options.pipe_to:
            raise UsageError("--pipe-to: the command must contain {uri}, which becomes the name of the object")
        return PipeStore(to, options.pipe_to, options.timeout), to
    if scheme in ("", "file"):
        folder = Path(urllib.parse.unquote(to[len("file://") :]) if scheme else to)
        if not folder.is_absolute() and scheme:
            raise UsageError("--to: a file:// URI needs an absolute path")
        return FolderStore(folder), os.path.abspath(folder)  # noqa: PTH100
    client = HttpClient(
        StoreClock(),
        ca_bundle=options.ca_bundle or os.environ.get("AWS_CA_BUNDLE") or None,
        timeout_s=options.timeout,
        pace=Pace(options.max_mbps),
    )
    if scheme == "s3":
        place = s3_place(to, options.region, options.endpoint_url)
        chain = CredentialChain(client, place.region)
        return S3Store(place, client, chain, _encryption(options.kms_key)), to
    if scheme in ("http", "https"):
        return HttpStore(to, client, _headers(options.headers_file)), to.partition("?")[0]
    raise UsageError(f"--to: {scheme}:// needs --pipe-to; a folder, s3:// and https:// do not")


def _encryption(key: str | None) -> dict[str, str]:
    if not key:
        return {}
    headers = {"x-amz-server-side-encryption": "aws:kms"}
    if key != "default":
        headers["x-amz-server-side-encryption-aws-kms-key-id"] = key
    return headers


def _headers(file: str | None) -> dict[str, str]:
    if not file:
        return {}
    try:
        lines = Path(file).read_text(encoding="latin-1").splitlines()
    except OSError as error:
        raise UsageError(f"--headers-file {file}: {error.strerror}") from None
    pairs = [line.partition(":") for line in lines if line.strip()]
    if any(not colon or not re.fullmatch(r"[A-Za-z0-9-]+", name) for name, colon, _ in pairs):
        raise UsageError(f"--headers-file {file}: expected lines of the form Name: value")
    return {name: value.strip() for name, _, value in pairs}
