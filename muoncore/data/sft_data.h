// Examples for supervised fine-tuning: from JSON lines, or from a task's teacher.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "muoncore/data/tokenizer.h"

namespace muoncore::data {

class Task;

struct SftExample {
  std::vector<int64_t> ids;
  // as long as ids: 1 where the token is a target (never the first one)
  std::vector<uint8_t> loss_mask;
};

class SftData {
 public:
  virtual ~SftData() = default;
  // Example at `position` >= 0 of the endless sequence of epochs; each epoch is a permutation keyed
  // by (seed, epoch).
  virtual SftExample example(int64_t position) const = 0;
  virtual int64_t size() const = 0;  // examples of one epoch
};

struct SftOptions {
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t max_length = 1024;           // tokens of prompt and response together
  std::string truncation = "error";    // error, left, right (the side that is cut away)
  int64_t max_samples = -1;            // the first so many lines; -1: all
  std::string chat_template = "auto";  // for `messages`: see chat_template.h
};

// Lines {"prompt": text, "response": text} or {"messages": [{"role", "content"}, ...]}; files of
// either kind, each line judged alone. prompt/response: the texts as they are, the response and the
// EOS after it are the targets. messages: every assistant turn with its end token is a target.
// Throws `Error` with file:line.
std::unique_ptr<SftData> load_sft_jsonl(const std::vector<std::filesystem::path>& files,
                                        std::shared_ptr<const Tokenizer> tokenizer,
                                        const SftOptions& options);

// The teacher of a task as SFT data.
std::unique_ptr<SftData> teacher_sft_data(std::shared_ptr<const Task> task);

}  // namespace muoncore::data
