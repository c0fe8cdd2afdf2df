#!/usr/bin/env bash
# Installs a build into a fresh folder, builds examples/cpp_minimal against it as a project of its own, and runs that.
#   tools/check_install.sh BUILD_FOLDER PYTHON
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cmake --install "$1" --prefix "$out/prefix" > "$out/log" || { cat "$out/log"; exit 1; }
"$out/prefix/bin/muoncore" --version
cmake -S examples/cpp_minimal -B "$out/build" -DCMAKE_PREFIX_PATH="$out/prefix" -DMUONCORE_PYTHON="$2" > "$out/log" || { cat "$out/log"; exit 1; }
cmake --build "$out/build" > "$out/log" || { cat "$out/log"; exit 1; }
"$out/build/cpp_minimal"
