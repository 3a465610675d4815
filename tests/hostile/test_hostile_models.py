"""Claims about model folders that were damaged, or written to hurt.

1. One changed byte at any place of any file is found, the manifest itself included.
2. Of mutated folders (bits, cuts, devices and pipes, manifests that point elsewhere, JSON of wrong
   types, headers, shapes, NaN weights; with the old checksums and with new ones) each ends in
   ModelFileError, a sentence on one line, or in a model that works; nothing else is ever raised.
3. Sizes that would need terabytes, and JSON that would grow a hundredfold, are refused before they
   do: peak memory stays below the folder's size + 200 MB.
4. Loading holds the weights once.
5. A manifest never makes anything but its three neighbours be opened.
6. Another environment is one warning where it moves the last bits, and none where it does not.
7. Saving is exact about parameters: what could not be read back is named when it is saved.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.hostile.model_mutations import EVERY_FILE, mutate, sign, sign_manifest
from tests.memory import peak_memory
from tests.small import small
from varjepa import VarTJEPA
from varjepa.errors import InputError
from varjepa.estimators import TJEPA
from varjepa.model_folder import (
    ModelFileError,
    SavedModel,
    describe_arithmetic,
    load_model,
    save_model,
)

FREE = 200 << 20
SMALL: dict[str, Any] = {
    "d": 4, "depth": 1, "heads": 2, "ff": 8, "predictor_width": 4, "predictor_depth": 1,
    "predictor_heads": 2, "predictor_ff": 8, "epochs": 2, "learning_rate": 0.01, "random_state": 0,
}  # fmt: skip


def small_table() -> pa.Table:
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "size": rng.normal(size=40),
            "count": rng.integers(0, 9, 40),
            "kind": [("x", "y", "z", None)[i % 4] for i in range(40)],
            "when": pa.array(np.arange(40) * 950_400, pa.timestamp("s")),
        }
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model of every kind of column; do not change."""
    folder = tmp_path_factory.mktemp("whole") / "model"
    model = small(VarTJEPA, **SMALL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two epochs are a collapse
        model.fit(small_table()).save(folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    return Path(shutil.copytree(whole, tmp_path / "model"))


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    """Change a JSON file and sign the folder."""
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")
    sign(path.parent)


# --- 1


@pytest.mark.parametrize("name", EVERY_FILE)
def test_one_changed_byte_anywhere_is_found(folder: Path, name: str) -> None:
    """Every byte of the manifest, and some hundred of each other file, in three ways each."""
    content = (folder / name).read_bytes()
    places = range(0, len(content), 1 if name == "manifest.json" else max(1, len(content) // 150))
    for place in places:
        for byte in {content[place] ^ 1, content[place] ^ 0x20, 0x20} - {content[place]}:
            (folder / name).write_bytes(content[:place] + bytes([byte]) + content[place + 1 :])
            with pytest.raises(ModelFileError):
                load_model(folder)
    (folder / name).write_bytes(content)
    load_model(folder)


# --- 2


def spoil(whole: Path, folder: Path, count: int, seed: int, measure: int) -> Counter[str]:
    """Load so many mutated copies; what came of them. Every ``measure``-th also for its memory."""
    table, rng, came = small_table(), random.Random(seed), Counter[str]()
    for i in range(count):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        must_fail = mutate(rng, folder)
        try:
            if i % measure:
                model = VarTJEPA.load(folder)
            else:
                with peak_memory() as peak:
                    model = VarTJEPA.load(folder)
        except ModelFileError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < len(str(folder)) + 300
            came["refused"] += 1
        else:
            assert not must_fail, f"mutation {i} of seed {seed} was not noticed"
            came["loaded"] += 1
            assert np.isfinite(model.transform(table)).all()
            model.impute(table)
            model.sample(2)
        if i % measure == 0:
            assert peak.bytes < FREE, f"mutation {i} of seed {seed} took {peak.bytes:,} bytes"
            came["most bytes"] = max(came["most bytes"], peak.bytes)
    return came


@pytest.mark.filterwarnings("ignore:.*was saved with:UserWarning")
@pytest.mark.filterwarnings("ignore:treated as missing:UserWarning")
def test_mutated_folders(whole: Path, tmp_path: Path) -> None:
    came = spoil(whole, tmp_path / "model", 300, seed=0, measure=5)
    assert came["refused"] > 200
    assert came["loaded"] > 3  # malice that only made another model


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:.*was saved with:UserWarning")
@pytest.mark.filterwarnings("ignore:treated as missing:UserWarning")
def test_ten_thousand_mutated_folders(
    whole: Path, tmp_path: Path, record_soak: Callable[[str, dict[str, Any]], None]
) -> None:
    count = 10_000
    came = spoil(whole, tmp_path / "model", count, seed=1, measure=1)
    size = sum(path.stat().st_size for path in whole.iterdir())
    above = []
    for bomb in BOMBS.values():
        shutil.rmtree(tmp_path / "model")
        above.append(defuse(bomb, Path(shutil.copytree(whole, tmp_path / "model"))))
    record_soak(
        "hostile_models",
        {
            "mutated folders": count,
            "refused with ModelFileError": came["refused"],
            "loaded, and embed, impute and sample work": came["loaded"],
            "anything else": count - came["refused"] - came["loaded"],
            "folder MB": round(size / 1e6, 3),
            "peak MB above the start": round(came["most bytes"] / 1e6, 1),
            "bombs refused": len(above),
            "their largest peak, MB above the folder's size": round(max(above) / 1e6, 1),
        },
    )


@pytest.mark.parametrize("device", ["", "\0", "autox", "cuda:-1", "meta", "cpu\n"])
def test_a_device_that_is_none_is_refused(folder: Path, device: str) -> None:
    edit(folder / "config.json", lambda c: c["parameters"].update(device=device))
    with pytest.raises(ModelFileError, match="device must be auto, cpu or cuda"):
        VarTJEPA.load(folder)


@pytest.mark.parametrize("value", [[0] * 500, "x" * 10**6, 10**4000], ids=["list", "text", "int"])
def test_a_long_value_makes_no_long_sentence(folder: Path, value: Any) -> None:
    edit(folder / "config.json", lambda c: c["parameters"]["training"].update(max_norm=value))
    with pytest.raises(ModelFileError, match="max_norm must be a finite number") as refused:
        VarTJEPA.load(folder)
    assert len(str(refused.value)) < len(str(folder)) + 300


# --- 3


def _parameter(name: str, value: Any) -> Callable[[Path], None]:
    return lambda folder: edit(
        folder / "config.json",
        lambda config: config["parameters"]["architecture"].update({name: value}),
    )


def _text(name: str, *parts: tuple[bytes, int]) -> Callable[[Path], None]:
    """A file of repeated parts, made when it is needed."""

    def write(folder: Path) -> None:
        (folder / name).write_bytes(b"".join(part * times for part, times in parts))
        sign(folder)

    return write


def _header(header: bytes, times: int = 1, length: int | None = None) -> Callable[[Path], None]:
    size = struct.pack("<Q", len(header) * times if length is None else length)
    return _text("model.safetensors", (size, 1), (header, times))


def _enormous_tensor(folder: Path) -> None:
    """A shape of 2^62 numbers, with a place that pretends to hold them."""
    header = {"w": {"dtype": "F32", "shape": [2**60], "data_offsets": [0, 2**62]}}
    _header(json.dumps(header).encode())(folder)


def _many_levels(folder: Path) -> None:
    """A million levels without weights for them."""

    def change(codec: Any) -> None:
        codec["categorical"][0]["levels"] = [f"{i:07}" for i in range(1_000_000)]
        codec["categorical"][0]["counts"] = [1] * 1_000_000

    edit(folder / "codec.json", change)


def _deep_type(folder: Path) -> None:
    deep = "dictionary<values=" * 2000 + "string" + ", indices=int8, ordered=0>" * 2000
    edit(folder / "codec.json", lambda codec: codec["columns"][2].update(type=deep))


BOMBS: dict[str, Callable[[Path], None]] = {
    "a billion layers": _parameter("depth", 10**9),
    "a billion layers of the imputer": _parameter("imputer_depth", 10**9),
    "a million layers of the predictor": _parameter("predictor_depth", 10**6),
    "a width of 2^40": _parameter("d", 2**40),
    "a width of 2^62": _parameter("ff", 2**62),
    "10^12 CLS tokens": _parameter("n_cls", 10**12),
    "no heads": _parameter("heads", 0),
    "no width": _parameter("d", 0),
    "half a head": _parameter("heads", 0.5),
    "minus two heads": _parameter("heads", -2),
    "a million levels": _many_levels,
    "a type in a type": _deep_type,
    "20 million empty lists": _text("codec.json", (b"[", 1), (b"[],", 20_000_000), (b"0]", 1)),
    "3 million empty objects": _text("config.json", (b"[", 1), (b"{},", 3_000_000), (b"0]", 1)),
    "10 million short texts": _text("codec.json", (b"[", 1), (b'"ab",', 10_000_000), (b"0]", 1)),
    "60 MB of wide text": _text("codec.json", ('"😀'.encode(), 1), (b"a", 60_000_000), (b'"', 1)),
    "a million brackets": _text("config.json", (b"[", 1_000_000)),
    "a number of 10 MB": _text("config.json", (b"1", 10_000_000)),
    "a header of 100 MB": _header(b" ", 100_000_000),
    "a header of 2^63": _header(b"{}", length=2**63),
    "a tensor of 2^62 bytes": _enormous_tensor,
    "a long manifest": lambda folder: (folder / "manifest.json").write_bytes(b" " * 50_000_000),
}  # fmt: skip


def defuse(bomb: Callable[[Path], None], folder: Path) -> int:
    """Plant a bomb and load it; peak memory above the folder's size."""
    bomb(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    with peak_memory() as peak, pytest.raises(ModelFileError):
        VarTJEPA.load(folder)
    return peak.bytes - size


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_do_not_go_off(folder: Path, name: str) -> None:
    assert defuse(BOMBS[name], folder) < FREE


# --- 4


def test_weights_are_held_once(tmp_path: Path) -> None:
    model = small(
        VarTJEPA, **{**SMALL, "d": 512, "ff": 4096, "heads": 2, "epochs": 1, "optimiser": "adamw"}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one epoch of so large a model collapses
        model.fit(small_table().slice(0, 8)).save(tmp_path / "model")
    size = (tmp_path / "model" / "model.safetensors").stat().st_size
    assert size > 50 << 20
    del model
    with peak_memory() as peak:
        VarTJEPA.load(tmp_path / "model")
    assert peak.bytes < 1.3 * size + (20 << 20)


# --- 5


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "secret", "./config.json"])
def test_a_manifest_opens_nothing_else(folder: Path, name: str) -> None:
    (folder / "secret").write_text("{}")
    (folder.parent / "secret").write_text("{}")
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["files"][name] = manifest["files"].pop("config.json")
    sign_manifest(folder, manifest)
    with pytest.raises(ModelFileError, match=r"does not list config\.json"):
        VarTJEPA.load(folder)


def test_links_to_whole_files_are_files(whole: Path, tmp_path: Path) -> None:
    """A download cache keeps files elsewhere and links to them."""
    for name in EVERY_FILE:
        (tmp_path / name).symlink_to(whole / name)
    VarTJEPA.load(tmp_path)


# --- 6


def claim(folder: Path, **environment: Any) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["environment"].update(environment)
    sign_manifest(folder, manifest)


def test_the_manifest_says_where_and_what(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_bytes())
    assert manifest["environment"] == describe_arithmetic()
    assert {"torch", "numpy", "python", "varjepa", "system"} <= set(manifest["environment"])
    assert len(manifest["files"]["model.safetensors"]["sha256"]) == 64


@pytest.mark.filterwarnings("ignore:the latents have collapsed:UserWarning")
@pytest.mark.parametrize("kind", [VarTJEPA, TJEPA])
def test_the_same_training_has_the_same_checksum(
    tmp_path: Path, kind: type[VarTJEPA] | type[TJEPA]
) -> None:
    for name in ("one", "two"):
        small(kind, **SMALL).fit(small_table()).save(tmp_path / name)
    one, two = (
        json.loads((tmp_path / name / "manifest.json").read_bytes())["files"]["model.safetensors"]
        for name in ("one", "two")
    )
    assert one == two


@pytest.mark.parametrize(
    "change", [{"torch": "1.0.0"}, {"system": "Plan9 vax"}, {"instructions": "ABACUS"}]
)
def test_another_environment_is_one_warning(folder: Path, change: dict[str, str]) -> None:
    claim(folder, **change)
    with pytest.warns(UserWarning, match="may differ in the last bits") as caught:
        VarTJEPA.load(folder)
    assert len(caught) == 1
    assert next(iter(change.values())) in str(caught[0].message)


def test_what_moves_no_bit_is_no_warning(folder: Path) -> None:
    version = str(torch.__version__).split("+")[0]
    claim(folder, python="3.0.0", numpy="1.0", threads=99, torch=f"{version}+other")
    VarTJEPA.load(folder)  # warnings are errors here


@pytest.mark.parametrize("word", ["\x1b[2J", "x" * 101, "a\nb", None, 1.5, {}])
def test_an_environment_is_plain_words(folder: Path, word: Any) -> None:
    claim(folder, torch=word)
    with pytest.raises(ModelFileError, match="not laid out"):
        VarTJEPA.load(folder)


# --- 7


def test_safetensors_reads_what_we_read(folder: Path) -> None:
    theirs = load_file(folder / "model.safetensors")
    ours = load_model(folder).tensors
    assert set(theirs) == set(ours)
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_every_type_survives(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {
        "a": torch.arange(6).view(2, 3).to(dtype),
        "b": torch.ones((), dtype=dtype),
        "c": torch.zeros(0, 4, dtype=dtype),
    }
    save_model(tmp_path / "m", SavedModel({}, {}, tensors))
    found = load_model(tmp_path / "m").tensors
    assert all(torch.equal(found[k], v) and found[k].dtype == dtype for k, v in tensors.items())


def test_weights_of_another_type_are_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file({k: v.double() for k, v in load_file(path).items()}, path)
    sign(folder)
    with pytest.raises(ModelFileError, match="not those of"):
        VarTJEPA.load(folder)


def test_numpy_numbers_are_saved_as_numbers(tmp_path: Path) -> None:
    model = small(TJEPA, **{**SMALL, "d": np.int64(4), "learning_rate": np.float32(0.01)})
    model.fit(small_table()).save(tmp_path / "m")
    assert type(TJEPA.load(tmp_path / "m").architecture.d) is int


def test_what_could_not_be_read_back_is_not_saved(tmp_path: Path) -> None:
    model = small(TJEPA, **SMALL).fit(small_table()).set_params(max_levels="many")
    with pytest.raises(InputError, match="max_levels"):
        model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_history_with_nan_is_saved(tmp_path: Path) -> None:
    model = small(TJEPA, **SMALL).fit(small_table())
    model.history_[0]["loss"] = float("nan")
    model.save(tmp_path / "m")
    assert TJEPA.load(tmp_path / "m").history_[0]["loss"] is None


def test_loading_leaves_random_numbers_alone(whole: Path) -> None:
    state = torch.random.get_rng_state()
    VarTJEPA.load(whole)
    assert torch.equal(state, torch.random.get_rng_state())
