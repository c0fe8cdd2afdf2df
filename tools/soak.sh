#!/usr/bin/env bash
# What takes longer than a test may (an estimate: 55 minutes on two cores). Figures of past runs: docs/soak.md.
#   tools/soak.sh PROGRAM
set -euo pipefail
cd "$(dirname "$0")/.."
program=$1
tests=$(dirname "$program")/tests

echo "soak 1: Muon against the fp64 formula, ten fresh seeds of 2,000 random configurations"
OMP_NUM_THREADS=2 "$tests/test_optim" --gtest_filter='MuonRandom.*' --gtest_repeat=10 --gtest_brief=1

echo "soak 2: the C++ tests under AddressSanitizer and UBSan"
make --no-print-directory asan

echo "soak 3: one seed of the addition example twice: the same metrics and the same weights"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for run in a b; do
  "$program" sft examples/addition/sft.yaml trainer.default_local_dir="$out/$run/sft" trainer.logger=[file] 2> "$out/$run.log" \
    || { tail "$out/$run.log"; exit 1; }
  "$program" grpo examples/addition/grpo.yaml trainer.default_local_dir="$out/$run/grpo" trainer.logger=[file] \
    actor_rollout_ref.model.path="$out/$run/sft/global_step_500/actor/huggingface" \
    actor_rollout_ref.actor.optim.optimizer=muon actor_rollout_ref.actor.optim.lr=3e-4 \
    actor_rollout_ref.actor.optim.muon_match_adamw_update_rms=true 2> "$out/$run.log" || { tail "$out/$run.log"; exit 1; }
done
"${MUONCORE_PYTHON:-.venv/bin/python}" - "$out" <<'P'
import hashlib, json, pathlib, sys
out = pathlib.Path(sys.argv[1])

def timeless(path):
    noise = ("timing_s/", "perf/", "actor/perf/")
    return [{k: v for k, v in json.loads(line)["data"].items() if not k.startswith(noise)} for line in open(path)]

for part, steps in (("sft", 500), ("grpo", 80)):
    a, b = (timeless(out / run / part / "metrics.jsonl") for run in "ab")
    wa, wb = (hashlib.sha256((out / run / part / f"global_step_{steps}/actor/huggingface/model.safetensors").read_bytes())
              .hexdigest() for run in "ab")
    assert a == b and len(a) > steps - 1, part
    assert wa == wb, part
    print(f"  {part}: {len(a)} lines of metrics equal, weights sha256 {wa[:16]} twice")
P
echo "soak 4: a rank of 2 or 4 is killed at a random time, 200 times"
"${MUONCORE_PYTHON:-.venv/bin/python}" tools/faults.py --program "$program" --runs 200 --seed "$(date +%s)" --window 4

echo "soak: all held"
