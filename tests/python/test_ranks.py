"""Training on 1, 2 and 4 ranks as processes that talk over Gloo: the same global batch gives the same model."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("MUONCORE_PROGRAM", str(ROOT / "build/release/muoncore"))

CONFIG = "{model_type: qwen3, vocab_size: 32, hidden_size: 16, intermediate_size: 40, num_hidden_layers: 2, " \
         "num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8, max_position_embeddings: 64, " \
         "initializer_range: 0.2}"
DATA = "task: addition, digits: 1, eval_size: 6, max_response_length: 4"
# The warm-up ends with the first step, so that all three move the weights.
OPTIM = "lr: 5e-3, lr_warmup_steps: 0, betas: [0.9, 0.99], weight_decay: 0.1"
MUON = {"optimizer": "muon", "muon_fp32_matmul_prec": "highest", "muon_ns_impl": "standard"}
ADAMW = {"optimizer": "adam"}
ARMS = {"muon": MUON, "adamw": ADAMW}
LOCAL = ("timing_s/", "perf/", "actor/perf/")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "sft.yaml").write_text(f"""
model: {{config: {CONFIG}}}
data: {{{DATA}, train_batch_size: 8, micro_batch_size_per_gpu: 2, max_length: 32}}
optim: {{{OPTIM}}}
trainer: {{total_training_steps: 3, threads: 1, logger: [file, console]}}
""")
    (folder / "grpo.yaml").write_text(f"""
actor_rollout_ref:
  model: {{config: {CONFIG}}}
  actor: {{ppo_mini_batch_size: 2, use_kl_loss: true, ppo_micro_batch_size_per_gpu: 4, shuffle: true, optim: {{{OPTIM}}}}}
  rollout: {{n: 4, max_num_seqs: 4}}
data: {{{DATA}, train_batch_size: 4, max_prompt_length: 8}}
trainer: {{total_training_steps: 3, threads: 1, logger: [file, console]}}
""")
    return folder


def command(files, kind, ranks, out, keys):
    words = [PROGRAM, kind, files / f"{kind}.yaml", f"trainer.default_local_dir={out}"]
    words += [f"{key}={value}" for key, value in keys.items()]
    return [str(w) for w in words + (["--nproc", ranks] if ranks > 1 else [])]


def train(files, kind, ranks, out, keys, ok=True, **environment):
    done = subprocess.run(command(files, kind, ranks, out, keys), capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})
    assert (done.returncode == 0) == ok, done.stderr
    return done


def optim(kind, arm, **more):
    prefix = {"sft": "optim.", "grpo": "actor_rollout_ref.actor.optim."}[kind]
    return {prefix + key: value for key, value in ARMS[arm].items()} | more


def precision(kind, dtype):
    """In bf16 each micro-batch's gradient is rounded, so all worlds cut a mini-batch of 8 rows into micro-batches of 2."""
    keys = {engine(kind) + "dtype": dtype}
    if (kind, dtype) == ("grpo", "bfloat16"):
        keys["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"] = 2
    return keys


def engine(kind):
    return {"sft": "engine.", "grpo": "actor_rollout_ref.actor.megatron."}[kind]


def weights_file(out):
    return out / "global_step_3/actor/huggingface/model.safetensors"


def weights(out):
    from safetensors.torch import load_file

    return load_file(weights_file(out))


def metrics(out, local=False):
    lines = [json.loads(line)["data"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if local or not k.startswith(LOCAL)} for line in lines]


@pytest.fixture(scope="module")
def runs(files, tmp_path_factory):
    """Runs of one process each, made when first asked for: (kind, arm, dtype) -> folder."""
    folder = tmp_path_factory.mktemp("one")
    made = {}

    def run(kind, arm, dtype):
        key = (kind, arm, dtype)
        if key not in made:
            made[key] = folder / "-".join(key)
            more = precision(kind, dtype)
            if kind == "grpo":
                more["trainer.rollout_data_dir"] = folder / ("rollouts-" + dtype)
                if arm != "muon":  # the very same rollouts in both arms
                    run(kind, "muon", dtype)
                    more = precision(kind, dtype)
                    more["actor_rollout_ref.rollout.replay_dir"] = folder / ("rollouts-" + dtype)
            train(files, kind, 1, made[key], optim(kind, arm, **more))
        return made[key]

    run.rollouts = lambda dtype: folder / ("rollouts-" + dtype)
    return run


def on_ranks(files, runs, kind, arm, dtype, ranks, out, **more):
    one = runs(kind, arm, dtype)
    keys = optim(kind, arm, **precision(kind, dtype), **more)
    if kind == "grpo":
        keys["actor_rollout_ref.rollout.replay_dir"] = runs.rollouts(dtype)
    train(files, kind, ranks, out, keys)
    return one


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("kind", ["sft", "grpo"])
def test_fp32_is_one_process(files, runs, tmp_path, kind, arm, ranks):
    one = on_ranks(files, runs, kind, arm, "float32", ranks, tmp_path / "n")
    expected, got = weights(one), weights(tmp_path / "n")
    assert expected.keys() == got.keys()
    for name, tensor in expected.items():
        error = (got[name] - tensor).abs()
        assert (error <= 2e-6 + 1e-5 * tensor.abs()).all(), (name, error.max())
    a, b = metrics(one), metrics(tmp_path / "n")
    for before, after in zip(a, b, strict=True):
        for name, value in before.items():
            if not name.endswith("state_bytes"):
                assert after[name] == pytest.approx(value, rel=2e-3, abs=2e-5), name


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("kind", ["sft", "grpo"])
def test_bf16_is_one_process_within_a_rounding(files, runs, tmp_path, kind, arm, ranks):
    import torch

    one = on_ranks(files, runs, kind, arm, "bfloat16", ranks, tmp_path / "n")
    far = total = 0
    for name, tensor in weights(one).items():
        got = weights(tmp_path / "n")[name]
        steps = (got.view(torch.int16).int() - tensor.view(torch.int16).int()).abs()
        far += int((steps > 1).sum())
        total += steps.numel()
    assert far <= 0.01 * total, f"{far} of {total}"


def test_layout_overlap_buckets_and_repetition_change_no_bit(files, runs, tmp_path):
    ddp = engine("sft") + "override_ddp_config."
    variants = {
        "balanced": {},
        "again": {},
        "megatron": {engine("sft") + "param_layout": "megatron"},
        "overlap": {ddp + "overlap_grad_reduce": "true", ddp + "overlap_param_gather": "true"},
        "buckets": {ddp + "overlap_grad_reduce": "true", ddp + "bucket_size": 500},
    }
    bytes_of = {}
    for name, more in variants.items():
        train(files, "sft", 2, tmp_path / name, optim("sft", "muon", **more))
        bytes_of[name] = weights_file(tmp_path / name).read_bytes()
        for a, b in zip(metrics(tmp_path / "balanced"), metrics(tmp_path / name), strict=True):
            # Bytes follow the layout; the update RMS is summed piece by piece, and pieces follow the buckets.
            same = {k: v for k, v in a.items() if "state_bytes" not in k and "update_rms" not in k}
            assert same == {k: b[k] for k in same}
            assert all(b[k] == pytest.approx(a[k], rel=1e-6) for k in a if "update_rms" in k)
    assert all(b == bytes_of["balanced"] for b in bytes_of.values())


def test_uneven_shares_are_one_process(files, tmp_path):
    keys = optim("sft", "muon", **{"data.train_batch_size": 7})
    for ranks in (1, 3):
        train(files, "sft", ranks, tmp_path / str(ranks), keys)
    for name, tensor in weights(tmp_path / "1").items():
        error = (weights(tmp_path / "3")[name] - tensor).abs()
        assert (error <= 2e-6 + 1e-5 * tensor.abs()).all(), (name, error.max())


def test_rollouts_do_not_depend_on_the_number_of_ranks(files, tmp_path):
    def rollouts(ranks):
        out = tmp_path / str(ranks)
        train(files, "grpo", ranks, out, optim("grpo", "muon", **{"trainer.rollout_data_dir": out / "r",
                                                                 "trainer.total_training_steps": 1}))
        return [json.loads(line) for line in (out / "r/1.jsonl").read_text().splitlines()]

    one, two = rollouts(1), rollouts(2)
    assert len(one) == 16
    assert [r["response_ids"] for r in one] == [r["response_ids"] for r in two]
    assert [r["score"] for r in one] == [r["score"] for r in two]


def test_recorded_rollouts_are_verls_and_only_those_of_the_same_prompts(files, runs, tmp_path):
    runs("grpo", "muon", "float32")
    lines = [json.loads(line) for line in (runs.rollouts("float32") / "2.jsonl").read_text().splitlines()]
    assert len(lines) == 16 and {line["step"] for line in lines} == {2}
    for line in lines:
        assert line["input"].endswith("=") and line["score"] == float(line["output"] == line["gts"])
        assert len(line["response_ids"]) == len(line["log_probs"]) <= 4
    keys = optim("grpo", "muon", **{"actor_rollout_ref.rollout.replay_dir": runs.rollouts("float32")})
    other = train(files, "grpo", 2, tmp_path / "a", keys | {"trainer.seed": 2}, ok=False)
    assert "the recorded prompt is not that of this run" in other.stderr
    longer = train(files, "grpo", 1, tmp_path / "b", keys | {"trainer.total_training_steps": 4}, ok=False)
    assert "4.jsonl" in longer.stderr


def test_every_rank_has_a_log_and_says_how_it_shares(files, tmp_path):
    done = train(files, "sft", 2, tmp_path / "n", optim("sft", "muon"))
    logs = [(tmp_path / f"n/logs/rank_{r}.log").read_text() for r in (0, 1)]
    for text in (done.stderr, *logs):
        assert text.count("2 ranks share every batch: LayerWiseDistributedOptimizer") == 1
    assert "step 3/3" in logs[1]  # rank 1 knows how far it is
    last = metrics(tmp_path / "n", local=True)[-1]
    resolved = json.loads((tmp_path / "n/resolved.json").read_text())
    assert resolved["ranks"] == 2
    assert last["train/optim/state_bytes"] == resolved["memory_bytes"]["optimizer_state"]
    mean = last["train/optim/state_bytes/rank_mean"]
    assert 2 * mean == resolved["memory_bytes"]["optimizer_state_of_all_ranks"]
    one = train(files, "sft", 1, tmp_path / "1", optim("sft", "muon")) and tmp_path / "1"
    assert 2 * mean == metrics(one)[-1]["train/optim/state_bytes"]


def test_torchrun_starts_the_same_run(files, tmp_path):
    keys = optim("sft", "adamw")
    train(files, "sft", 2, tmp_path / "ours", keys)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", "2",
                "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    done = subprocess.run(launcher + command(files, "sft", 1, tmp_path / "torchrun", keys), capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert weights_file(tmp_path / "ours").read_bytes() == weights_file(tmp_path / "torchrun").read_bytes()


def test_grpo_on_two_ranks_twice_is_the_same(files, tmp_path):
    for name in "ab":
        train(files, "grpo", 2, tmp_path / name, optim("grpo", "muon"))
    assert metrics(tmp_path / "a") == metrics(tmp_path / "b")
    assert weights_file(tmp_path / "a").read_bytes() == weights_file(tmp_path / "b").read_bytes()


@pytest.mark.parametrize("keys, words", [
    ({"trainer.n_gpus_per_node": 3}, "value 3: the launcher started 2 ranks per node"),
    ({"trainer.nnodes": 2}, "value 2: the launcher started 1 nodes"),
    ({"data.train_batch_size": 1, "data.micro_batch_size_per_gpu": 1},
     "key 'data.train_batch_size': value 1: there are 2 ranks: each needs at least one row"),
    ({"engine.tensor_model_parallel_size": 2}, "not supported yet"),
    ({"trainer.device": "cuda"}, "trainer.device: value cuda, but there are 2 ranks"),
    ({"trainer.gates.max_update_rms": 1e-9}, "stopped at step 1 by the gate trainer.gates.max_update_rms"),
])
def test_a_refusal_is_said_once(files, tmp_path, keys, words):
    done = train(files, "sft", 2, tmp_path / "n", optim("sft", "muon", **keys), ok=False)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and words in errors[0], done.stderr


def test_a_killed_rank_ends_the_run(files, tmp_path):
    out = tmp_path / "n"
    keys = optim("sft", "muon", **{"trainer.total_training_steps": 100000})
    run = subprocess.Popen(command(files, "sft", 3, out, keys), stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.time() + 60
        while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").read_text():
            assert time.time() < deadline
            time.sleep(0.05)
        children = subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True).stdout.split()
        assert len(children) == 3
        victim = next(pid for pid in children
                      if b"\0RANK=1\0" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes() + b"\0")
        start = time.time()
        os.kill(int(victim), signal.SIGKILL)
        _, errors = run.communicate(timeout=30)
        assert time.time() - start < 30
        assert run.returncode != 0
        said = [line for line in errors.splitlines() if line.startswith("error:")]
        assert len(said) == 1 and "rank 1" in said[0], errors
    finally:
        run.kill()
