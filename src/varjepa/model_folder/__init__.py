"""A model on disk: config.json, codec.json, model.safetensors and manifest.json.

Nothing in it can run code: JSON and raw tensors only. The manifest has the size and a SHA-256 of
every other file and of itself, because safetensors loads flipped bits without a word. It is written
last, so a folder with a manifest is a whole one. Nothing is believed before it is checked: a folder
that somebody wrote on purpose to hurt ends in a sentence too, before it takes any memory.
"""

from varjepa.model_folder.files import OpenModel, SavedModel, load_model, open_model, save_model
from varjepa.model_folder.manifest import FORMAT, FORMAT_VERSION
from varjepa.model_folder.parsing import ModelFileError
from varjepa.model_folder.weights import WeightFile

__all__ = [
    "FORMAT",
    "FORMAT_VERSION",
    "ModelFileError",
    "OpenModel",
    "SavedModel",
    "WeightFile",
    "load_model",
    "open_model",
    "save_model",
]
