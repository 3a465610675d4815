"""Claims: nothing in the package can run code that a file brings. No pickle, joblib, marshal,
shelve, dill or YAML is imported, torch.load and numpy.load only read arrays, and nothing is
evaluated. Each rule finds a planted example, so an empty list of findings means something.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import varjepa

FORBIDDEN_MODULES = {
    "pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "jsonpickle", "marshal",
    "shelve", "yaml", "ruamel", "code", "codeop",
}  # fmt: skip
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_METHODS = {"read_pickle", "to_pickle"}
SAFE_WITH = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}
"""Calls that are fine with this argument only."""


def findings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module or ""]
            modules += [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            modules = []
        for module in modules:
            if FORBIDDEN_MODULES & set(module.split(".")):
                yield f"line {line} imports {module}"
        if isinstance(node, ast.Call):
            yield from _call_findings(node, line)


def _call_findings(node: ast.Call, line: int) -> Iterator[str]:
    name = ast.unparse(node.func)
    last = name.rsplit(".", 1)[-1]
    if name in FORBIDDEN_CALLS or name.startswith("builtins.") or last in FORBIDDEN_METHODS:
        yield f"line {line} calls {name}"
    name = name.replace("numpy.", "np.")
    if name in SAFE_WITH:
        argument, value = SAFE_WITH[name]
        given = [k.value for k in node.keywords if k.arg == argument]
        if not (given and isinstance(given[0], ast.Constant) and given[0].value is value):
            yield f"line {line} calls {name} without {argument}={value}"
    for keyword in node.keywords:
        is_true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
        if keyword.arg == "allow_pickle" and is_true:
            yield f"line {line} allows pickle"


def test_the_package_runs_no_code_of_files() -> None:
    root = Path(varjepa.__file__).parent
    files = sorted(root.rglob("*.py"))
    assert len(files) > 100
    found = {
        str(path.relative_to(root)): list(findings(path.read_text(encoding="utf-8")))
        for path in files
    }
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "planted",
    [
        "import pickle",
        "import os, joblib",
        "from pickle import loads",
        "def f():\n    from sklearn.externals import joblib",
        "from sklearn.externals.joblib import load",
        "import yaml as y",
        "import marshal",
        "import shelve",
        "x = eval('1')",
        "exec(open('a').read())",
        "compile('1', '', 'exec')",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=flag)",
        "np.load(path)",
        "numpy.load(path, allow_pickle=True)",
        "np.savez(path, a, allow_pickle=True)",
        "pd.read_pickle(path)",
        "frame.to_pickle(path)",
        "__import__(name)",
        "builtins.eval(text)",
    ],
)
def test_each_rule_finds_its_example(planted: str) -> None:
    assert list(findings(planted))


@pytest.mark.parametrize(
    "harmless",
    [
        "re.compile('a')",
        "torch.load(path, weights_only=True)",
        "np.load(path, allow_pickle=False)",
        "model.eval()",
        "'import pickle'",
        "from varjepa.model_folder import load_model",
    ],
)
def test_what_is_fine_is_not_found(harmless: str) -> None:
    assert not list(findings(harmless))
