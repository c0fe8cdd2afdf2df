"""SmolLM2-135M-Instruct as examples/smollm2/prepare.py makes it: skipped unless the folder is there (270 MB, from a
download of 93 MB)."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "models" / "SmolLM2-135M-Instruct"
PROGRAM = pathlib.Path(os.environ.get("MUONCORE_PROGRAM", ROOT / "build/release/muoncore"))
pytestmark = pytest.mark.skipif(not (FOLDER / "model.safetensors").exists(),
                                reason=f"{FOLDER} is not there: run examples/smollm2/prepare.py")


def test_running_it_again_changes_nothing():
    before = {path: path.stat().st_mtime_ns for path in FOLDER.iterdir()}
    out = subprocess.run([sys.executable, ROOT / "examples/smollm2/prepare.py"], capture_output=True, text=True, check=True)
    assert "nothing to do" in out.stdout
    assert {path: path.stat().st_mtime_ns for path in FOLDER.iterdir()} == before


def test_the_tokenizer_splits_digits_and_returns_every_text():
    import tokenizers
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == 49152
    for text in ("The capital of France is", "12+25=37\n", "naïve café 日本 🙂\t x  y", " def f(x):\n    return x's\r\n"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.encode("12+345=").tokens == ["1", "2", "+", "3", "4", "5", "="]
    chat = tokenizer.encode("<|im_start|>user\nHi<|im_end|>\n")
    assert chat.ids[0] == 1 and 2 in chat.ids
    assert tokenizer.decode(chat.ids) == "user\nHi\n"


def test_transformers_answers_paris():
    import torch
    import transformers
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    out = model.generate(**prompt, max_new_tokens=6, do_sample=False)
    assert "Paris" in tokenizer.decode(out[0][prompt["input_ids"].shape[1]:])
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "What is the capital of France?"}], tokenize=False,
                                         add_generation_prompt=True)
    assert chat.endswith("<|im_end|>\n<|im_start|>assistant\n")
    prompt = tokenizer(chat, return_tensors="pt")
    out = model.generate(**prompt, max_new_tokens=16, do_sample=False)
    assert "Paris" in tokenizer.decode(out[0][prompt["input_ids"].shape[1]:])


def test_the_program_answers_as_transformers_token_by_token():
    import torch
    import transformers
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32)
    for text in ("The capital of France is", "3+4=7\n12+25=37\n18+31=", "def fibonacci(n):\n"):
        prompt = tokenizer(text, return_tensors="pt")
        out = model.generate(**prompt, max_new_tokens=24, do_sample=False)[0].tolist()
        ours = subprocess.run([PROGRAM, "generate", FOLDER, "--prompt", text, "--max-new-tokens", "24", "--json"],
                              capture_output=True, text=True, check=True)
        answer = json.loads(ours.stdout.splitlines()[-1])
        assert answer["prompt_ids"] + answer["ids"] == out
