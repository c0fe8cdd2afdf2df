"""`muoncore config check|show|docs` as its users see it."""

import os
import pathlib
import subprocess

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("MUONCORE_PROGRAM", str(ROOT / "build/release/muoncore"))

# verl's trainer/config/optim/megatron.yaml, its keys and values, under the path it has in a run.
VERL_OPTIM = {
    "lr": 1e-6, "lr_warmup_steps_ratio": 0.0, "total_training_steps": -1, "weight_decay": 0.01,
    "lr_warmup_steps": -1, "betas": [0.9, 0.999], "clip_grad": 1.0, "optimizer": "adam",
    "lr_warmup_init": 0.0, "lr_decay_steps": None, "lr_decay_style": "constant", "min_lr": 0.0,
    "weight_decay_incr_style": "constant", "lr_wsd_decay_style": "exponential",
    "lr_wsd_decay_steps": None, "use_checkpoint_opt_param_scheduler": False,
    "use_precision_aware_optimizer": False, "main_grads_dtype": "fp32", "exp_avg_dtype": "fp32",
    "exp_avg_sq_dtype": "fp32", "use_layer_wise_distributed_optimizer": False,
    "muon_momentum": 0.95, "muon_nesterov": False, "muon_split_qkv": True,
    "muon_scale_mode": "spectral", "muon_coefficient_type": "quintic", "muon_num_ns_steps": 5,
    "muon_tp_mode": "blockwise", "muon_fp32_matmul_prec": "medium",
    "muon_extra_scale_factor": 1.0, "muon_scalar_optimizer": "adam",
    "muon_match_adamw_update_rms": False, "override_optimizer_config": {},
}


def run(*args, cwd=None):
    return subprocess.run([PROGRAM, "config", *map(str, args)], capture_output=True, text=True,
                          timeout=60, cwd=cwd)


@pytest.fixture
def verl_file(tmp_path):
    file = tmp_path / "verl.yaml"
    tree = {"actor_rollout_ref": {"actor": {"optim": VERL_OPTIM}}}
    file.write_text(yaml.safe_dump(tree, sort_keys=False))
    return file


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_verls_optimizer_block_passes(verl_file, optimizer):
    result = run("check", verl_file, f"actor_rollout_ref.actor.optim.optimizer={optimizer}")
    assert result.returncode == 0, result.stderr
    assert "a valid grpo config" in result.stdout


def test_a_fault_is_named_and_the_status_is_one(tmp_path):
    file = tmp_path / "bad.yaml"
    file.write_text("optim:\n  optimizer: muon\n  muon_nesterov: 'false'\n")
    result = run("check", file)
    assert result.returncode == 1
    assert f"error: {file}:3: key 'optim.muon_nesterov': value \"false\" (a string)" in result.stderr
    assert result.stdout == ""


def test_overrides_win_and_are_judged(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("optim: {lr: 1e-3}\n")
    assert run("check", file, "optim.lr=1e-4").returncode == 0
    result = run("check", file, "optim.lr=-1")
    assert result.returncode == 1
    assert "command line: key 'optim.lr': value -1" in result.stderr


def test_files_are_judged_only_when_asked(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("model: {path: /no/such/model}\n")
    assert run("check", file).returncode == 0
    result = run("check", "--files", file)
    assert result.returncode == 1
    assert "key 'model.path': '/no/such/model' does not exist" in result.stderr


def test_kind_is_detected_or_asked_for(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("trainer: {seed: 3}\n")
    result = run("check", file)
    assert result.returncode == 1 and "say --kind grpo, sft or compare" in result.stderr
    assert run("check", "--kind", "sft", file).returncode == 0
    assert run("check", "--kind", "grpo", file).returncode == 0
    assert run("check", "--kind", "ppo", file).returncode == 1


def test_show_is_yaml_that_is_accepted_again(tmp_path, verl_file):
    result = run("show", verl_file, "actor_rollout_ref.actor.optim.optimizer=muon")
    assert result.returncode == 0
    assert "# verl's default: gae" in result.stdout
    tree = yaml.safe_load(result.stdout)  # PyYAML reads it too
    assert tree["algorithm"]["adv_estimator"] == "grpo"
    assert tree["actor_rollout_ref"]["actor"]["optim"]["lr"] == 1e-6
    again = tmp_path / "again.yaml"
    again.write_text(result.stdout)
    assert run("check", again).returncode == 0


def test_the_committed_page_is_that_of_the_tables():
    result = run("docs")
    assert result.returncode == 0
    committed = (ROOT / "docs/config.md").read_text()
    assert result.stdout == committed, "run `muoncore config docs > docs/config.md`"


@pytest.mark.parametrize("args", [(), ("check",), ("nonsense",), ("check", "--no-such-flag", "x")])
def test_usage_errors_have_status_two(args):
    assert run(*args).returncode == 2


def test_a_full_disk_is_an_error(verl_file):
    with open("/dev/full", "w") as full:
        result = subprocess.run([PROGRAM, "config", "show", str(verl_file)], stdout=full,
                                stderr=subprocess.PIPE, text=True, timeout=60)
    assert result.returncode == 1
    assert result.stderr == "error: cannot write to standard output\n"


def test_a_missing_file_is_one_clear_error(tmp_path):
    result = run("check", tmp_path / "none.yaml")
    assert result.returncode == 1
    assert "does not exist" in result.stderr
