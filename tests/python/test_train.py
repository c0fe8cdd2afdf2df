"""The program as its users see it: `muoncore sft` and `muoncore grpo`, judged from outside."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("MUONCORE_PROGRAM", str(ROOT / "build/release/muoncore"))

TINY = [
    "model.config.hidden_size=32",
    "model.config.intermediate_size=48",
    "model.config.num_hidden_layers=2",
    "model.config.num_attention_heads=2",
    "model.config.num_key_value_heads=1",
    "model.config.head_dim=16",
    "trainer.device=cpu",
]


def run(*arguments, ok=True):
    done = subprocess.run([PROGRAM, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode == 0) == ok, done.stderr
    return done


@pytest.fixture(scope="module")
def sft_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("train") / "sft"
    done = run("sft", "examples/addition/sft.yaml", *TINY, f"trainer.default_local_dir={folder}",
               "trainer.total_training_steps=40", "optim.lr_wsd_decay_steps=10")
    return folder, done


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_start_up_report(sft_run):
    _, done = sft_run
    for text in ("parameters by optimizer:", "optimizer state", "routing:", "lm_head.weight",
                 "device cpu, 1 thread"):
        assert text in done.stderr
    assert "step 40/40" in done.stderr
    assert "\r" not in done.stderr and "\033" not in done.stderr  # no progress bar into a pipe


def test_metrics_and_tensorboard_say_the_same(sft_run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, _ = sft_run
    lines = metrics(folder)
    assert [line["step"] for line in lines] == list(range(1, 41))
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {name for line in lines for name in line["data"]}
    for name in ("train/loss", "train/lr", "train/grad_norm"):
        scalars = events.Scalars(name)
        assert [s.step for s in scalars] == list(range(1, 41))
        for scalar, line in zip(scalars, lines):
            assert scalar.value == pytest.approx(line["data"][name], rel=1e-6)
    assert lines[-1]["data"]["train/loss"] < 0.8 * lines[0]["data"]["train/loss"]


def test_events_are_well_formed_records(sft_run):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    folder, _ = sft_run
    (file,) = (folder / "tensorboard").iterdir()
    events = list(EventFileLoader(str(file)).Load())
    assert events[0].file_version == "brain.Event:2"
    assert len(events) == 41


def test_the_saved_model_is_a_hugging_face_folder(sft_run):
    import torch
    from transformers import AutoModelForCausalLM

    folder, _ = sft_run
    assert (folder / "latest_checkpointed_iteration.txt").read_text() == "40"
    saved = folder / "global_step_40/actor/huggingface"
    model = AutoModelForCausalLM.from_pretrained(saved)
    assert model.config.eos_token_id in (2, [2])
    with torch.no_grad():
        assert model(torch.tensor([[1, 3, 4, 5]])).logits.isfinite().all()


def test_grpo_from_it_twice_is_the_same(sft_run, tmp_path):
    folder, _ = sft_run

    def grpo(name):
        out = tmp_path / name
        run("grpo", "examples/addition/grpo.yaml", f"trainer.default_local_dir={out}",
            f"actor_rollout_ref.model.path={folder}/global_step_40/actor/huggingface",
            "trainer.total_training_steps=3", "trainer.device=cpu",
            "actor_rollout_ref.actor.optim.lr_warmup_steps=1",
            "actor_rollout_ref.actor.optim.optimizer=muon",
            "actor_rollout_ref.actor.optim.muon_match_adamw_update_rms=true")
        weights = (out / "global_step_3/actor/huggingface/model.safetensors").read_bytes()
        varies = ("timing_s/", "perf/", "actor/perf/")
        lines = [{k: v for k, v in line["data"].items() if not k.startswith(varies)}
                 for line in metrics(out)]
        return lines, weights

    assert grpo("a") == grpo("b")


def test_config_yaml_of_a_run_is_accepted_again(sft_run, tmp_path):
    folder, _ = sft_run
    run("sft", "--config", folder / "config.yaml", f"trainer.default_local_dir={tmp_path / 'again'}",
        "trainer.total_training_steps=30")


def test_a_folder_that_is_not_empty_is_refused(sft_run):
    folder, _ = sft_run
    done = run("sft", "examples/addition/sft.yaml", f"trainer.default_local_dir={folder}", ok=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: trainer.default_local_dir")
    assert "is not empty" in done.stderr
