"""`muoncore generate` against transformers' greedy generation, on tiny random models of each family."""

import json
import os
import pathlib
import subprocess

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("MUONCORE_PROGRAM", str(ROOT / "build/release/muoncore"))
NEW_TOKENS = 48
PROMPTS = [
    "The capital of France is",
    "a",
    "def f(x):\n    return x + 1\n",
    "Zahlen: 12 + 345 = äöü, 漢字, 🙂.",
    "  two  spaces and a tab\t",
]
CORPUS = PROMPTS + [  # fixed: another corpus is another tokenizer, and other near ties further down
    "the quick brown fox jumps over the lazy dog and then the other fox jumps over the other dog",
    "in the beginning there was the word and the word was in the text that the model had read",
    "return the sum of the first and the second number, then print the result of the function",
    "one two three four five six seven eight nine ten, and then the numbers begin again with one",
]
SIZES = dict(
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    initializer_range=0.2,
)
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def train_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return tokenizer


def configs(vocab_size):
    common = dict(vocab_size=vocab_size, bos_token_id=None, pad_token_id=None, eos_token_id=0, **SIZES)
    llama3 = {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    return {
        "llama": transformers.LlamaConfig(rope_parameters=llama3, **common),
        "smollm2": transformers.LlamaConfig(tie_word_embeddings=True, **common),
        "qwen2": transformers.Qwen2Config(**common),
        "qwen3": transformers.Qwen3Config(head_dim=16, **common),
    }


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """{family: (folder, model)}; vocabulary padded beyond the tokenizer's, as real models do."""
    torch.set_num_threads(1)
    tokenizer = train_tokenizer()
    made = {}
    for seed, (family, config) in enumerate(configs(tokenizer.get_vocab_size() + 8).items()):
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" in name or name.endswith("bias"):  # at 1 and 0 they would hide a mistake
                    parameter.add_(0.3 * torch.randn_like(parameter))
        folder = tmp_path_factory.mktemp("models") / family
        model.save_pretrained(folder)
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"eos_token": "<|endoftext|>", "chat_template": CHATML})
        )
        made[family] = (folder, model)
    return made


def run(*arguments, stdin=None):
    """Bytes through and through: text mode would turn a generated carriage return into a newline."""
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    command = [PROGRAM, "generate", *map(str, arguments)]
    given = None if stdin is None else stdin.encode()
    done = subprocess.run(command, input=given, capture_output=True, env=environment, timeout=120)
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    return done


def generate(*arguments, stdin=None):
    done = run(*arguments, "--json", stdin=stdin)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def greedy(model, ids, stop_ids=(0,)):
    """transformers' own greedy continuation, and the smallest gap between the first two logits on its way."""
    out = model.generate(
        torch.tensor([ids]),
        do_sample=False,
        max_new_tokens=NEW_TOKENS,
        eos_token_id=list(stop_ids),
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    top = torch.stack([step[0] for step in out.logits]).topk(2, dim=-1).values
    return out.sequences[0, len(ids):].tolist(), (top[:, 0] - top[:, 1]).min().item()


@pytest.mark.parametrize("family", ["llama", "smollm2", "qwen2", "qwen3"])
def test_greedy_equals_transformers_token_by_token(folders, family):
    folder, model = folders[family]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    longest = 0
    for prompt in PROMPTS:
        ours = generate(folder, "--prompt", prompt, "--max-new-tokens", NEW_TOKENS)
        assert ours["prompt_ids"] == tokenizer.encode(prompt).ids
        expected, gap = greedy(model, ours["prompt_ids"])
        assert gap > 1e-4, "a tie: choose another seed for the random model"
        assert ours["ids"] == expected
        assert ours["text"] == tokenizer.decode(expected)
        assert ours["finish_reason"] == ("stop" if expected[-1] == 0 else "length")
        longest = max(longest, len(expected))
    assert longest >= 40


def test_streamed_text_is_the_text_of_json_whole_characters_only(folders):
    folder, _ = folders["qwen3"]
    for seed in range(3):
        sampling = ["--temperature", 1.5, "--seed", seed, "--max-new-tokens", 60, "--prompt", "a"]
        whole = generate(folder, *sampling)
        done = run(folder, *sampling)
        assert done.returncode == 0, done.stderr
        assert done.stdout == whole["text"] + "\n"


def test_sampling_depends_on_the_seed_alone(folders):
    folder, _ = folders["llama"]
    draw = lambda *more: generate(folder, "--prompt", "a", "--temperature", 1, *more)["ids"]
    assert draw("--seed", 1) == draw("--seed", 1)
    assert draw("--seed", 1) != draw("--seed", 2)
    likeliest = generate(folder, "--prompt", "a")["ids"]
    assert draw("--top-k", 1) == likeliest
    assert draw("--top-p", 1e-6) == likeliest
    assert draw("--seed", 1) != likeliest


def test_prompt_from_standard_input(folders):
    folder, _ = folders["qwen2"]
    prompt = "zwei\nZeilen é\n"
    assert generate(folder, "--prompt", "-", stdin=prompt) == generate(folder, "--prompt", prompt)


def test_chat_wraps_the_prompt_and_ends_at_the_turn(folders):
    folder, model = folders["qwen2"]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ours = generate(folder, "--prompt", "Hello", "--chat", "--max-new-tokens", NEW_TOKENS)
    wrapped = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert ours["prompt_ids"] == tokenizer.encode(wrapped).ids
    assert ours["ids"] == greedy(model, ours["prompt_ids"], stop_ids=(0, tokenizer.token_to_id("<|im_end|>")))[0]


def test_stop_text_is_cut_where_it_begins(folders):
    folder, _ = folders["llama"]
    arguments = [folder, "--prompt", "The", "--max-new-tokens", 60]
    text = generate(*arguments)["text"]
    stop = text[20:24]  # spans tokens
    cut = generate(*arguments, "--stop", "never in it \x01", "--stop", stop)
    assert cut["text"] == text[: text.index(stop)]
    assert cut["finish_reason"] == "stop"
    assert run(*arguments, "--stop", stop).stdout == cut["text"] + "\n"
    assert generate(*arguments, "--stop", "never in it \x01")["text"] == text


def test_bfloat16_runs(folders):
    folder, _ = folders["smollm2"]
    assert len(generate(folder, "--prompt", "a", "--dtype", "bfloat16", "--max-new-tokens", 5)["ids"]) >= 1


def refused(*arguments, status=1, stdin=None):
    done = run(*arguments, stdin=stdin)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    if status == 1:
        assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    return done.stderr


def test_refusals_are_one_clear_sentence(folders, tmp_path):
    folder, _ = folders["qwen3"]
    assert "nowhere" in refused(tmp_path / "nowhere", "--prompt", "a")
    assert "empty" in refused(folder, "--prompt", "")
    assert "max_position_embeddings" in refused(folder, "--prompt", "x y z " * 60)
    assert "at most 127" in refused(folder, "--prompt", "a", "--max-new-tokens", 128)
    assert "top_p" in refused(folder, "--prompt", "a", "--temperature", 1, "--top-p", 1.5)
    assert "top_k" in refused(folder, "--prompt", "a", "--temperature", 1, "--top-k", 0)
    assert "--stop" in refused(folder, "--prompt", "a", "--stop", "")
    assert "--temperature" in refused(folder, "--prompt", "a", "--temperature", -1, status=2)
    assert "--dtype" in refused(folder, "--prompt", "a", "--dtype", "float8", status=2)
    assert "--prompt" in refused(folder, status=2)


def test_a_folder_without_weights_or_with_a_larger_tokenizer_is_refused(folders, tmp_path):
    folder, _ = folders["qwen3"]
    (tmp_path / "bare").mkdir()
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"]:
        (tmp_path / "bare" / name).write_bytes((folder / name).read_bytes())
    assert "bare" in refused(tmp_path / "bare", "--prompt", "a")

    grown = tmp_path / "grown"
    grown.mkdir()
    for file in folder.iterdir():
        (grown / file.name).write_bytes(file.read_bytes())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([f"extra{i}" for i in range(20)])
    tokenizer.save(str(grown / "tokenizer.json"))
    assert "embedding rows" in refused(grown, "--prompt", "a")
