#!/usr/bin/env bash
# The main job on an embedded default: a small model learns addition from an imperfect teacher (SFT), then by GRPO, once with
# AdamW and once with Muon, three seeds each. Ends with the report. A finished run is kept and shown again.
#   tools/demo.sh PROGRAM [key=value ...]
set -euo pipefail
cd "$(dirname "$0")/.."
program=$1
shift
out=runs/demo

if [ -e "$out/report.md" ]; then
  echo "demo: already done (delete $out to run it again)"
  cat "$out/report.md"
  echo "demo: report at $out/report.html"
  exit 0
fi
if [ -e "$out" ]; then  # an interrupted run: kept aside, never written over
  n=1
  while [ -e "$out.unfinished.$n" ]; do n=$((n + 1)); done
  mv "$out" "$out.unfinished.$n"
  echo "demo: an unfinished run was moved to $out.unfinished.$n"
fi
echo "demo: SFT, then GRPO with AdamW and with Muon, 3 seeds each, into $out (about 6 minutes on two cores)"
"$program" compare examples/addition/compare.yaml compare.output_dir="$out" "$@"
