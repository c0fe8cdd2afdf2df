#include "muoncore/data/sft_data.h"

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"
#include "muoncore/data/chat_template.h"
#include "muoncore/data/generated_task.h"
#include "muoncore/data/jsonl_reader.h"
#include "muoncore/data/permutation.h"
#include "muoncore/data/truncation.h"

namespace muoncore::data {
namespace {

SftExample read_pair(const JsonNode& line, const Tokenizer& tokenizer) {
  check(tokenizer.eos_id().has_value(),
        "{}: a response ends with an EOS, and the tokenizer has none", line.place());
  std::vector<int64_t> prompt =
      tokenizer.encode(line.at("prompt").text(), /*add_special_tokens=*/true);
  if (prompt.empty()) line.at("prompt").refuse("the prompt has no tokens");
  std::vector<int64_t> response = tokenizer.encode(line.at("response").text());
  if (response.empty()) line.at("response").refuse("the response has no tokens");
  response.push_back(*tokenizer.eos_id());
  return make_example(std::move(prompt), response);
}

SftExample read_example(const JsonNode& line, const Tokenizer& tokenizer,
                        const SftOptions& options) {
  auto messages = line.find("messages");
  bool pair = line.find("prompt") || line.find("response");
  check(!(messages && pair), "{} has both messages and prompt or response; one form is allowed",
        line.place());
  check(messages || pair, "{} has neither the keys prompt and response nor the key messages",
        line.place());
  if (pair) return read_pair(line, tokenizer);
  ChatTemplate chat = resolve_chat_template(options.chat_template, tokenizer);
  return encode_chat(chat, tokenizer, read_messages(*messages));
}

class JsonlSftData final : public SftData {
 public:
  JsonlSftData(const std::vector<std::filesystem::path>& files, const Tokenizer& tokenizer,
               const SftOptions& options)
      : options_(options) {
    for (const JsonLine& line : read_jsonl(files, options.max_samples)) {
      SftExample example = read_example(line.node(), tokenizer, options);
      auto ranges = kept_ranges(static_cast<int64_t>(example.ids.size()), options.max_length,
                                options.truncation, line.where);
      example = {keep(example.ids, ranges), keep(example.loss_mask, ranges)};
      example.loss_mask.front() = 0;  // nothing stands in front of it to predict it from
      bool any = std::find(example.loss_mask.begin(), example.loss_mask.end(), 1) !=
                 example.loss_mask.end();
      check(any, "{} has no target: no assistant turn, or none left within {} tokens", line.where,
            options.max_length);
      examples_.push_back(std::move(example));
    }
  }
  int64_t size() const override { return static_cast<int64_t>(examples_.size()); }
  SftExample example(int64_t position) const override {
    return examples_[static_cast<size_t>(
        shuffled_item(options_.seed, hash_name("sft"), position, size(), options_.shuffle))];
  }

 private:
  SftOptions options_;
  std::vector<SftExample> examples_;
};

class TeacherSftData final : public SftData {
 public:
  explicit TeacherSftData(std::shared_ptr<const Task> task) : task_(std::move(task)) {}
  int64_t size() const override { return task_->train_size(); }
  SftExample example(int64_t position) const override { return task_->sft_example(position); }

 private:
  std::shared_ptr<const Task> task_;
};

}  // namespace

std::unique_ptr<SftData> load_sft_jsonl(const std::vector<std::filesystem::path>& files,
                                        std::shared_ptr<const Tokenizer> tokenizer,
                                        const SftOptions& options) {
  check(!files.empty(), "there are no SFT files; set data.train_files");
  check(options.max_length >= 2, "max_length must be at least 2, not {}", options.max_length);
  check_choice("truncation", options.truncation, {"error", "left", "right"});
  return std::make_unique<JsonlSftData>(files, *tokenizer, options);
}

std::unique_ptr<SftData> teacher_sft_data(std::shared_ptr<const Task> task) {
  return std::make_unique<TeacherSftData>(std::move(task));
}

}  // namespace muoncore::data
