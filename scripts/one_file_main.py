"""What `kraft-audit.pyz` runs first: it unpacks the program beside its libraries once, and starts it from there.

No compiled library can be loaded from a zip. So the first run writes everything into a private folder named after the
content, in one rename; later runs find it there. This module is read by any Python 3.7 or newer, so that an older one
can say which it needs, or hand over to a newer one.
"""

import contextlib
import importlib
import json
import lzma
import os
import platform
import shutil
import stat
import sys
import sysconfig
import tempfile
import time
import zipfile

MANIFEST = "manifest.json"
CACHE_VARIABLE = "KRAFT_AUDIT_CACHE"
CHUNK_BYTES = 1 << 20
ABANDONED_S = 3600
UNREADABLE = 3


def main():
    """Run kraft-audit; return its exit code."""
    archive = os.path.dirname(os.path.abspath(__file__))
    with zipfile.ZipFile(archive) as content:
        manifest = json.loads(content.read(MANIFEST).decode("utf-8"))
        version = "%d.%d" % sys.version_info[:2]
        problem = unfit(manifest, version)
        if problem:
            return hand_over(manifest, archive, version, problem)
        name = "kraft-audit-%s-py%s-%s" % (manifest["version"], version, manifest["digests"][version])
        try:
            folder = unpacked(content, manifest, version, name)
        except OSError as error:
            return refuse("cannot unpack: %s. Set %s to a folder of yours." % (error, CACHE_VARIABLE))
    sys.path.insert(0, folder)
    sys.path = [entry for entry in sys.path if entry != archive]
    return importlib.import_module("kraft_audit.commands.cli").main()


def refuse(problem):
    sys.stderr.write("kraft-audit: %s\n" % problem)
    return UNREADABLE


def unfit(manifest, version):
    """Why this Python cannot run the libraries; empty where it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "this file is for Linux on x86-64: install the wheel that ends in -any.whl"
    libc, libc_version = platform.libc_ver()
    if libc != "glibc" or tuple(map(int, libc_version.split(".")[:2])) < tuple(manifest["glibc"]):
        return "this file needs glibc %d.%d or newer" % tuple(manifest["glibc"])
    if version not in manifest["digests"] or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "this file needs Python %s with its GIL, this is %s" % (", ".join(manifest["digests"]), version)
    return ""


def hand_over(manifest, archive, version, problem):
    """Go on in another Python on PATH that the libraries are for, if this one is of another version."""
    if version not in manifest["digests"]:
        for other in reversed(list(manifest["digests"])):
            program = shutil.which("python" + other)
            if program:
                options = ["-I"] if sys.flags.isolated else []
                os.execv(program, [program, *options, archive, *sys.argv[1:]])  # noqa: S606
    return refuse(problem)


def unpacked(content, manifest, version, name):
    """The folder with everything, written now unless an earlier run did. Raises OSError."""
    failure = None
    for base in bases():
        folder = os.path.join(base, name)
        if is_private(folder):
            return folder
        try:
            os.makedirs(base, mode=0o700, exist_ok=True)
            if not is_usable(base):
                continue
            return unpack(content, manifest, version, base, name)
        except OSError as error:
            failure = error
    # Somebody else has the name in the folder for temporary files: use a new one.
    base = tempfile.mkdtemp(prefix="kraft-audit-")
    if not is_usable(base):
        raise failure or OSError("no folder on this machine allows programs to run")
    return unpack(content, manifest, version, base, name)


def bases():
    """Where the folder may be, best first."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        yield os.path.abspath(given)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    home = os.environ.get("HOME", "")
    if os.path.isabs(cache):
        yield os.path.join(cache, "kraft-audit")
    elif os.path.isabs(home) and os.path.isdir(home):
        yield os.path.join(home, ".cache", "kraft-audit")
    yield os.path.join(tempfile.gettempdir(), "kraft-audit-%d" % os.getuid())


def is_private(folder):
    """Whether the folder is there, is ours, and nobody else may write to it."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def is_usable(base):
    """Whether a library in this private folder can be loaded: some systems mount folders without that right."""
    return is_private(base) and not os.statvfs(base).f_flag & getattr(os, "ST_NOEXEC", 0)


def unpack(content, manifest, version, base, name):
    started = time.monotonic()
    for entry in os.listdir(base):  # what killed runs left
        leftover = os.path.join(base, entry)
        if entry.startswith(".unpacking-") and time.time() - os.lstat(leftover).st_mtime > ABANDONED_S:
            shutil.rmtree(leftover, ignore_errors=True)
    folder = os.path.join(base, name)
    temporary = tempfile.mkdtemp(prefix=".unpacking-", dir=base)
    try:
        for group in manifest["groups"]:
            if version in group["versions"]:
                write_group(content, group, version, temporary)
        with contextlib.suppress(OSError):  # where another run was faster, its folder is used
            os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if not is_private(folder):
        raise OSError("%s is not ours alone" % folder)
    seconds = time.monotonic() - started
    sys.stderr.write("kraft-audit: unpacked into %s in %.1f s, once\n" % (folder, seconds))
    return folder


def write_group(content, group, version, folder):
    """Write a group's files: one compressed stream, each file after the other in the manifest's order."""
    with content.open(group["name"]) as packed, lzma.open(packed) as stream:
        for path, size_bytes, versions in group["files"]:
            target = None
            if version in versions:
                target = os.path.join(folder, path)
                os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            copy(stream, size_bytes, target)


def copy(stream, size_bytes, target):
    with open(target or os.devnull, "wb") as file:
        while size_bytes:
            data = stream.read(min(size_bytes, CHUNK_BYTES))
            if not data:
                raise OSError("this file is cut short: copy it again")
            file.write(data)
            size_bytes -= len(data)


if __name__ == "__main__":
    sys.exit(main())
