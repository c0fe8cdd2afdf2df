#!/usr/bin/env bash
# Installs a build into a fresh folder, builds examples/cpp_minimal against it as a project of its own, and runs that; then
# the same program with torch's AdamW, which its comments "AdamW:" give line by line.
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
awk '/\/\/ AdamW: / { sub(/\/\/ AdamW: /, ""); print; getline; next } { print }' examples/cpp_minimal/main.cpp > "$out/main.cpp"
changed=$(diff examples/cpp_minimal/main.cpp "$out/main.cpp" | grep -c '^>' || true)
[ "$changed" = 2 ] || { echo "the swap to AdamW changed $changed lines, not 2"; exit 1; }
sed "s|add_executable(cpp_minimal main.cpp)|add_executable(cpp_minimal $out/main.cpp)|" examples/cpp_minimal/CMakeLists.txt > "$out/CMakeLists.txt"
cmake -S "$out" -B "$out/adamw" -DCMAKE_PREFIX_PATH="$out/prefix" -DMUONCORE_PYTHON="$2" > "$out/log" || { cat "$out/log"; exit 1; }
cmake --build "$out/adamw" > "$out/log" || { cat "$out/log"; exit 1; }
"$out/adamw/cpp_minimal"
