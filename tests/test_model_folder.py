"""Claims: a model folder comes back as it was written; one that is damaged, incomplete or foreign
is refused in one sentence. What a hostile one can do is in test_hostile_models.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from varjepa.model_folder import ModelFileError, SavedModel, load_model, save_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tensors = {"w": torch.arange(6.0).view(2, 3), "b": torch.zeros(())}
    save_model(tmp_path / "model", SavedModel({"a": [1, None]}, {"c": "é"}, tensors))
    return tmp_path / "model"


def test_round_trip(folder: Path) -> None:
    saved = load_model(folder)
    assert saved.config == {"a": [1, None]}
    assert saved.codec == {"c": "é"}
    assert torch.equal(saved.tensors["w"], torch.arange(6.0).view(2, 3))


@pytest.mark.parametrize("name", ["config.json", "codec.json", "model.safetensors"])
def test_one_flipped_bit_is_found(folder: Path, name: str) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ModelFileError, match="is damaged"):
        load_model(folder)


@pytest.mark.parametrize("name", ["config.json", "manifest.json", "model.safetensors"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ModelFileError, match=name):
        load_model(folder)


def test_a_folder_that_is_no_model_is_called_that(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"is not a model folder: it has no manifest\.json"):
        load_model(tmp_path)
    with pytest.raises(ModelFileError, match=r"cannot read the model folder .*nowhere: No such"):
        load_model(tmp_path / "nowhere")
    (tmp_path / "t.csv").touch()
    with pytest.raises(ModelFileError, match=r"t\.csv is not a model folder: it is a file"):
        load_model(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": "other"}, "is not a varjepa model"),
        ({"version": 99}, "format version 99, this varjepa reads 6"),
        ({"version": 1}, "format version 1, this varjepa reads 6; fit the model again"),
        ({"version": 2}, "format version 2, this varjepa reads 6; fit the model again"),
        ({"version": "3"}, "of any format version"),
        ({"files": {"../x": "0"}}, "does not list"),
        ({"files": None}, "does not list"),
        ({"more": 1}, "not laid out"),
        ({"sha256": "0" * 64}, "its own SHA-256"),
        ({}, "its own SHA-256"),  # the same values, spelled in another way
    ],
)
def test_foreign_manifests(folder: Path, change: dict[str, object], says: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    (folder / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(ModelFileError, match=says):
        load_model(folder)


@pytest.mark.parametrize("content", [b"[]", b"{", b"\xff"])
def test_manifests_that_are_no_manifests(folder: Path, content: bytes) -> None:
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(ModelFileError):
        load_model(folder)


def test_saving_again_replaces_the_whole(folder: Path) -> None:
    save_model(folder, SavedModel({"a": 2}, {}, {"v": torch.ones(1)}))
    assert load_model(folder).config == {"a": 2}
    assert set(load_model(folder).tensors) == {"v"}
