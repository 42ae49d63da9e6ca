"""Shows whether every command prints the same bytes before and after a change of the code.

`python scripts/compare_outputs.py record --code DIR --inputs SAMPLES --out BEFORE` runs the commands of the code in DIR
over all samples and simulated incidents; `compare BEFORE AFTER` shows what differs between two recordings, and exits 1
where anything does. With `--lake` a recording also fills a lake by Spark, and has the rows of its tables.

Clock, redaction key, time zone, width, paths and hash seed are the same in every recording.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import gc
import gzip
import hashlib
import importlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
import tomllib
import tty
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice, product
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Final

PROGRAM: Final = "kraft-audit"
INDEX: Final = "index.json"
NOW_S: Final = 1_798_761_600  # 2027-01-01, later than every sample
FILES: Final = {  # beside the samples, where commands run
    "key": "5a" * 32,
    "conf/rules.yaml": "KP012: {max_changes_an_hour: 1}\nKQ016: {max_epochs_an_hour: 2}\nKV013: {max_lag_records: 1}\n",
    "conf/waivers.yaml": """waivers:
  - {rule: KB003, subject: "controller *", who: platform team, why: a network of their own, until: 2027-06-30}
  - {rule: weak-durability, subject: "topic *", who: observability, why: it is cheaper, until: 2026-01-31}""",
    "clock/sitecustomize.py": f"import time\ntime.time, time.time_ns = lambda: {NOW_S}.0, lambda: {NOW_S}{'0' * 9}\n",
    "out/empty": "",
}
OF_THE_MACHINE: Final = re.compile(rb"kraft-audit: compiling the [^\n]*\n|[\d.]+ GB free|mode 0700, \d+ files")
OF_A_LAKE: Final = re.compile(
    OF_THE_MACHINE.pattern + rb"|\(\d+\.\d s\)|\"seconds\": [^}]*|\nseconds    [^\n]*"
    rb"|[\d,]+ bytes|\"size_bytes\w*\":\d+|[\d: -]+ UTC(?=</td></tr>)"
)
"""What depends on the state of the machine and is left out; of a lake also times that passed, and sizes."""
SPELLINGS: Final = (("--output", "--format"), ("--output", "-o"), ("--out", "-o"))  # old and new, tried in turn
OWN_PROCESS: Final = frozenset(("doctor", "run", "lake"))  # import Spark

# A template a line; [a|b] stands for a line with each, {path} for a sample and {name} for its name in file names.
ALL: Final = "[table|json|jsonl|csv]"
JUDGED: Final = "--settings conf/rules.yaml --waivers conf/waivers.yaml"
ON_NODES: Final = """
[dump|state|quorum|check --all] {path} --output json
[quorum|timeline|check --all|dump --format kafka|partitions --output csv] {path}
"""
ON_MORE: Final = f"""{ON_NODES}
[check --full|quorum --voters|quorum --diverge|recover-plan|whatif --lose 11,12] {{path}}
[timeline|quorum --diverge|quorum --voters|recover-plan] {{path}} --output jsonl
[evidence --out out/{{name}}.zip|report --format openmetrics --out out/{{name}}.prom] {{path}}
"""
ON_EACH: Final = f"""
[dump|quorum|quorum --voters|partitions|quorum --diverge|timeline|recover-plan] {{path}} --output {ALL}
[check|check --all|check --incidents] {{path}} --output {ALL}
[whatif --lose 11|diff --from 20] {{path}} --output {ALL}
[state|state --at committed|state --at 25|check {JUDGED}] {{path}} --output [table|json]
state {{path}} --only [brokers|controllers|topics|partitions|configs|features|security|voters] --output [jsonl|csv]
dump {{path}} --table [batches|captures|node_cards|files|decode_errors] --output {ALL}
dump {{path}} [--format kafka|--format kafka --reveal-secrets|--format kafka --node 2|--from 10 --to 40 --output csv]
dump {{path}} [--reveal-secrets|--node 1 --file *.log|--type PartitionChangeRecord --type leader-change] --output jsonl
check {{path}} [--output sarif|--full|--all --full|--fail-on never|--fail-on low|--rule KP001|--rule voter-behind]
[partitions --describe|partitions --describe --at committed|quorum --status --replication|quorum --replication] {{path}}
[check --default min.insync.replicas=3|whatif --lose 11,12|whatif --lose 12 --rack r1 --all|quorum --status] {{path}}
[diff --from 5 --to committed --only partitions|timeline --from 20 --to 60] {{path}} --output [table|jsonl]
evidence {{path}} --out out/{{name}}.zip
evidence --verify out/{{name}}.zip
report {{path}} --out out/{{name}}
report {{path}} --format [csv|parquet|openmetrics|csv {JUDGED}] --out out/{{name}}-report
"""
ON_TERMINAL: Final = """
[check|check --full|check --all|quorum|quorum --status|quorum --voters|quorum --diverge|state|partitions] {path}
[recover-plan|timeline] {path}
[check --incidents|check --output json|quorum --output json|dump|dump --table files] {path}
[diff --from 20|whatif --lose 11,12] {path}
"""
COMMANDS: Final = "check|rules|whatif|recover-plan|evidence|report|timeline|quorum|state|diff|partitions|dump|simulate"
HELPS: Final = f"""
[--help|rules|simulate list|rules last-replica-standing|rules KQ001|rules KP999|rules LAST-REPLICA]
[{COMMANDS}|rescue|run|lake|lake tables|lake quality|lake export|lake maintain|lake register|doctor] --help
"""
ALONE: Final = f"""
[{COMMANDS}|nonsense] [none --nonsense|]
[check|quorum|dump|timeline|state|quorum --diverge] [missing|samples/README.md|samples/elr/oracle-files|conf]
[-h|--version|rules --output json|rules --output csv]
doctor --completion [bash|zsh|fish|nonsense]
simulate [nonsense|last-replica-standin|healthy|healthy --clusters 2 --out out/refused]
simulate [fleet --clusters 2 --partitions 20 --seed 3 --out sim/fleet-3|random --seed 2 --out sim/random-2]
check sim/[fleet-3|random-2] --output [table|jsonl]
check samples/elr [--rule KP99|--rule KP001 --output nonsense|--fail-on nonsense|--default min.isr=2]
[check|state|quorum|timeline|evidence --out out/x.zip|report --out out/y] samples/elr --capture [06|29-stopped]
[state|quorum|timeline|partitions] samples/divergence --capture 11-dead-node-diverged --output json
quorum [--voters|--diverge] samples/divergence --capture 11-dead-node-diverged --output json
dump samples/elr [--from 40 --to 10|--type nonsense|--node 77|--file none|--from x|--output xml|--table none]
[dump --format kafka --output json|dump --format kafka --from 3|diff --to 4|diff --from committed --to 20] samples/elr
state samples/elr [--at x|--at 99999|--at 2026-01-01T00:00:00Z|--output csv|--only none|--at 2020-01-01|--at -1]
[diff --from 50 --to 20|evidence|partitions --topic none|partitions --topic elr-m1|partitions --at 30] samples/elr
[whatif --lose x|whatif --rack none|whatif --lose 11 --lose 12 --rack r2|quorum --status --output json] samples/elr
[evidence --out samples/elr/x.zip|report --out samples/elr/site|report --out conf|timeline --from 9999] samples/elr
[check --settings conf/waivers.yaml|check --waivers conf/rules.yaml|check --waivers none|timeline --to 3] samples/elr
evidence --verify [missing|samples/README.md]
doctor [samples/elr|samples/torn-write|missing] --output [table|jsonl]
[lake tables|lake export|lake quality|lake maintain|run] [missing|samples/elr --output json|]
"""
ON_LAKE: Final = f"""
run fleet/fleet.yaml --lake lake --output json
lake tables lake --rows 5 --output [table|json]
[check lake|report lake --out out/lake|lake export lake --cluster elr --out out/elr]
[report lake --format openmetrics --out out/lake.prom|report lake --format csv --out out/lake.csv]
lake export lake --cluster divergence --from 20 --to 40 --output json --out out/divergence
lake quality lake --docs= --output {ALL}
lake maintain lake --dry-run --output json
run fleet/fleet.yaml --lake lake
"""


@dataclass(frozen=True, slots=True)
class Call:
    """A command line; `on_terminal` gives it a terminal with colours."""

    words: tuple[str, ...]
    on_terminal: bool = False

    @property
    def name(self) -> str:
        return shlex.join([PROGRAM, *self.words]) + " (on a terminal)" * self.on_terminal


def calls_of(templates: str, *, on_terminal: bool = False, **values: str) -> list[Call]:
    """The calls of templates, for each combination of their alternatives."""
    calls = []
    for template in filter(None, templates.splitlines()):
        pieces = re.split(r"\[([^\[\]]*)\]", template.format(**values))
        choices = [piece.split("|") if number % 2 else [piece] for number, piece in enumerate(pieces)]
        calls += [Call(tuple(shlex.split("".join(parts))), on_terminal) for parts in product(*choices)]
    return calls


def groups_of(code: Path) -> Iterator[Sequence[Call]]:
    """Everything to run; calls of a group need what those before them left."""
    logs = sorted(Path("samples").rglob("__cluster_metadata-0"))
    nodes = {log.parent for log in logs if log.parent.name.startswith("node-")}
    folders = {above for log in logs for above in log.parents} - {Path()}
    archives = {file for file in Path("samples").iterdir() if file.suffix in (".tgz", ".zip", ".tar")}
    for sample in sorted(folders | archives):
        is_whole = sample in folders and len(sample.parts) == 2
        templates = ON_NODES if sample in nodes else ON_EACH if is_whole else ON_MORE
        yield calls_of(templates, path=str(sample), name="-".join(sample.parts))
        if is_whole:
            yield calls_of(ON_TERMINAL, on_terminal=True, path=str(sample))
    for scenario in (line.split(" ")[0] for line in printed(code, "simulate", "list")):
        calls = calls_of(ON_MORE, path=f"sim/{scenario}", name=scenario)
        yield [Call(("simulate", scenario, "--out", f"sim/{scenario}")), *calls]
    explained = [Call(("rules", json.loads(line)["rule"])) for line in printed(code, "rules", "--output", "jsonl")]
    yield [Call(()), *calls_of(ALONE), *explained]
    yield [*calls_of(HELPS), *calls_of(HELPS, on_terminal=True)]


def prepare(place: Path, inputs: Path, code: Path) -> None:
    """Fills the folder where commands run, and gives this process and those that it starts the same environment."""
    shutil.copytree(inputs, place / "samples", copy_function=shutil.copyfile)
    for path in (place / "samples").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (NOW_S - 3600, NOW_S - 3600))
    for name, text in FILES.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text)
    (place / "key").chmod(0o600)
    (place / "fleet").mkdir()
    shutil.copy(inputs.parent / "conf" / "fleet.yaml", place / "fleet")
    os.environ.update(LC_ALL="C.UTF-8", LINES="40", NO_COLOR="1", TERM="xterm", TZ="UTC", PYTHONHASHSEED="0")
    os.environ.update(KRAFT_AUDIT_REDACTION_KEY_FILE=str(place / "key"), PYTHONPATH=f"{place / 'clock'}:{code}")
    os.environ.update(PYTHONPYCACHEPREFIX=str(place / "pycache"), PYTHONDONTWRITEBYTECODE="", COLUMNS="120")
    os.chdir(place)


def record(code: Path, inputs: Path, out: Path, *, only: str, with_lake: bool) -> int:
    """Runs everything, and leaves its index and all texts in `out`."""
    started = time.monotonic()
    if out.exists() and any(out.iterdir()) and not (out / "objects").exists():
        raise SystemExit(f"{out}: expected a new or empty folder, or an earlier recording")
    shutil.rmtree(out, ignore_errors=True)
    (out / "objects").mkdir(parents=True)
    run = functools.partial(run_calls, code, out)
    index: dict[str, dict[str, str]] = {}
    with (
        TemporaryDirectory(prefix="kraft-compare-") as place,
        ProcessPoolExecutor(2, get_context("spawn")) as processes,
    ):
        prepare(Path(place), inputs, code)
        groups = [[call for call in group if only in call.name] for group in groups_of(code)]
        for theirs in processes.map(run, groups):
            index |= theirs
            if sys.stderr.isatty():
                print(f"{len(index)} of {sum(map(len, groups))} calls", end="\r", file=sys.stderr)
        if with_lake:
            index |= run(calls_of(ON_LAKE)) | dict(lake_rows(Path("lake"), out))
    (out / INDEX).write_text(json.dumps([only, index], indent=1, sort_keys=True))
    print(f"{len(index)} calls in {time.monotonic() - started:.0f} s, in {out}")
    return 0


def lake_rows(lake: Path, out: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Each table's rows as sorted lines of JSON, without the column of random names."""
    from deltalake import DeltaTable

    for folder in sorted(log.parent for log in lake.rglob("_delta_log")):
        table = DeltaTable(folder).to_pyarrow_table()
        rows = table.drop_columns([name for name in table.column_names if name == "data_file"]).to_pylist()
        lines = sorted(json.dumps(row, default=str, sort_keys=True) for row in rows)
        yield f"lake rows of {folder.name}", {"stdout": store(out, "\n".join(lines).encode())}


def run_calls(code: Path, out: Path, calls: Sequence[Call]) -> dict[str, dict[str, str]]:
    """Makes calls in their order; the result is by their names."""
    return {call.name: recorded(code, out, call) for call in calls}


def recorded(code: Path, out: Path, call: Call) -> dict[str, str]:
    """Makes a call, with the options of the code; puts what came of it into the recording, and gives the hashes."""
    for old, new in [("", ""), *SPELLINGS]:
        words = [new if word == old else word for word in call.words]
        is_alone = not call.on_terminal and not OWN_PROCESS.isdisjoint(words)
        ending, stdout, stderr = in_own(code, words) if is_alone else in_this(code, words, call.on_terminal)
        if ending != 2 or b"o such option" not in stderr + stdout:
            break
    is_of_lake = "lake" in call.words
    clean = functools.partial((OF_A_LAKE if is_of_lake else OF_THE_MACHINE).sub, b"")
    contents = {"exit code": b"%d" % ending, "stdout": clean(stdout), "stderr": clean(stderr)}
    target = Path(call.words[call.words.index("--out") + 1]) if "--out" in call.words[:-1] else Path("none")
    for file in filter(Path.is_file, [target, *sorted(target.rglob("*"))]):
        lines = file.read_bytes().splitlines(keepends=True)
        contents[str(file)] = clean(b"".join(sorted(lines) if is_of_lake and file.suffix == ".csv" else lines))
    if target.is_file() and zipfile.is_zipfile(target):
        with zipfile.ZipFile(target) as pack:
            contents |= {f"{target}!{name}": pack.read(name) for name in pack.namelist()}
    return {part: store(out, content) for part, content in contents.items()}


@functools.cache
def program_of(code: Path) -> tuple[str, str, Callable[[], None]]:
    """Module and function of the program, and the function itself."""
    script = tomllib.loads((code / "pyproject.toml").read_text())["project"]["scripts"][PROGRAM]
    module, _, function = script.partition(":")
    sys.path[:1] = [str(code)]
    program_module = importlib.import_module(module)
    if code not in Path(str(program_module.__file__)).resolve().parents:
        raise SystemExit(f"{program_module.__file__}: expected code below {code}")
    import typer.main

    typer.main.get_command = functools.cache(typer.main.get_command)  # takes longer than most commands
    return module, function, getattr(program_module, function)


def printed(code: Path, *words: str) -> list[str]:
    return in_own(code, list(words))[1].decode().splitlines()


def in_own(code: Path, words: list[str]) -> tuple[int, bytes, bytes]:
    module, function, _ = program_of(code)
    command = [sys.executable, "-P", "-c", f"from {module} import {function}; {function}()", *words]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr


def copy_screen(screen: int, file: IO[bytes]) -> None:
    """Copies what is written to a terminal, until nothing can write there any more."""
    with contextlib.suppress(OSError):
        while piece := os.read(screen, 65536):
            file.write(piece)


def in_this(code: Path, words: list[str], on_terminal: bool) -> tuple[int, bytes, bytes]:
    """Exit code and what was printed of a call in this process; errors stand in the output of a terminal."""
    files, (screen, terminal) = [TemporaryFile(), TemporaryFile()], os.openpty()  # noqa: SIM115
    tty.setraw(terminal)
    reader = threading.Thread(target=copy_screen, args=(screen, files[0]))
    reader.start()
    program, ending = program_of(code)[2], 0
    finders, thresholds, streams, saved = (
        sys.meta_path[:],
        gc.get_threshold(),
        (sys.stdout, sys.stderr),
        (os.dup(1), os.dup(2)),
    )
    os.environ.update(NO_COLOR="" if on_terminal else "1", COLUMNS="100" if on_terminal else "0")
    for number, file in enumerate(files, start=1):
        os.dup2(terminal if on_terminal else file.fileno(), number)
    sys.argv = [PROGRAM, *words]
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), errors="backslashreplace", line_buffering=True)
    try:
        program()
    except SystemExit as left:
        ending = int(left.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    sys.meta_path[:], (sys.stdout, sys.stderr) = finders, streams
    gc.set_threshold(*thresholds)
    for number, descriptor in enumerate(saved, start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.close(terminal)
    reader.join()
    os.close(screen)
    for file in files:
        file.seek(0)
    return ending, files[0].read(), files[1].read()


def store(out: Path, content: bytes) -> str:
    """Puts bytes into a recording, each content once; its hash is its name. The folder's name is no part of it."""
    content = content.replace(Path.cwd().name.encode(), b"PLACE")
    digest = hashlib.sha256(content).hexdigest()
    file = out / "objects" / f"{digest}.gz"
    if not file.exists():
        file.write_bytes(gzip.compress(content, 1, mtime=0))
    return digest


def stored(out: Path, digest: str | None) -> bytes:
    """The bytes of a hash; none of none."""
    return gzip.decompress((out / "objects" / f"{digest}.gz").read_bytes()) if digest else b""


def compare(before: Path, after: Path, shown_max: int) -> int:
    """Shows what differs; exit code 1 where anything does. Where a recording has not all calls, those are compared."""
    (old_text, old), (new_text, new) = (json.loads((folder / INDEX).read_text()) for folder in (before, after))
    names = [name for name in sorted(old.keys() | new.keys()) if old_text in name and new_text in name]
    differing = [
        (name, part, here.get(part), there.get(part))
        for name, here, there in ((name, old.get(name, {}), new.get(name, {})) for name in names)
        for part in sorted(here.keys() | there.keys())
        if here.get(part) != there.get(part)
    ]
    for name, part, here, there in differing[:shown_max]:
        print(f"== {name}: {part}", *changed_lines(stored(before, here), stored(after, there)), sep="\n")
    kinds = Counter((f"{name} ".split(" ")[1], Path(part).suffix or part) for name, part, _, _ in differing)
    for (command, part), count in kinds.most_common():
        print(f"{count:>6}  {command} {part}")
    print(f"{len({name for name, *_ in differing})} of {len(names)} calls differ")
    return 1 if differing or not names else 0


def changed_lines(before: bytes, after: bytes) -> list[str]:
    """The first lines of a unified diff; long JSON is broken into lines for it."""
    try:
        texts = [content.decode().replace(',"', ',\n"').splitlines() for content in (before, after)]
    except UnicodeDecodeError:
        return [f"no text: {len(before)} bytes -> {len(after)}"]
    pairs = enumerate(zip(*texts, strict=False))
    start = max(next((at for at, (here, there) in pairs if here != there), min(map(len, texts))) - 3, 0)
    here, there = (lines[start : start + 500] for lines in texts)
    diff = difflib.unified_diff(here, there, "before", "after", lineterm="", n=2)
    return [line[:300] for line in islice(diff, 20)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    recording = actions.add_parser("record", help="run everything, and write down what it gave")
    recording.add_argument("--code", type=Path, required=True, help="folder with pyproject.toml and the packages")
    recording.add_argument("--inputs", type=Path, required=True, help="the folder samples of a checkout")
    recording.add_argument("--out", type=Path, required=True, help="where the recording goes")
    recording.add_argument("--only", default="", metavar="TEXT", help="only command lines with this text")
    recording.add_argument("--lake", action="store_true", help="fill a lake by Spark, too")
    comparing = actions.add_parser("compare", help="show what differs between two recordings")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--shown", type=int, default=20, help="how many differences to show")
    given = parser.parse_args()
    if given.action == "compare":
        return compare(given.before, given.after, given.shown)
    folders = given.code.resolve(), given.inputs.resolve(), given.out.resolve()
    return record(*folders, only=given.only, with_lake=given.lake)


if __name__ == "__main__":
    sys.exit(main())
