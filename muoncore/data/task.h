// Tasks with a reward that a program can verify. A task hands out prompts by index: prompt k is a
// pure function of (options, k), so a resumed run goes on with the next index. Training and
// held-out prompts never meet.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "muoncore/data/sft_data.h"
#include "muoncore/data/tokenizer.h"

namespace muoncore::data {

struct Prompt {
  std::vector<int64_t> ids;
  std::string text;
  std::string data_source;   // verl's key: which task or data set it comes from
  std::string ground_truth;  // what the reward compares with
};

class Task {
 public:
  virtual ~Task() = default;

  // Any index >= 0. Prompts come in epochs: each epoch is a permutation of the training prompts
  // keyed by (seed, epoch).
  virtual Prompt train_prompt(int64_t index) const = 0;
  virtual int64_t train_size() const = 0;  // prompts of one epoch

  // Held-out prompts, 0 <= index < eval_size(): the same for every seed.
  virtual Prompt eval_prompt(int64_t index) const = 0;
  virtual int64_t eval_size() const = 0;

  // Reward of a response (special tokens left out) to `prompt`, in [0, 1].
  virtual double reward(const Prompt& prompt, const std::string& response_text) const = 0;

  // Example `index` (any >= 0) of the task's teacher, on training prompts only. Throws where the
  // task has no teacher.
  virtual SftExample sft_example(int64_t index) const = 0;

  // Ids that end a response: the tokenizer's stop ids and those of the task. Ascending.
  virtual const std::vector<int64_t>& stop_ids() const = 0;
};

struct TaskOptions {
  std::string name;                 // addition, addition_text, countdown, jsonl
  uint64_t seed = 0;                // order of the training prompts, and the teacher's errors
  bool shuffle = true;              // jsonl: off keeps the files' order
  int64_t eval_size = 512;          // held-out prompts of the generated tasks
  int64_t max_prompt_length = 512;  // tokens
  // verl's: error, left, right, middle (the part that is cut away)
  std::string truncation = "error";

  std::optional<int64_t> digits;  // addition: 3, addition_text: 2 when not set
  // addition: 0.6 (forgets every carry), countdown: 0.7 (any expression)
  std::optional<double> teacher_error;

  std::vector<std::filesystem::path> train_files;  // jsonl
  std::vector<std::filesystem::path> val_files;    // jsonl
  int64_t train_max_samples = -1;                  // jsonl: the first so many lines; -1: all
  std::string prompt_key = "prompt";               // jsonl
  std::string reward_fn = "gsm8k";                 // jsonl: gsm8k, exact
  bool filter_overlong_prompts = false;            // jsonl: drop instead of truncating
  std::string chat_template = "auto";  // jsonl prompts made of messages: see chat_template.h
};

// Throws `Error` for an unknown name (with the nearest), an impossible option, or a faulty file
// (file:line).
std::unique_ptr<Task> make_task(const TaskOptions& options,
                                std::shared_ptr<const Tokenizer> tokenizer);

// verl's GSM8K reward (utils/reward_score/gsm8k.py, method "strict"): the last `#### number` in the
// last 300 characters, without `,` and `$`, equal to `ground_truth` as a string: 1, else 0.
double gsm8k_reward(std::string_view response, std::string_view ground_truth);

}  // namespace muoncore::data
