"""docs/parity.md names a test for every trap: each of them exists."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("MUONCORE_PROGRAM", ROOT / "build/release/muoncore"))
TEXT = (ROOT / "docs/parity.md").read_text()


def built_tests():
    """Suite.Test of every test binary, without the marks of parameterized and typed ones."""
    names = set()
    for binary in sorted((PROGRAM.parent / "tests").glob("test_*")):
        if not os.access(binary, os.X_OK) or binary.is_dir():
            continue
        suite = ""
        for line in subprocess.run([binary, "--gtest_list_tests"], capture_output=True, text=True,
                                   check=True).stdout.splitlines():
            word = line.split("#")[0].strip()
            if line.startswith(" "):
                names.add(suite + word.split("/")[0])
            elif word.endswith("."):
                parts = [part for part in word.rstrip(".").split("/") if not part.isdigit()]
                suite = parts[-1] + "."
    return names


def named_tests():
    """The last column of every table whose last column is `test`."""
    rows, inside = [], False
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if not line.startswith("|"):
            inside = False
        elif cells[-1] == "test":
            inside = True
        elif inside and not set(line) <= set("|-: "):
            rows.append((cells[0], re.findall(r"`([^`]+)`", cells[-1])))
    return rows


def test_every_row_of_the_tables_names_tests():
    rows = named_tests()
    assert len(rows) > 60
    assert [trap for trap, tests in rows if not tests] == []


def test_every_test_that_is_named_exists():
    built = built_tests()
    if not any(name.startswith("Muon.") for name in built):
        pytest.skip("the test binaries are not built")
    missing = []
    for _, tests in named_tests():
        for name in tests:
            if "::" in name:
                file, function = name.split("::")
                path = ROOT / "tests/python" / file
                if not path.exists() or f"def {function}(" not in path.read_text():
                    missing.append(name)
            elif name.endswith(".*"):
                if not any(one.startswith(name[:-1]) for one in built):
                    missing.append(name)
            elif name not in built:
                missing.append(name)
    assert missing == []
