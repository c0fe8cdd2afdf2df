#!/usr/bin/env python3
"""Fault campaign: kill -9 of a random rank at a random time while `muoncore sft --nproc N` trains and saves every step.

    tools/faults.py --program build/release/muoncore --runs 200 [--seed 1] [--window 3.0]

Each run must end within 30 s of the kill, with the status of the killed rank (137), one reason said by the survivors, no
process left, and every file of the run's folder complete or absent. Prints one line of figures; ends with status 1 and the
folder and output of the run on the first fault. tests/python/test_faults.py runs a few of these.
"""
import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT_S = 30
TINY = """
model:
  config: {model_type: qwen3, vocab_size: 32, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2,
           num_attention_heads: 2, num_key_value_heads: 1, head_dim: 16, max_position_embeddings: 64}
data: {task: addition, digits: 3, eval_size: 16, train_batch_size: 16, micro_batch_size_per_gpu: 4, max_length: 64,
       max_response_length: 6}
optim: {optimizer: muon, lr: 1e-3}
trainer: {total_training_steps: 1000000, save_freq: 1, max_ckpt_to_keep: 3, test_freq: 5, seed: 1, threads: 1, device: cpu}
"""


class Fault(Exception):
    pass


def require(holds, text):
    if not holds:
        raise Fault(text)


def ranks_of(launcher):
    """{rank: pid} of the launcher's children that have become ranks by now."""
    found = {}
    try:
        children = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    except FileNotFoundError:
        return found
    for pid in children:
        try:
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        for entry in environment:
            if entry.startswith(b"RANK="):
                found[int(entry[5:])] = int(pid)
    return found


def wait_for_ranks(launcher, ranks):
    """As ranks_of, once all of them have been started."""
    deadline = time.monotonic() + LIMIT_S
    while len(pids := ranks_of(launcher.pid)) < ranks:
        require(launcher.poll() is None, f"the launcher ended by itself with status {launcher.returncode}")
        require(time.monotonic() < deadline, f"{len(pids)} of {ranks} ranks are there after {LIMIT_S} s")
        time.sleep(0.005)
    return pids


def is_running(pid):
    """False also for one that has ended and that nobody has asked about yet."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def check_safetensors(path):
    data = path.read_bytes()
    (header_size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + header_size])
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    require(len(data) == 8 + header_size + max(ends), f"{path} has {len(data)} bytes, its header says other")


def check_events(path):
    data, at = path.read_bytes(), 0
    while at < len(data):
        require(at + 12 <= len(data), f"{path} ends within a record")
        (length,) = struct.unpack("<Q", data[at:at + 8])
        at += 16 + length
    require(at == len(data), f"{path} ends within a record")


def check_file(path):
    name = path.name
    try:
        if name.endswith(".safetensors"):
            check_safetensors(path)
        elif name.endswith(".json"):
            json.loads(path.read_text())
        elif name.endswith(".jsonl"):
            text = path.read_text()
            require(text == "" or text.endswith("\n"), f"{path} ends within a line")
            for line in text.splitlines():
                json.loads(line)
        elif name.endswith((".yaml", ".yml")):
            require(isinstance(yaml.safe_load(path.read_text()), dict), f"{path} is no config")
        elif name.startswith("events.out.tfevents"):
            check_events(path)
    except (ValueError, KeyError, struct.error) as error:
        raise Fault(f"{path} is damaged: {error}") from error


def visible_files(folder):
    """Without those under a temporary name, which are never a result."""
    return [path for path in sorted(folder.rglob("*"))
            if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def check_folder(folder):
    """Every file and every checkpoint under its own name is complete. Returns how many checkpoints stand there."""
    steps = 0
    for path in visible_files(folder):
        check_file(path)
    for path in folder.iterdir():
        if re.fullmatch(r"global_step_\d+", path.name):
            model = path / "actor/huggingface"
            whole = (model / "model.safetensors").exists() and (model / "config.json").exists()
            require(whole or not visible_files(path), f"{path} stands there without all of its files")
            steps += whole
    latest = folder / "latest_checkpointed_iteration.txt"
    if latest.exists():
        step = int(latest.read_text())
        require((folder / f"global_step_{step}/actor/huggingface/model.safetensors").exists(),
                f"{latest} names step {step}, which is not there")
    return steps


def one_run(program, ranks, kill_after, choose, scratch):
    """Kills the rank that `choose` picks out of all, kill_after seconds after they started. Returns the run's figures; throws
    Fault."""
    config = scratch / "sft.yaml"
    config.write_text(TINY)
    folder = scratch / "run"
    output = scratch / "output.txt"
    with output.open("w") as file:
        launcher = subprocess.Popen(
            [program, "sft", config, "--nproc", str(ranks), f"trainer.default_local_dir={folder}"], cwd=ROOT, stdout=file,
            stderr=file, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        pids = wait_for_ranks(launcher, ranks)
        time.sleep(kill_after)
        require(launcher.poll() is None, f"the run ended by itself with status {launcher.returncode}")
        victim = choose(sorted(pids))
        os.kill(pids[victim], signal.SIGKILL)
        killed = time.monotonic()
        try:
            status = launcher.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise Fault(f"still there {LIMIT_S} s after rank {victim} was killed") from error
        took = time.monotonic() - killed
    finally:
        if launcher.poll() is None:
            launcher.kill()
            launcher.wait()
    require(status == 137, f"status {status}, not 137, after rank {victim} was killed")
    for pid in pids.values():
        require(not is_running(pid), f"process {pid} outlived the launcher")
    text = output.read_text()
    errors = [line for line in text.splitlines() if "error:" in line.lower() or "terminate" in line]
    wanted = f"error: rank {victim} was ended by signal 9 (Killed)"
    require(errors and all(line == wanted for line in errors) and len(errors) <= ranks - 1,
            f"the survivors of rank {victim} said {errors}")
    steps = check_folder(folder) if folder.exists() else 0
    return {"victim": victim, "took": took, "steps": steps, "lines": len(text.splitlines())}


def campaign(program, runs, seed, window, ranks=(2, 4)):
    rng = random.Random(seed)
    figures = []
    for index in range(runs):
        scratch = pathlib.Path(tempfile.mkdtemp(prefix="muoncore_fault_"))
        n, kill_after = ranks[index % len(ranks)], rng.random() * window
        try:
            figures.append(one_run(program, n, kill_after, rng.choice, scratch))
        except Fault as fault:
            output = scratch / "output.txt"
            raise Fault(f"run {index} ({n} ranks, killed after {kill_after:.2f} s, folder {scratch}): {fault}\n"
                        f"{output.read_text() if output.exists() else ''}") from fault
        shutil.rmtree(scratch)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build/release/muoncore"))
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--window", type=float, default=3.0, help="seconds after the ranks' start within which a rank is killed")
    arguments = parser.parse_args()
    begin = time.monotonic()
    try:
        figures = campaign(arguments.program, arguments.runs, arguments.seed, arguments.window)
    except Fault as fault:
        raise SystemExit(f"fault: {fault}") from fault
    took = sorted(figure["took"] for figure in figures)
    print(f"{len(figures)} runs in {time.monotonic() - begin:.0f} s: ended {took[len(took) // 2]:.2f} s after the kill (median), "
          f"{took[-1]:.2f} s (most); rank 0 killed in {sum(f['victim'] == 0 for f in figures)}; "
          f"with checkpoints in {sum(f['steps'] > 0 for f in figures)}; no damaged file, no other error")


if __name__ == "__main__":
    main()
