#!/usr/bin/env python3
"""The include arrows of the rooms point down: holds the design's table, transitively.

Reads every #include "muoncore/..." of muoncore/ and fails, naming file and line, on an include that the table does not
allow, on a header that does not exist, and on c10d outside comm/. Also holds the size of files (800 lines).
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIRECT = {
    "core": set(),
    "muon": {"core"},
    "optim": {"core", "muon"},
    "comm": {"core"},
    "io": {"core"},
    "parallel": {"core", "muon", "optim", "comm", "io"},
    "data": {"core", "io"},
    "models": {"core", "comm", "io"},
    "rl": {"core", "models", "data"},
}
DIRECT["train"] = set(DIRECT)
DIRECT["cli"] = set(DIRECT) | {"train"}
MAX_LINES = 800


def closure(room):
    seen, todo = set(), [room]
    while todo:
        for dep in DIRECT[todo.pop()] - seen:
            seen.add(dep)
            todo.append(dep)
    return seen | {room}


def faults():
    allowed = {room: closure(room) for room in DIRECT}
    for room in DIRECT:  # arrows of the table itself must not turn back
        for dep in DIRECT[room]:
            if room in closure(dep):
                yield f"tools/check_layers.py: {room} and {dep} include each other"
    for path in sorted((ROOT / "muoncore").rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu"):
            continue
        name = path.relative_to(ROOT)
        room = name.parts[1]
        if room not in DIRECT:
            yield f"{name}: {room} is not a room of the table"
            continue
        lines = path.read_text().splitlines()
        if len(lines) > MAX_LINES:
            yield f"{name}: {len(lines)} lines, more than {MAX_LINES}"
        for number, line in enumerate(lines, 1):
            match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
            if not match:
                continue
            target = match.group(1)
            if "c10d" in target and room != "comm":
                yield f"{name}:{number}: includes {target}; only comm/ may include c10d"
            if not target.startswith("muoncore/"):
                continue
            other = target.split("/")[1]
            if not (ROOT / target).is_file():
                yield f"{name}:{number}: includes {target}, which does not exist"
            elif other not in allowed[room]:
                yield f"{name}:{number}: {room}/ may not include {other}/ (allowed: {', '.join(sorted(allowed[room]))})"


found = list(faults())
print("\n".join(found) if found else "layers: every include arrow points down")
sys.exit(bool(found))
