"""Ways to spoil a model folder: accidents, which keep the old checksums, and malice, which signs.

A mutation is a function of a random generator and a folder, which it changes in place.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from varjepa.model_folder import FILES, Listed, dump_json, write_manifest

Mutation = Callable[[random.Random, Path], None]

EVERY_FILE = (*FILES, "manifest.json")

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 2**31, 10**9, 2**63, -(2**63) - 1, 10**30, 10**400,
    0.5, -0.0, 1e308, -1e-320, "", "x", "auto", "../../etc/passwd", "\x1b[2J", "\0", "\ud800",
    "é" * 500, [], [1], [[]], [None, "a", -1], {}, {"a": {"b": []}}, [0] * 500,
)  # fmt: skip
"""Each has the place of each JSON value some time."""


def sign(folder: Path) -> None:
    """A manifest that fits whatever the files hold now."""
    listed = {}
    for name in FILES:
        content = (folder / name).read_bytes()
        listed[name] = Listed(len(content), hashlib.sha256(content).hexdigest())
    (folder / "manifest.json").write_bytes(write_manifest(listed))


def sign_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with a checksum of itself that fits."""
    body = {key: item for key, item in manifest.items() if key != "sha256"}
    own = hashlib.sha256(_dump(body)).hexdigest()
    (folder / "manifest.json").write_bytes(_dump({**body, "sha256": own}))


# --- bytes


def flip_bit(rng: random.Random, path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def change_byte(rng: random.Random, path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
    path.write_bytes(content)


def truncate(rng: random.Random, path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def append(rng: random.Random, path: Path) -> None:
    path.write_bytes(path.read_bytes() + rng.choice((b"\n", b"\0" * 9, b"{}", b" ")))


def repeat_part(rng: random.Random, path: Path) -> None:
    content = path.read_bytes()
    start = rng.randrange(len(content))
    part = content[start : start + rng.randrange(1, 200)]
    path.write_bytes(content[:start] + part + content[start:])


def noise(rng: random.Random, path: Path) -> None:
    path.write_bytes(rng.randbytes(rng.randrange(1, 5000)))


BYTES = (flip_bit, change_byte, truncate, append, repeat_part, noise)


# --- the file system


def not_a_file(rng: random.Random, path: Path) -> None:
    """A folder, a device, a pipe, a loop or nothing, where a file was."""
    path.unlink()
    kind = rng.randrange(6)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        path.symlink_to("/dev/zero")
    elif kind == 2:
        os.mkfifo(path)
    elif kind == 3:
        path.symlink_to(path.name)
    elif kind == 4:
        path.symlink_to("/proc/self/maps")


def swap_files(rng: random.Random, path: Path) -> None:
    other = path.parent / rng.choice([name for name in EVERY_FILE if name != path.name])
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


# --- JSON


def change_json(rng: random.Random, value: Any) -> Any:
    """One change at a random place: a value, a key gone, a key more, an item twice."""
    holder, key = _place(rng, value)
    kind = rng.randrange(6)
    if kind == 0 and isinstance(holder, dict):
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[rng.choice(("", "extra", "__class__", "../x", "\x1b"))] = rng.choice(VALUES)
    elif kind == 2 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif kind == 3 and isinstance(holder[key], int | float):
        holder[key] = rng.choice((holder[key] * 2, -holder[key], holder[key] + 1, str(holder[key])))
    elif kind == 4 and isinstance(holder[key], str):
        holder[key] = holder[key] + rng.choice(("x", "\x00", "\ud800", "\n"))
    else:
        holder[key] = rng.choice(VALUES)
    return value


def _place(rng: random.Random, value: Any) -> tuple[Any, Any]:
    """A random walk down: the one short list counts as much as a hundred long ones."""
    while True:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        inner = value[key]
        if not (isinstance(inner, dict | list) and inner) or rng.random() < 0.15:
            return value, key
        value = inner


def spell_strangely(rng: random.Random, content: bytes) -> bytes:
    """JSON that some parsers take: NaN, a key twice, comments, depth, long numbers."""
    text = content.decode()
    number = rng.choice(("NaN", "Infinity", "-Infinity", "1" * 5000, "1e999", "0x10", "[" * 3000))
    if rng.random() < 0.5:
        at = rng.choice([i for i, letter in enumerate(text) if letter.isdigit()])
        return (text[:at] + number + text[at + 1 :]).encode()
    lines = text.splitlines(keepends=True)
    at = rng.randrange(1, len(lines))
    return "".join([*lines[:at], lines[at - 1], *lines[at:]]).encode()


def change_json_file(rng: random.Random, path: Path) -> None:
    if rng.random() < 0.2:
        path.write_bytes(spell_strangely(rng, path.read_bytes()))
        return
    value = json.loads(path.read_bytes())
    for _ in range(rng.choice((1, 1, 1, 3))):
        value = change_json(rng, value)
    path.write_bytes(_dump(value))


def change_manifest(rng: random.Random, folder: Path) -> bool:
    """A manifest that somebody rewrote, its own checksum included; whether it must be refused.

    One that only claims another environment is none the worse for it.
    """
    manifest = json.loads((folder / "manifest.json").read_bytes())
    files = manifest["files"]
    kind = rng.randrange(4)
    if kind == 0:
        name = rng.choice(FILES)
        other = (
            "../x",
            "/etc/passwd",
            "../config.json",
            "config.json\0",
            "link",
            "CONFIG.json",
            "",
        )
        files[rng.choice(other)] = files.pop(name)
    elif kind == 1:
        files[rng.choice(FILES)]["bytes"] = rng.choice((-1, 2**63, 10**30, 1.5, "9", True, None))
    elif kind == 2:
        files[rng.choice(FILES)]["sha256"] = rng.choice(("", "0" * 64, "g" * 64, 0, None, "A" * 64))
    else:
        manifest = change_json(rng, manifest)
    sign_manifest(folder, manifest)
    return kind < 3


# --- safetensors


def change_header(rng: random.Random, path: Path) -> None:
    """Types, shapes, places and names that are not those of the numbers that follow."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, numbers = json.loads(content[8 : 8 + length]), content[8 + length :]
    name = rng.choice(list(header))
    entry = header[name]
    kind = rng.randrange(9)
    if kind == 0:
        entry["shape"] = rng.choice(([2**62, 4], [-1], [10**30], [1] * 70, [0], "x", [1.5], [[1]]))
    elif kind == 1:
        entry["dtype"] = rng.choice(("F64", "I64", "BF16", "F8_E4M3", "OBJECT", "", None, 5))
    elif kind == 2:
        entry["data_offsets"] = rng.choice(([0, 2**63], [-8, 0], [5, 1], [0], [0, 4, 8], None))
    elif kind == 3:
        header[rng.choice(("../w", "", "__class__", "x" * 5000, "é"))] = header.pop(name)
    elif kind == 4:
        entry["shape"] = list(reversed(entry["shape"]))
    elif kind == 5:
        header = change_json(rng, header)
    elif kind == 6:
        header["more"] = {"dtype": "F32", "shape": [1], "data_offsets": [len(numbers)] * 2}
    elif kind == 7:
        a, b = rng.sample(list(header), 2)
        header[a], header[b] = header[b], header[a]
    else:
        del header[name]
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + numbers)


def change_length(rng: random.Random, path: Path) -> None:
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    size = len(content)
    new = rng.choice((0, 1, length - 1, length + 1, size, size - 8, 2**27, 2**63, 2**64 - 1))
    path.write_bytes(struct.pack("<Q", new) + content[8:])


def break_weights(rng: random.Random, path: Path) -> None:
    """NaN or infinite weights."""
    content = bytearray(path.read_bytes())
    length = int.from_bytes(content[:8], "little")
    at = 8 + length + 4 * rng.randrange((len(content) - 8 - length) // 4)
    bad = rng.choice((float("nan"), float("inf"), -float("inf")))
    content[at : at + 4] = struct.pack("<f", bad)
    path.write_bytes(content)


def mutate(rng: random.Random, folder: Path) -> bool:
    """Spoil a folder in one of all these ways; whether it must be refused (or only may be)."""
    path = folder / rng.choice(EVERY_FILE)
    kind = rng.randrange(10)
    before = {name: (folder / name).read_bytes() for name in EVERY_FILE}
    if kind < 3:
        rng.choice(BYTES)(rng, path)
        return path.read_bytes() != before[path.name]
    if kind == 3:
        rng.choice((not_a_file, swap_files))(rng, path)
        return True
    if kind == 4:
        return change_manifest(rng, folder)
    if kind < 8:
        name = rng.choice(FILES[:2])
        rng.choice((change_json_file, change_json_file, rng.choice(BYTES)))(rng, folder / name)
        refuse = False
    else:
        weights = folder / "model.safetensors"
        change = rng.choice((change_header, change_header, change_length, break_weights, truncate))
        change(rng, weights)
        refuse = change is break_weights
    sign(folder)
    return refuse


def _dump(value: Any) -> bytes:
    """Like the writer of the product, but of any value, halves of characters included."""
    try:
        return dump_json(value)
    except ValueError:
        return (json.dumps(value, indent=1) + "\n").encode()
