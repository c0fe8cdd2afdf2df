#!/usr/bin/env bash
# Sets up a fresh Debian 12 for muoncore: Debian packages and a Python environment with LibTorch. Does nothing twice.
#   tools/setup.sh [build|test]     build: what building and running needs; test: and what the tests need
# MUONCORE_PYTHON=/path/to/python   use an interpreter that already has torch 2.13 instead of making .venv
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-build}

packages=(g++ cmake ninja-build make pkg-config python3 python3-venv libyaml-cpp-dev nlohmann-json3-dev libcli11-dev
          libgloo-dev libpcre2-dev libutf8proc-dev libgtest-dev libgmock-dev)
[ "$what" = build ] || packages+=(clang-format git)
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  sudo=""
  [ "$(id -u)" = 0 ] || sudo=sudo
  echo "setup: installing Debian packages (up to 160 MB to download, about a minute): ${missing[*]}"
  $sudo apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

python=${MUONCORE_PYTHON:-.venv/bin/python}
if [ -z "${MUONCORE_PYTHON:-}" ] && [ ! -x .venv/bin/python ]; then
  echo "setup: making the Python environment .venv"
  python3 -m venv .venv
fi
# A stamp of the requirement files says what this environment already has.
install() {
  local file=$1 note=$2 stamp
  stamp=.cache/setup/$(echo "$python $(cat "$file")" | sha256sum | cut -c1-16)
  if [ -e "$stamp" ] && "$python" -c "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"; then
    return
  fi
  echo "setup: installing the Python packages of $file ($note)"
  "$python" -m pip install --quiet --disable-pip-version-check -r "$file"
  mkdir -p .cache/setup && touch "$stamp"
}
if [ -n "${MUONCORE_PYTHON:-}" ]; then
  "$python" -c "import torch" 2>/dev/null || { echo "setup: MUONCORE_PYTHON=$python has no torch" >&2; exit 1; }
else
  install requirements.txt "torch is about 200 MB to download as a CPU wheel, several GB as a CUDA wheel"
fi
[ "$what" = build ] || install requirements-test.txt "about 60 MB to download"
