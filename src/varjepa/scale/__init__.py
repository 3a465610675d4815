"""Tables larger than memory, and more machines than one."""

from varjepa.scale.embedding import Engine, RunSummary, embed_to_file, embed_to_folder, this_process

__all__ = ["Engine", "RunSummary", "embed_to_file", "embed_to_folder", "this_process"]
