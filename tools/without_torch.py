#!/usr/bin/env python3
"""Names the source files among the arguments that include no LibTorch header, directly or through headers of ours.

    tools/without_torch.py ROOT FILE...      prints them separated by semicolons, as CMake's lists are

Loading the precompiled header (540 MB) costs such a file more than compiling it: they are built without.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
TORCH = re.compile(r"(torch|ATen|c10)/")


def needs_torch(path, root, known):
    if path not in known:
        known[path] = False  # cuts cycles
        includes = INCLUDE.findall(path.read_text())
        ours = [root / name for name in includes if name.startswith(("muoncore/", "tests/"))]
        known[path] = any(TORCH.match(name) for name in includes) or any(
            needs_torch(header, root, known) for header in ours if header.is_file())
    return known[path]


root = pathlib.Path(sys.argv[1])
seen = {}
print(";".join(name for name in sys.argv[2:] if not needs_torch(pathlib.Path(name), root, seen)), end="")
