"""Tables larger than memory."""

from varjepa.scale.embedding import Run, embed_to_file, embed_to_folder

__all__ = ["Run", "embed_to_file", "embed_to_folder"]
