"""The loader, the transformer and the safetensors code, judged by transformers and PyPI's safetensors.

The cases are written here, read and compared by the C++ tests (HfGolden, SafetensorsPypi), and what these write is read
again here.
"""
import json
import os
import pathlib
import random
import struct
import subprocess

import pytest
import safetensors
import safetensors.torch
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("MUONCORE_PROGRAM", ROOT / "build/release/muoncore"))
TESTS = PROGRAM.parent / "tests"

SIZES = dict(vocab_size=61, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.2, pad_token_id=0,
             bos_token_id=1, eos_token_id=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=1000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=16)

# name: (model class prefix, config, how it is saved)
CASES = {
    "llama": ("Llama", dict(), {}),
    "llama3_rope_biases": ("Llama", dict(rope_parameters=LLAMA3, attention_bias=True, mlp_bias=True), {}),
    "llama_linear_rope_mha": ("Llama", dict(rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=2.0),
                                            num_key_value_heads=6, rms_norm_eps=1e-5), {}),
    "llama_yarn": ("Llama", dict(rope_parameters=YARN, head_dim=16), {}),
    "llama_yarn_mscale": ("Llama", dict(rope_parameters=dict(YARN, mscale=0.7, mscale_all_dim=1.3, beta_fast=16.0,
                                                             truncate=False)), {}),
    "smollm2": ("Llama", dict(tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1e5),
                              rms_norm_eps=1e-5), {}),
    "qwen2": ("Qwen2", dict(rope_parameters=dict(rope_type="default", rope_theta=1e6)), {}),
    "qwen2_tied_sharded": ("Qwen2", dict(tie_word_embeddings=True), dict(max_shard_size="40KB")),
    "qwen3": ("Qwen3", dict(head_dim=16, rope_parameters=dict(rope_type="default", rope_theta=1e6)), {}),
    "qwen3_sharded_biases": ("Qwen3", dict(head_dim=8, attention_bias=True), dict(max_shard_size="40KB")),
    "qwen3_tied_bf16": ("Qwen3", dict(head_dim=8, tie_word_embeddings=True), dict(dtype=torch.bfloat16)),
}
OLD_KEYS = ("llama", "llama3_rope_biases", "llama_yarn", "qwen3")  # also saved with transformers 4's spellings


def make_model(kind, extra):
    import transformers
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **extra})
    torch.manual_seed(sum(map(ord, kind)) + len(extra))
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, param in model.named_parameters():
            if param.dim() == 1:  # norms start at 1 and biases at 0, which would not show whether they are used
                param += 0.3 * torch.randn_like(param)
            elif "embed" in name or "lm_head" in name:
                param.copy_(0.5 * torch.randn_like(param))
    return model


def logits_of(folder, ids):
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(input_ids=ids).logits


def use_old_keys(folder):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config))


def write_case(folder, kind, extra, how):
    model = make_model(kind, extra)
    if "dtype" in how:
        model = model.to(how["dtype"])
    model.save_pretrained(folder / "model", **{k: v for k, v in how.items() if k != "dtype"})
    ids = torch.randint(0, SIZES["vocab_size"], (3, 23), generator=torch.Generator().manual_seed(5))
    # read from the folder: a model cast to bf16 in memory has lost bits of its rotary frequencies, too
    logits = logits_of(folder / "model", ids)
    safetensors.torch.save_file({"ids": ids, "logits": logits}, folder / "case.safetensors")


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    root = tmp_path_factory.mktemp("hf")
    for name, (kind, extra, how) in CASES.items():
        (root / name).mkdir()
        write_case(root / name, kind, extra, how)
        if name in OLD_KEYS:
            old = root / f"{name}_old_keys"
            old.mkdir()
            write_case(old, kind, extra, how)
            use_old_keys(old / "model")
    return root


def run_cpp(binary, filter_, **env):
    result = subprocess.run([TESTS / binary, f"--gtest_filter={filter_}"], capture_output=True, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1", **{k: str(v) for k, v in env.items()}})
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert "SKIPPED" not in result.stdout and "[  PASSED  ]" in result.stdout, result.stdout


def test_sharded_cases_are_sharded(cases):
    for name in ("qwen2_tied_sharded", "qwen3_sharded_biases"):
        assert len(list((cases / name / "model").glob("model-*.safetensors"))) > 1


def test_logits_and_what_is_saved_again(cases):
    run_cpp("test_models", "HfGolden.*", MUONCORE_HF_CASES=cases)
    folders = sorted(path for path in cases.iterdir())
    assert len(folders) == len(CASES) + len(OLD_KEYS)
    for folder in folders:
        case = safetensors.torch.load_file(folder / "case.safetensors")
        logits = logits_of(folder / "saved", case["ids"])
        assert (logits - case["logits"]).abs().max() < 1e-5, folder.name


def mutated(header, rng):
    """A header with one to three edits: characters changed, dropped, added or moved about, numbers replaced."""
    text = bytearray(header)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(text))
        kind = rng.randrange(5)
        if kind == 0:
            text[at] = rng.choice(b'{}[]",:0123456789-+.eEFU\\ \n')
        elif kind == 1:
            del text[at:at + rng.randint(1, 6)]
        elif kind == 2:
            text[at:at] = rng.choice([b" ", b"0", b"\\u0041", b"[", b'"x":1,', b"null", b"1.5", b"-1"])
        elif kind == 3:
            text[at] = rng.randrange(256)
        else:
            text[at:at] = text[at:at + rng.randint(1, 30)]
    return bytes(text)


def write_safetensors_cases(root):
    (root / "same").mkdir()
    (root / "mutated").mkdir()
    torch_types = ("bool uint8 int8 int16 uint16 float16 bfloat16 int32 uint32 float32 float64 int64 uint64 "
                   "float8_e4m3fn float8_e5m2 complex64").split()
    every = {name: torch.arange(6).reshape(2, 3).to(getattr(torch, name)) for name in torch_types}
    safetensors.torch.save_file(every, root / "same" / "types", {"format": "pt"})
    layers = {f"model.layers.{i}.w": torch.randn(i, 2) for i in range(12)}
    safetensors.torch.save_file({**layers, "scalar": torch.tensor(1.5), 'quo"te\té': torch.zeros(0, 4)},
                                root / "same" / "layers")
    safetensors.torch.save_file({}, root / "same" / "none", {"format": "pt"})

    small = safetensors.torch.save({"a": torch.zeros(2, 2), "b": torch.zeros(3, dtype=torch.bfloat16)},
                                   {"format": "pt"})
    length, = struct.unpack("<Q", small[:8])
    header, data = small[8:8 + length], small[8 + length:]
    rng = random.Random(2026)
    for i in range(3000):
        edited = mutated(header, rng)
        file = struct.pack("<Q", len(edited)) + edited + data[:len(data) - rng.choice([0] * 20 + [1, 2])]
        try:
            safetensors.deserialize(file)
            verdict = "ok"
        except safetensors.SafetensorError:
            verdict = "bad"
        (root / "mutated" / f"{verdict}_{i}").write_bytes(file)


def test_safetensors_equal_pypi(tmp_path):
    write_safetensors_cases(tmp_path)
    run_cpp("test_io", "SafetensorsPypi.*", MUONCORE_SAFETENSORS_CASES=tmp_path)
