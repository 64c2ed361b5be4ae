# SPDX-License-Identifier: Apache-2.0
"""The pages of docs/python are scripts: they run, and their assertions hold."""

import pathlib
import subprocess
import sys

import pytest

PAGES = sorted((pathlib.Path(__file__).parents[2] / "docs" / "python").glob("*.py"))


def test_there_are_pages():
    assert len(PAGES) >= 4


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_page(page, tmp_path):
    if "import torch" in page.read_text(encoding="utf-8"):
        pytest.importorskip("torch", reason=f"NOT TESTED: {page.name} (torch is not installed)")
    done = subprocess.run(
        [sys.executable, str(page)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
