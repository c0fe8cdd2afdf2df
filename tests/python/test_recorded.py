"""The recorded gradients of tests/data/golden: what torch and fp64 make of them is what was recorded, and the curves that
docs/evidence.md shows can be drawn."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors
import torch

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("MUONCORE_PROGRAM", ROOT / "build/release/muoncore"))
sys.path.insert(0, str(ROOT / "tools"))
import record_gradients as record  # noqa: E402


@pytest.fixture(scope="module")
def recorded():
    with safetensors.safe_open(record.FILE, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["about"])


def matrices(tensors, prefix):
    return [tensors[f"{prefix}/W{index}"] for index in range(4)]


def test_file_is_of_the_documented_versions(recorded):
    tensors, about = recorded
    assert about["emerging-optimizers"] == "0.3.0" and about["torch"].startswith("2.13.")
    assert about["checkpoints"] == record.CHECKPOINTS
    assert all(len(grad) == record.RECORDED and grad.dtype == torch.float32 for grad in matrices(tensors, "grad"))


@pytest.mark.parametrize("case", record.CASES)
def test_fp64_is_the_definition(recorded, case):
    tensors, _ = recorded
    again = record.replay_exact(case, matrices(tensors, "init"), zip(*matrices(tensors, "grad")))
    assert record.largest(again, matrices(tensors, f"{case}/fp64")) < 1e-12


@pytest.mark.parametrize("case", record.TORCH)
def test_torch_is_what_was_recorded(recorded, case):
    tensors, _ = recorded
    again = record.replay(lambda p: record.make_torch(case, p), matrices(tensors, "init"), zip(*matrices(tensors, "grad")))
    exact = matrices(tensors, f"{case}/fp64")
    then, now = record.largest(matrices(tensors, f"{case}/torch"), exact), record.largest(again, exact)
    assert then / 2 < now < then * 2  # bf16 products differ between processors


def test_weights_move_by_far_more_than_the_bounds(recorded):
    tensors, _ = recorded
    for case in record.CASES:
        last = [weights[-1] for weights in matrices(tensors, f"{case}/fp64")]
        assert record.largest(last, matrices(tensors, "init")) > 0.1


def test_loss_curves_can_be_drawn(tmp_path):
    subprocess.run([sys.executable, ROOT / "tools/plot_evidence.py", "losses", "--build", PROGRAM.parent, "--out", tmp_path],
                   check=True)
    assert (tmp_path / "losses.png").read_bytes().startswith(b"\x89PNG")
