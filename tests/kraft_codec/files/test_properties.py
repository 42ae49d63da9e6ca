"""meta.properties: Kafka's own files come back byte for byte; Java's reader is the witness for odd ones."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_codec.errors import CodecError, Reason
from kraft_codec.files.properties import (
    MAX_PROPERTIES_BYTES,
    MetaProperties,
    format_meta_properties,
    java_hash_bucket,
    meta_properties,
    parse_meta_properties,
    parse_properties,
    with_entries,
)

TEXT = b"""#
#Fri Nov 20 23:28:06 UTC 2026
node.id=3
directory.id=xV_y8TMF5MnS9I6ei-5QSQ
version=1
cluster.id=1J9o0OHjczjslRjLY5Qr2g
"""


def test_what_kafka_wrote_is_written_back(scenarios: list[Path]) -> None:
    paths = [path for scenario in scenarios for path in scenario.glob("*/node-*/meta.properties*")]
    assert len(paths) > 20
    without_directory = 0
    for path in paths:
        data = path.read_bytes()
        meta = parse_meta_properties(data)
        assert format_meta_properties(meta) == data, path
        # Made from its values alone it is the same file: keys stand in the order of Java's hash table.
        made = meta_properties(
            version=meta.version,
            cluster_id=meta.cluster_id,
            node_id=meta.node_id,
            directory_id=meta.directory_id,
            date=meta.comments[1],
        )
        assert format_meta_properties(made) == data, path
        without_directory += meta.directory_id is None
    assert without_directory, "no file of a release before 3.7"


def test_version_1() -> None:
    meta = parse_meta_properties(TEXT)
    assert (meta.version, meta.cluster_id, meta.node_id, meta.directory_id) == (
        1,
        "1J9o0OHjczjslRjLY5Qr2g",
        3,
        "xV_y8TMF5MnS9I6ei-5QSQ",
    )
    assert meta.comments == ("", "Fri Nov 20 23:28:06 UTC 2026")


def test_version_0_names_a_broker_or_none() -> None:
    meta = parse_meta_properties(b"broker.id=7\nnode.id=9\n")
    assert (meta.version, meta.cluster_id, meta.node_id, meta.directory_id) == (0, None, 7, None)
    assert parse_meta_properties(b"") == MetaProperties(0, None, None, None, ())
    made = meta_properties(version=0, node_id=7, cluster_id="c")
    assert parse_meta_properties(format_meta_properties(made)) == made
    assert b"broker.id=7\n" in format_meta_properties(made)


def test_unknown_keys_and_their_order_are_kept() -> None:
    data = TEXT + b"zone\\ a=b\\:c\\=d \\\\ e\n"
    meta = parse_meta_properties(data)
    assert meta.entries[-1] == ("zone a", "b:c=d \\ e")
    assert format_meta_properties(meta) == data


@pytest.mark.parametrize(
    ("data", "position", "detail"),
    [
        (b"#c\nversion=2\n", 3, "version 2: expected 0 or 1"),
        (b"version=x\n", 0, "version is not an int32"),
        (b"version=1\n", 10, "version 1 without node.id"),
        (b"version=1\nnode.id=1\n", 20, "version 1 without cluster.id"),
        (b"\nversion=1\nnode.id=99999999999\n", 11, "node.id is not an int32"),
        (b"directory.id=tooshort\n", 0, "directory.id is not a uuid"),
        (b"\xc3\xbc=1\ndirectory.id=\n", 5, "directory.id is not a uuid"),
        (b"a=\\u12\n", 0, "malformed"),
    ],
)
def test_what_kafka_refuses_is_refused(data: bytes, position: int, detail: str) -> None:
    with pytest.raises(CodecError, match=detail) as caught:
        parse_meta_properties(data)
    assert (caught.value.reason, caught.value.position) == (Reason.BAD_FILE, position)


def test_a_file_beyond_all_measure_is_refused_unread() -> None:
    with pytest.raises(CodecError) as caught:
        parse_meta_properties(b"#" * (MAX_PROPERTIES_BYTES + 1))
    assert caught.value.reason is Reason.LIMIT


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=8))
def test_any_text_comes_back(values: dict[str, str]) -> None:
    values = {_valid(key): _valid(value) for key, value in values.items() if _valid(key) not in ("version",)}
    entries = tuple(values.items())
    data = format_meta_properties(MetaProperties(0, None, None, None, entries))
    try:
        assert parse_meta_properties(data).entries == entries
    except CodecError:
        assert values.keys() & {"broker.id", "directory.id"}


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_but_a_codec_error(data: bytes) -> None:
    with contextlib.suppress(CodecError):
        parse_meta_properties(data)


JAVA_READER = """
import java.io.*; import java.util.*;
public class Reader {
  static String quote(String text) {
    StringBuilder out = new StringBuilder("\\"");
    for (char c : text.toCharArray()) out.append(String.format("\\\\u%04x", (int) c));
    return out.append("\\"").toString();
  }
  public static void main(String[] paths) throws Exception {
    for (String path : paths) {
      Properties properties = new Properties();
      String written;
      try (InputStream in = new FileInputStream(path)) {
        properties.load(in);
        StringWriter writer = new StringWriter();
        properties.store(writer, null);
        written = writer.toString();
      } catch (IllegalArgumentException error) {
        System.out.println("null");
        continue;
      }
      StringBuilder line = new StringBuilder("[{");
      for (String key : properties.stringPropertyNames())
        line.append(line.length() > 2 ? "," : "").append(quote(key))
            .append(":").append(quote(properties.getProperty(key)));
      System.out.println(line.append("},").append(quote(written)).append("]"));
    }
  }
}
"""

ODD_FILES = [
    TEXT,
    b"a = b\n c:d\n\te f\nlonely\n=empty key\n",
    b"! comment\\\nnot.continued=1\n",
    b"long=one \\\n    two \\\\\\\n  three\\\\\nnext=4\n",
    b"escapes=\\t\\n\\r\\f\\q\\\\\\u0041\\u20ac\n",
    b"a\\=b\\:c\\ d = x\n",
    b"a==b\na2:=b\na3 =\t= b\n",
    b"crlf=1\r\nmac=2\rlast=3",
    b"twice=1\ntwice=2\n",
    b"end=backslash\\",
    b"end=backslash\\\n",
    b"  # indented comment\n   \n\t\n  key  value with spaces  \n",
    b"bad=\\u00g1\n",
    b"bad=\\u00",
    b"broker.id=1\nversion=0\ncluster.id=c\ndirectory.id=Nok0oA7ZsX8FJygWwGlp3A\nzone=z\n",
]


@pytest.mark.kafka
def test_java_reads_the_same_of_odd_files(tmp_path: Path) -> None:
    java = shutil.which("java")
    if java is None:
        pytest.skip("no Java here")
    (tmp_path / "Reader.java").write_text(JAVA_READER)
    paths = []
    for number, data in enumerate(ODD_FILES):
        paths.append(tmp_path / f"{number}.properties")
        paths[-1].write_bytes(data)
    done = subprocess.run(
        [java, str(tmp_path / "Reader.java"), *map(str, paths)], capture_output=True, text=True, check=True, timeout=120
    )
    for data, line in zip(ODD_FILES, done.stdout.splitlines(), strict=True):
        java_read = json.loads(line)
        if java_read is None:
            with pytest.raises(CodecError, match="malformed"):
                parse_meta_properties(data)
            continue
        values, written = java_read
        meta = parse_meta_properties(data)
        assert dict(meta.entries) == values, data
        # Java 17 stores in the order of its hash table, later releases by name; the first line is the date.
        by_hash = sorted(meta.entries, key=lambda entry: java_hash_bucket(entry[0]))
        ours = [
            format_meta_properties(MetaProperties(0, None, None, None, tuple(order))).decode()
            for order in (by_hash, sorted(meta.entries))
        ]
        assert written.partition("\n")[2] in ours, data


def _valid(text: str) -> str:
    return text.encode("utf-16", "replace").decode("utf-16")


def test_a_line_goes_on_after_a_backslash() -> None:
    """As java.util.Properties reads it: blanks before the rest are dropped, a comment does not go on."""
    data = b"version=1\nnode.id=\\\n   7\nclus\\\r\n\tter.id=a\\\\\n# no \\\nmore=x\nlast=y\\"
    meta = parse_meta_properties(data)
    values = {"version": "1", "node.id": "7", "cluster.id": "a\\", "more": "x", "last": "y"}
    assert dict(meta.entries) == values


OWN = (
    b"# ours\nnode.id=1\n\nlisteners=C://:1,\\\n  B://:2\nsuper.users=User:\\u00e9\\\\x;User:b\n"
    b"log.dir : /a\npassword=x\\"
)


def test_changed_entries_stand_last_and_the_rest_stays_as_it_is() -> None:
    """A last line that goes on takes nothing of what comes after it."""
    values = {"node.id": "9", "log.dirs": "/gr\u00fc\U0001f600\\n"}
    changed = with_entries(OWN, values, removed=["log.dir"], comment="changed")
    assert changed == (
        b"# ours\n\nlisteners=C://:1,\\\n  B://:2\nsuper.users=User:\\u00e9\\\\x;User:b\npassword=x\\\n"
        b"\n# changed\nnode.id=9\nlog.dirs=/gr\\u00fc\\ud83d\\ude00\\\\n\n"
    )
    kept = {key: value for key, value in parse_properties(OWN) if key not in ("node.id", "log.dir")}
    assert dict(parse_properties(changed)) == {**kept, **values}


@given(st.binary(max_size=80), st.dictionaries(st.sampled_from(["a", "b.c"]), st.text("x\\ =:\u00fc,", max_size=5)))
def test_an_edited_file_says_what_it_said_but_for_the_changes(data: bytes, values: dict[str, str]) -> None:
    values = {key: f"v{value}" for key, value in values.items()}
    with contextlib.suppress(CodecError):
        changed = dict(parse_properties(with_entries(data, values, removed=["d"], comment="changed")))
        own = {key: value for key, value in parse_properties(data) if key != "d"}
        assert changed == {**own, **values}
