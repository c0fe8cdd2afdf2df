"""`muoncore compare` as its users see it, on a tiny model; and the page that Python draws."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("MUONCORE_PROGRAM", str(ROOT / "build/release/muoncore"))

TINY = "{model_type: qwen3, vocab_size: 32, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 1, " \
       "num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8, max_position_embeddings: 64}"

SFT = f"""
model:
  config: {TINY}
data: {{task: addition, digits: 1, teacher_error: 0.5, eval_size: 16, train_batch_size: 8, micro_batch_size_per_gpu: 8,
       max_length: 32, max_response_length: 4}}
optim: {{optimizer: adam, lr: 1e-2, lr_warmup_steps: 1}}
trainer: {{total_training_steps: 150, logger: [file]}}
"""

GRPO = """
actor_rollout_ref:
  model: {path: set/by/the/comparison}
  actor: {ppo_mini_batch_size: 4, optim: {optimizer: adam, lr: 1e-3, lr_warmup_steps: 1}}
  rollout: {n: 8}
data: {task: addition, digits: 1, eval_size: 16, train_batch_size: 4, max_prompt_length: 8, max_response_length: 4}
trainer: {total_training_steps: 12, test_freq: 4, logger: [file]}
"""

COMPARE = """
compare:
  base: grpo.yaml
  start: sft.yaml
  arms:
    adamw: {actor_rollout_ref.actor.optim.optimizer: adam}
    muon: {actor_rollout_ref.actor.optim.optimizer: muon, actor_rollout_ref.actor.optim.muon_match_adamw_update_rms: true}
  seeds: [3, 5]
  jobs: 2
  threads: 1
  timing_steps: 20
  output_dir: OUT
"""

# Of the tiny model: 16 x 32 embedding and head, q 16x16, k and v 8x16, o 16x16, gate and up 24x16, down 16x24;
# norms 16 + 16 + 16 and QK-norms 8 + 8.
MATRICES = 16 * 16 * 2 + 8 * 16 * 2 + 24 * 16 * 3
REST = 2 * 16 * 32 + 3 * 16 + 2 * 8


def write_files(folder, compare=COMPARE, grpo=GRPO):
    (folder / "sft.yaml").write_text(SFT)
    (folder / "grpo.yaml").write_text(grpo)
    (folder / "compare.yaml").write_text(compare.replace("OUT", str(folder / "out")))
    return folder / "compare.yaml"


def run(*arguments, **more):
    return subprocess.run([PROGRAM, "compare", *map(str, arguments)], capture_output=True, text=True, timeout=120, **more)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compare")
    result = run(write_files(folder))
    assert result.returncode == 0, result.stderr
    return folder / "out", result


@pytest.fixture(scope="module")
def report(finished):
    return json.loads((finished[0] / "report.json").read_text())


def test_runs_and_timing_on_two_ranks(tmp_path):
    result = run(write_files(tmp_path), "--nproc", 2, "compare.seeds=[3]", "compare.jobs=1",
                 "trainer.total_training_steps=3", "compare.start_overrides.trainer.total_training_steps=60")
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert dict(report["setup"])["runs"] == "1 side by side, 2 ranks of 1 thread each"
    assert len(quantity(report, "optimizer_step")["arms"]["muon"]["values"]) == 20
    for arm, whole in (("adamw", 8 * (MATRICES + REST)), ("muon", 4 * MATRICES + 8 * REST)):
        folder = tmp_path / "out/arms" / arm / "seed-3"
        last = metrics(folder)[-1]["data"]
        assert 2 * last["actor/optim/state_bytes/rank_mean"] == whole
        assert quantity(report, "optimizer_state_bytes")["arms"][arm]["values"] == [last["actor/optim/state_bytes"]]
        assert (folder / "logs/rank_1.log").exists()


def quantity(report, name):
    return next(q for q in report["quantities"] if q["name"] == name)


def metrics(run_folder):
    return [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]


def test_ends_with_table_and_path(finished):
    out, result = finished
    assert result.stdout.rstrip().endswith(f"report: {out / 'report.html'}")
    assert re.search(r"\| optimizer state \(B\) +\|.*\| +holds \(exact\) \|", result.stdout)
    assert "muon, seed 5 done" in result.stderr


def test_optimizer_state_is_what_the_formula_says(report):
    arms = quantity(report, "optimizer_state_bytes")["arms"]
    assert arms["adamw"]["values"] == [8 * (MATRICES + REST)] * 2
    assert arms["muon"]["values"] == [4 * MATRICES + 8 * REST] * 2


def test_numbers_are_those_of_the_runs(finished, report):
    out = finished[0]
    for arm in ("adamw", "muon"):
        for index, seed in enumerate((3, 5)):
            lines = metrics(out / "arms" / arm / f"seed-{seed}")
            rewards = [line["data"]["critic/rewards/mean"] for line in lines if line["step"] > 0]
            assert len(rewards) == 12
            value = quantity(report, "reward_last_10")["arms"][arm]["values"][index]
            assert value == pytest.approx(sum(rewards[-10:]) / 10, abs=1e-15)
            last = [v for line in lines for k, v in line["data"].items() if k == "val-core/addition/acc/mean@1"][-1]
            assert quantity(report, "greedy_accuracy")["arms"][arm]["values"][index] == last


def test_arms_of_a_seed_share_start_and_first_rollouts(finished):
    out = finished[0]
    first = {}
    for seed in (3, 5):
        both = [metrics(out / "arms" / arm / f"seed-{seed}") for arm in ("adamw", "muon")]
        starts = [[line["data"]["critic/rewards/mean"] for line in lines if line["step"] == 1] for lines in both]
        assert starts[0] == starts[1]
        first[seed] = [line["data"]["actor/grad_norm"] for line in both[0] if line["step"] == 1]
    assert first[3] != first[5]


def test_timing_alternates_in_twenty_rounds(report):
    for name in ("optimizer_step", "update_actor"):
        for arm in ("adamw", "muon"):
            values = quantity(report, name)["arms"][arm]["values"]
            assert len(values) == 20 and min(values) > 0
    step, update = quantity(report, "optimizer_step"), quantity(report, "update_actor")
    for arm in ("adamw", "muon"):
        assert all(a < b for a, b in zip(step["arms"][arm]["values"], update["arms"][arm]["values"]))


def test_page_stands_alone(finished):
    out = finished[0]
    page = (out / "report.html").read_text()
    assert page.count('src="data:image/png;base64,iVBORw0KGgo') == 5
    assert not re.search(r"https?://|<script|<link|@import|url\(", page)
    for plot in ("verdicts", "learning", "updates", "memory", "times"):
        assert (out / f"{plot}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_report_can_be_redrawn_from_its_json(finished, tmp_path):
    (tmp_path / "report.json").write_bytes((finished[0] / "report.json").read_bytes())
    subprocess.run([sys.executable, "-m", "muoncore.report", str(tmp_path)], check=True, capture_output=True,
                   env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert (tmp_path / "report.html").read_text() == (finished[0] / "report.html").read_text()


def test_finished_folder_is_not_written_over(finished):
    result = run(finished[0].parent / "compare.yaml")
    assert result.returncode == 1
    assert "is not empty" in result.stderr and "compare.output_dir" in result.stderr


def test_one_seed_gets_no_verdict_and_base_keys_can_be_overridden(tmp_path):
    result = run(write_files(tmp_path), "compare.seeds=[1]", "compare.timing_steps=0", "trainer.total_training_steps=5")
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert quantity(report, "reward_last_10")["gaps"]["muon"]["verdict"] == "one seed: no verdict"
    assert quantity(report, "optimizer_state_bytes")["gaps"]["muon"]["verdict"] == "holds (exact)"
    assert not [q for q in report["quantities"] if q["unit"] == "seconds"]
    assert len(report["curves"]["critic/rewards/mean"]["muon"][0]["steps"]) == 5


def test_sft_arms(tmp_path):
    compare = COMPARE.replace("base: grpo.yaml", "base: sft.yaml").replace("  start: sft.yaml\n", "")
    result = run(write_files(tmp_path, compare.replace("actor_rollout_ref.actor.", "")), "trainer.total_training_steps=30")
    assert result.returncode == 0, result.stderr
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert quantity(report, "loss_last_10")["better"] == "lower"
    assert quantity(report, "optimizer_state_bytes")["arms"]["muon"]["values"] == [4 * MATRICES + 8 * REST] * 2
    assert len(quantity(report, "update_actor")["arms"]["muon"]["values"]) == 20


def test_failing_run_is_one_error_with_its_log_and_leaves_nothing_running(tmp_path):
    compare = COMPARE.replace("muon_match_adamw_update_rms: true}", "muon_match_adamw_update_rms: true, trainer.gates.max_update_rms: 1e-9}")
    result = run(write_files(tmp_path, compare))
    assert result.returncode == 1
    assert re.search(r"error: muon, seed \d ended with status 1; its log is \S+/arms/muon/seed-\d\.log, which ends:", result.stderr)
    assert result.stderr.count("error: muon") == 1
    assert not (tmp_path / "out/report.json").exists()
    assert not processes_in(tmp_path)


def processes_in(folder):
    """Command lines of running processes that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


def test_interrupt_ends_the_runs_too(tmp_path):
    file = write_files(tmp_path)
    process = subprocess.Popen([PROGRAM, "compare", str(file), "compare.start_overrides.trainer.total_training_steps=100000"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 30
    while len(processes_in(tmp_path / "out")) < 2 and time.time() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "stopped by signal 15" in stderr
    assert not processes_in(tmp_path)


def test_without_matplotlib_the_texts_are_complete(tmp_path):
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # -S: no site-packages
    fake.chmod(0o755)
    result = run(write_files(tmp_path), "compare.seeds=[1]", "compare.timing_steps=0", "trainer.total_training_steps=5",
                 env={**os.environ, "MUONCORE_PYTHON": str(fake)})
    assert result.returncode == 1
    assert "the plots need matplotlib" in result.stderr and "report.md and report.json are complete" in result.stderr
    assert (tmp_path / "out/report.md").read_text().startswith("# ")
    json.loads((tmp_path / "out/report.json").read_text())


@pytest.mark.parametrize("content, message", [
    (None, "report.json: No such file"),
    ("{", "not JSON"),
    ("{}", "not a report of muoncore: no arms"),
])
def test_redrawing_refuses_what_is_no_report(tmp_path, content, message):
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    result = subprocess.run([sys.executable, "-m", "muoncore.report", str(tmp_path)], capture_output=True, text=True,
                            env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert result.returncode == 1
    assert result.stderr.startswith("error: ") and message in result.stderr
    assert not (tmp_path / "report.html").exists()
