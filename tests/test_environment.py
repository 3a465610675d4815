"""Claims about where a number says it came from."""

from __future__ import annotations

from pathlib import Path

import pytest

from varjepa import environment


def test_without_a_repository_the_commit_is_what_one_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "a" / "b" / "environment.py"))
    monkeypatch.delenv("VARJEPA_COMMIT", raising=False)
    assert environment.describe_environment()["commit"] is None
    monkeypatch.setenv("VARJEPA_COMMIT", "0123456789ab")
    assert environment.describe_environment()["commit"] == "0123456789ab"


def test_a_repository_knows_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "a" / "b" / "environment.py"))
    monkeypatch.setattr(
        environment, "_git", lambda root, *words: "feedbeef0123" if "HEAD" in words else " M src/x"
    )
    monkeypatch.setenv("VARJEPA_COMMIT", "0123456789ab")
    assert environment.describe_environment()["commit"] == "feedbeef0123+"
