"""`muoncore plan` as its users see it, and the table of docs/plan.md.

    python tests/python/test_plan.py     writes the table anew
"""

import json
import os
import pathlib
import re
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("MUONCORE_PROGRAM", str(ROOT / "build/release/muoncore"))
DOCS = ROOT / "docs/plan.md"
BEGIN, END = "<!-- table: made by tests/python/test_plan.py -->\n", "<!-- end of table -->\n"

SIZES = [
    ("gpt2-small", [dict(dp=n) for n in (4, 8, 16, 32, 64)]),
    ("llama-1b", [dict(dp=n) for n in (4, 8, 16, 32)]),
    ("qwen3-30b-a3b", [dict(dp=16), dict(dp=64), dict(dp=8, tp=2, ep=8), dict(dp=16, ep=16),
                       dict(dp=8, tp=4, ep=8), dict(dp=32, tp=2, ep=8), dict(dp=64, ep=8),
                       dict(dp=8, tp=2, ep=8, pp=4)]),
]


def run(*args):
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    return subprocess.run([PROGRAM, "plan", *map(str, args)], capture_output=True, text=True,
                          timeout=60, env=environment)


def plan(model, layout="balanced", **sizes):
    options = [word for name, size in sizes.items() for word in (f"--{name}", size)]
    result = run("--model", model, "--layout", layout, "--json", *options)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def table():
    rows = ["| model | ranks | layout | work max/mean | bound | padding | AdamW GiB | Muon GiB (worst) "
            "| saved GiB | sent, AdamW GiB | sent, Muon GiB (worst) |",
            "|---|---|---|---|---|---|---|---|---|---|---|"]
    for model, all_sizes in SIZES:
        for sizes in all_sizes:
            ranks = " ".join(f"{name}{size}" for name, size in sizes.items())
            for layout in ("balanced", "megatron"):
                p = plan(model, layout, **sizes)
                gib = lambda b: f"{b / 2**30:.2f}"
                adamw, muon = (p["bytes_per_rank"][arm]["total"] for arm in ("adamw", "muon"))
                sent = p["bytes_sent_per_step"]
                rows.append(
                    f"| {model} | {ranks} | {layout} | {p['ns_imbalance']:.3f} "
                    f"| {p['ns_imbalance_bound']:.3f} | {100 * p['padding_fraction']:.1f} % "
                    f"| {gib(adamw['mean'])} | {gib(muon['mean'])} ({gib(muon['worst'])}) "
                    f"| {p['adamw_minus_muon_gib']:.2f} | {gib(sent['adamw']['mean'])} "
                    f"| {gib(sent['muon']['mean'])} ({gib(sent['muon']['worst'])}) |")
    return "\n".join(rows) + "\n"


def test_the_table_of_the_docs_is_what_the_program_says():
    text = DOCS.read_text()
    assert text.split(BEGIN)[1].split(END)[0] == table()


@pytest.mark.parametrize("model, sizes, most", [
    ("gpt2-small", dict(dp=16), 1.10), ("llama-1b", dict(dp=16), 1.02),
    ("llama-1b", dict(dp=32), 1.09), ("qwen3-30b-a3b", dict(dp=64), 1.02),
    ("qwen3-30b-a3b", dict(dp=64, ep=8), 1.02),
])
def test_targets(model, sizes, most):
    p = plan(model, **sizes)
    assert p["ns_imbalance"] <= most
    assert p["ns_imbalance_bound"] <= p["ns_imbalance"] + 1e-12
    assert p["padding_fraction"] <= 0.02
    sent = p["bytes_sent_per_step"]
    assert sent["muon"]["mean"] <= sent["adamw"]["mean"] * (1 + 1e-12)
    assert sent["muon"]["worst"] <= 1.1 * sent["adamw"]["worst"]


def test_the_gap_of_the_pull_request():
    p = plan("qwen3-30b-a3b", dp=8, tp=2, ep=8)
    assert p["world"] == 16 and p["expert_dp"] == 2
    assert round(p["adamw_minus_muon_gib"], 2) == 6.97
    means = {arm: {k: v["mean"] for k, v in p["bytes_per_rank"][arm].items()}
             for arm in ("adamw", "muon")}
    for bytes_of in means.values():
        parts = ("masters", "momentum", "exp_avg", "exp_avg_sq")
        assert sum(bytes_of[k] for k in parts) == pytest.approx(bytes_of["optimizer"])
        assert sum(bytes_of[k] for k in ("parameters", "gradients", "optimizer")) == \
            pytest.approx(bytes_of["total"])
    gap = means["adamw"]["total"] - means["muon"]["total"]
    assert gap / 2**30 == pytest.approx(p["adamw_minus_muon_gib"])
    # With our own routing the routers stay with AdamW.
    result = run("--model", "qwen3-30b-a3b", "--dp", 8, "--tp", 2, "--ep", 8, "--router", "adam",
                 "--json")
    assert round(json.loads(result.stdout)["adamw_minus_muon_gib"], 2) == 6.96


def test_megatrons_published_figures():
    p = plan("gpt2-small", "megatron", dp=16)
    assert round(p["ns_imbalance_megatron"], 2) == 1.56
    assert round(100 * p["padding_fraction"], 1) == 77.8


def test_it_takes_seconds_for_a_thousand_ranks():
    start = time.monotonic()
    p = plan("qwen3-30b-a3b", dp=1024, ep=8)
    assert p["world"] == 1024
    assert time.monotonic() - start < 30  # about one second; a guard, not a measurement


def test_the_text_for_people():
    result = run("--model", "gpt2-small", "--dp", 64)
    assert result.returncode == 0 and result.stderr == ""
    assert "gpt2-small: 124,439,808 parameters" in result.stdout
    assert "48 for 64 ranks" in result.stdout and "1.714" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 130


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "sft.yaml"
    file.write_text("""\
model:
  config: {model_type: qwen3, vocab_size: 32, hidden_size: 64, intermediate_size: 128,
           num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, head_dim: 16}
data: {task: addition}
optim: {optimizer: muon}
""")
    return file


def test_a_config_is_planned_with_its_own_settings(config):
    p = json.loads(run(config, "--dp", 2, "--json").stdout)
    matrices = 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64)
    rest = 2 * 32 * 64 + 2 * (2 * 64 + 2 * 16) + 64
    assert p["parameters"] == matrices + rest and p["muon_parameters"] == matrices
    assert p["bucket_size"] is None and p["layout"] == "balanced"
    muon = p["bytes_per_rank"]["muon"]
    assert muon["masters"]["mean"] == 0  # fp32
    assert muon["momentum"]["mean"] == 4 * matrices / 2
    assert muon["exp_avg"]["mean"] == 4 * rest / 2
    # Norms of 16 elements are padded to 64.
    assert muon["parameters"]["mean"] == 4 * (matrices + rest + 4 * 48)

    bf16 = json.loads(run(config, "engine.dtype=bfloat16", "--json").stdout)
    assert bf16["world"] == 1
    assert bf16["bytes_per_rank"]["muon"]["masters"]["mean"] == 4 * (matrices + rest)


@pytest.mark.parametrize("kind, more", [
    ("Qwen2", dict(tie_word_embeddings=True)), ("Llama", dict(attention_bias=True, mlp_bias=True)),
    ("Qwen3", dict(head_dim=32)),
])
def test_parameters_are_those_of_transformers(tmp_path, kind, more):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    settings = getattr(transformers, kind + "Config")(
        vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, **more)
    with torch.device("meta"):
        model = getattr(transformers, kind + "ForCausalLM")(settings)
    settings.save_pretrained(tmp_path)
    file = tmp_path / "sft.yaml"
    file.write_text(f"model: {{hf_config_path: {tmp_path}/config.json}}\n"
                    "data: {task: addition}\noptim: {optimizer: muon}\n")
    result = run(file, "--dp", 3, "--json")
    assert result.returncode == 0, result.stderr
    p = json.loads(result.stdout)
    params = dict(model.named_parameters())
    assert p["parameters"] == sum(t.numel() for t in params.values())
    body = [t.numel() for name, t in params.items() if name.endswith("_proj.weight")]
    assert (p["muon_parameters"], p["muon_matrices"]) == (sum(body), len(body))


def test_an_example_is_planned():
    result = run(ROOT / "examples/addition/sft.yaml", "--dp", 4)
    assert result.returncode == 0, result.stderr
    assert "796,032 parameters" in result.stdout
    # The model of its second part is made by the first.
    result = run(ROOT / "examples/addition/grpo.yaml", "--dp", 4,
                 "actor_rollout_ref.model.path=/nowhere/model")
    assert result.returncode == 1 and "/nowhere/model/config.json" in result.stderr


@pytest.mark.parametrize("args, why", [
    ([], "plan needs either a config file or --model (gpt2-small, llama-1b, qwen3-30b-a3b), "
         "and has none"),
    (["--model", "lama-1b"], "did you mean llama-1b?"),
    (["--model", "gpt2-small", "--tp", 5], "tp 5 does not divide the 12 attention heads"),
    (["--model", "gpt2-small", "--pp", 5], "pp 5 does not divide the 12 layers"),
    (["--model", "gpt2-small", "--ep", 2], "gpt2-small has no experts"),
    (["--model", "gpt2-small", "--dp", 0], "dp 0 must be at least 1"),
    (["--model", "qwen3-30b-a3b", "--ep", 3], "ep 3 does not divide the 128 experts"),
    (["--model", "qwen3-30b-a3b", "--ep", 2], "does not divide the 1 ranks"),
    (["--model", "gpt2-small", "--layout", "megatrom"], "did you mean megatron?"),
    (["--model", "gpt2-small", "--bucket-size", 0], "bucket_size 0 must be at least 1"),
    (["--model", "gpt2-small", "--router", "adam"], "gpt2-small has no experts"),
    ([ROOT / "examples/addition/compare.yaml"], "a compare config plans several runs"),
])
def test_refusals_are_one_sentence(args, why):
    result = run(*args)
    assert result.returncode == 1
    assert result.stdout == ""
    assert re.fullmatch(r"error: [^\n]+\n", result.stderr)
    assert why in result.stderr


if __name__ == "__main__":
    before, rest = DOCS.read_text().split(BEGIN)
    DOCS.write_text(before + BEGIN + table() + END + rest.split(END)[1])
