"""Files that an editor, a browser or a version control system has made something else of."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallward.agent.schema.file_kinds import other_kind, other_kind_of
from stallward.agent.schema.json_file import read_json, read_json_file
from stallward.agent.schema.text_file import read_text_file
from stallward.agent.schema.toml_file import read_toml, read_toml_file

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)
OTHERS = {
    "a Git LFS pointer": (POINTER, "git lfs pull"),
    "a git-annex pointer": (b"/annex/objects/SHA256E-s12345--4d7a2146.onnx\n", "git annex get"),
    "an HTML page": (b"\n<!DOCTYPE HTML>\n<html><title>Sign in</title></html>", "Download"),
    "a ZIP archive": (b"PK\x03\x04\x14\0\0\0policy/data.pkl", ""),
    "a Python pickle": (b"\x80\x02}q\0X\x05\0\0\0", ""),
    "compressed by gzip": (b"\x1f\x8b\x08\0\0\0\0\0", "gunzip"),
    "compressed by zstd": (b"\x28\xb5\x2f\xfd\x04\0", "unzstd"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_file_of_another_kind_is_named_with_the_next_step(what: str) -> None:
    content, step = OTHERS[what]
    error = other_kind(content)
    assert error is not None
    assert what in str(error)
    assert step in error.next_step


@pytest.mark.parametrize(
    "content",
    [b"", b"a = 1\n", b"{}", b"PAR1", b"SWTICK01", b"\x08\x08\x12\x09stallward", b"\0" * 8],
)
def test_a_file_whose_kind_cannot_be_told_is_left_to_its_reader(content: bytes) -> None:
    assert other_kind(content) is None


def test_the_kind_of_a_file_that_is_not_there_cannot_be_told(tmp_path: Path) -> None:
    assert other_kind_of(tmp_path / "none") is None


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_byte_order_mark_is_no_part_of_a_text(tmp_path: Path, ending: str) -> None:
    toml, json = tmp_path / "a.toml", tmp_path / "a.json"
    toml.write_bytes(f"a = 1{ending}b = 'ü'{ending}".encode("utf-8-sig"))
    json.write_bytes(f'{{"a": 1}}{ending}'.encode("utf-8-sig"))
    assert read_toml_file(toml) == {"a": 1, "b": "ü"}
    assert read_json_file(json) == {"a": 1}
    assert read_toml("\ufeffa = 1") == {"a": 1}
    assert read_json("\ufeff[]") == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_text_in_another_encoding_of_unicode_is_named(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[node]\nzone = 'edge'\n", encoding=encoding)
    with pytest.raises(ValueError, match=r"UTF-16 text|UTF-32 text"):
        read_toml_file(path)


def test_a_byte_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b"a = 1\nb = 'Gr\xf6\xdfe'\n")
    with pytest.raises(ValueError, match="line 2 holds the byte 0xf6, which is not UTF-8"):
        read_text_file(path)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (r'group = "edge/a\x2db.service"', "line 2 a backslash .* single quotes"),
        (r'command = "^/srv/\d+ "', "line 2 a backslash .* single quotes"),
        (r'path = "C:\Users\me"', "line 2 a backslash .* single quotes"),
        (r'path = "\user"', "line 2 a backslash .* single quotes"),
        ("group = \u201cedge/app\u201d", "line 2 has typographic quotes"),
        ("group\u00a0= 'edge/app'", r"line 2 holds the invisible character U\+00A0"),
        ("\ufeffgroup = 'edge/app'", r"line 2 holds the invisible character U\+FEFF"),
    ],
)
def test_what_was_pasted_into_toml_is_named(line: str, cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        read_toml(f"# a comment\n{line}\n")


@pytest.mark.parametrize("text", ["a = ", "a = 1\na = 2", "[a", "a = 'b\\c' x"])
def test_any_other_fault_of_toml_keeps_its_place(text: str) -> None:
    with pytest.raises(ValueError, match=r"line|end of document|overwrite"):
        read_toml(text)


def test_a_group_with_a_backslash_is_read_literally_in_single_quotes() -> None:
    assert read_toml(r"group = 'edge/a\x2db.service'") == {"group": "edge/a\\x2db.service"}
