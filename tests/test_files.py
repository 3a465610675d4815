"""Claims:

1. A written file is whole, readable by others, and a failed write changes nothing.
2. A second writer of a folder is refused in one sentence; the lock goes with the first.
3. The module can be imported where there is no ``fcntl``.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from varjepa.errors import InputError
from varjepa.files import (
    make_folder,
    only_writer,
    read_json,
    remove_temporaries,
    replacing,
    write_json,
    write_text,
)


def test_rows_round_trip_one_a_line(tmp_path: Path) -> None:
    rows = [{"a": 1, "b": "é"}, {"a": 2.5, "b": None}]
    write_json(tmp_path / "rows.json", rows)
    assert read_json(tmp_path / "rows.json") == rows
    assert len((tmp_path / "rows.json").read_text(encoding="utf-8").splitlines()) == 4


@pytest.mark.parametrize("value", [[], {"a": [1]}, "text"])
def test_other_values_round_trip(tmp_path: Path, value: object) -> None:
    write_json(tmp_path / "value.json", value)
    assert read_json(tmp_path / "value.json") == value


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    write_json(path, [1])
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, [float("nan")])
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert read_json(path) == [1]
    assert [p.name for p in tmp_path.iterdir()] == ["rows.json"]


def test_mode_follows_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    with only_writer(tmp_path):
        for _ in range(2):
            with (
                pytest.raises(InputError, match=r"^another varjepa process is writing to "),
                only_writer(tmp_path),
            ):
                raise AssertionError
    with pytest.raises(KeyError), only_writer(tmp_path):
        raise KeyError
    with only_writer(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


def test_another_process_is_no_second_writer(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from varjepa.files import only_writer\n"
        "with only_writer(Path(sys.argv[1])): pass"
    )
    with only_writer(tmp_path):
        other = subprocess.run(
            [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False
        )
    assert f"InputError: another varjepa process is writing to {tmp_path}" in other.stderr


def test_fcntl_is_not_needed(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['fcntl'] = None\n"
        "from pathlib import Path; from varjepa.files import only_writer\n"
        "with only_writer(Path(sys.argv[1])): pass"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, tmp_path], check=True)


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot write to the folder"):
        make_folder(tmp_path / "file" / "below")
    with pytest.raises(InputError, match=r"cannot write to the folder .*: it is a file"):
        make_folder(tmp_path / "file")


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b""])
def test_not_json_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.json").write_bytes(content)
    with pytest.raises(InputError, match=r"broken\.json is not a JSON file"):
        read_json(tmp_path / "broken.json")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_json(tmp_path / "none.json")


def test_only_our_own_temporaries_are_removed(tmp_path: Path) -> None:
    with replacing(tmp_path / "a.json") as ours:
        (tmp_path / ours.name.replace("a.json", "b.json")).touch()  # as a killed process leaves it
        (tmp_path / ".mine.tmp").touch()
    remove_temporaries(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", ".mine.tmp"}
