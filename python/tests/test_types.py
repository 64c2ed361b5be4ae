# SPDX-License-Identifier: Apache-2.0
"""The types: the package by mypy, the stub of the extension against the extension by stubtest."""

import pathlib
import subprocess
import sys

import pytest

import tacit

pytest.importorskip("mypy", reason="NOT TESTED: types (mypy is not installed here)")
CONFIG = pathlib.Path(__file__).parents[1] / "pyproject.toml"


def run(module, *arguments, cwd):
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=600)


def test_the_package_is_typed(tmp_path):
    assert (pathlib.Path(tacit.__file__).parent / "py.typed").exists()
    done = run("mypy", "--config-file", str(CONFIG), "-p", "tacit", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_stub_is_complete(tmp_path):
    done = run(
        "mypy.stubtest", "tacit._tacit", "--ignore-disjoint-bases", "--mypy-config-file",
        str(CONFIG), cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_callers_see(tmp_path):
    (tmp_path / "user.py").write_text(
        "import tacit\n"
        "session = tacit.compile('model.onnx', dims={'batch': 1})\n"
        "runner = tacit.runner('model.onnx')\n"
        "graph = tacit.Graph()\n"
        "value = graph.input('x', 'f32', (2,)) + 1.0\n"
        "private = tacit.secure.plan('model.onnx')\n"
        "reveal_type(session)\nreveal_type(runner)\nreveal_type(value)\nreveal_type(private)\n"
        "tacit.compile(graph, threads='two')\n"
    )
    done = run("mypy", "user.py", cwd=tmp_path)
    for kind in ("tacit.Session", "tacit.Runner", "tacit._graph.Value", "dict[str, Any]"):
        assert f'Revealed type is "{kind}"' in done.stdout.replace("builtins.", ""), done.stdout
    assert 'Argument "threads" to "compile" has incompatible type "str"' in done.stdout
