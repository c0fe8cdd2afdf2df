"""A rank that is killed: a few runs of the campaign of tools/faults.py, which `make soak` runs 200 times."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("MUONCORE_PROGRAM", str(ROOT / "build/release/muoncore"))
sys.path.insert(0, str(ROOT / "tools"))
import faults  # noqa: E402


@pytest.mark.parametrize("ranks, kill_after, victim", [(2, 0, 1), (2, 1.5, 0), (2, 2.5, 1), (4, 2.5, 0), (4, 3.0, 3)])
def test_a_killed_rank_ends_all(tmp_path, ranks, kill_after, victim):
    figures = faults.one_run(PROGRAM, ranks, kill_after, lambda _: victim, tmp_path)
    assert figures["took"] < faults.LIMIT_S


def test_the_campaign_notices_damage(tmp_path):
    """Files as an interrupted program without temporary names would leave them."""
    for name, content in {"a.safetensors": b"\x40" + bytes(20), "a.json": b'{"a": ', "m.jsonl": b'{"step": 1}\n{"st',
                          "events.out.tfevents.1": bytes(20)}.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(content)
        with pytest.raises(faults.Fault):
            faults.check_folder(folder)
    model = tmp_path / "steps/global_step_3/actor/huggingface"
    model.mkdir(parents=True)
    assert faults.check_folder(tmp_path / "steps") == 0
    (model / "config.json").write_text("{}")
    with pytest.raises(faults.Fault, match="without all of its files"):
        faults.check_folder(tmp_path / "steps")


def test_a_launcher_that_is_killed_takes_its_ranks_along(tmp_path):
    config = tmp_path / "sft.yaml"
    config.write_text(faults.TINY)
    launcher = subprocess.Popen([PROGRAM, "sft", config, "--nproc", "2", f"trainer.default_local_dir={tmp_path / 'run'}"],
                                cwd=ROOT, stderr=subprocess.DEVNULL)
    pids = faults.wait_for_ranks(launcher, 2)
    launcher.kill()
    launcher.wait()
    for _ in range(200):
        alive = [pid for pid in pids.values() if faults.is_running(pid)]
        if not alive:
            return
        faults.time.sleep(0.05)
    raise AssertionError(f"ranks {alive} outlived their launcher")
