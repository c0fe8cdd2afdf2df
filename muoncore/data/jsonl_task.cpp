#include "muoncore/data/jsonl_task.h"

#include <algorithm>
#include <set>

#include "muoncore/core/check.h"
#include "muoncore/data/chat_template.h"
#include "muoncore/data/jsonl_reader.h"
#include "muoncore/data/permutation.h"
#include "muoncore/data/truncation.h"

namespace muoncore::data {
namespace {

constexpr size_t kGsm8kTail = 300;  // characters of the response that are looked at

std::string without(std::string_view text, std::string_view characters) {
  std::string kept;
  for (char c : text)
    if (characters.find(c) == std::string_view::npos) kept += c;
  return kept;
}

// The last `#### -?[0-9.,]+` in `text`: what stands behind `#### `.
std::optional<std::string> last_answer(std::string_view text) {
  for (size_t at = text.rfind("#### "); at != std::string_view::npos;
       at = at ? text.rfind("#### ", at - 1) : at - 1) {
    std::string_view rest = text.substr(at + 5);
    size_t digits = rest.starts_with('-') ? 1 : 0;
    size_t end = std::min(rest.find_first_not_of("0123456789.,", digits), rest.size());
    if (end > digits) return std::string(rest.substr(0, end));
  }
  return std::nullopt;
}

std::string_view last_characters(std::string_view text, size_t count) {
  size_t begin = text.size();
  while (begin > 0 && count > 0) {
    --begin;
    if ((text[begin] & 0xC0) != 0x80) --count;
  }
  return text.substr(begin);
}

std::string_view trimmed(std::string_view text) {
  const char* white = " \t\n\r\f\v";
  size_t begin = text.find_first_not_of(white);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(white) + 1 - begin);
}

}  // namespace

double gsm8k_reward(std::string_view response, std::string_view ground_truth) {
  std::optional<std::string> answer = last_answer(last_characters(response, kGsm8kTail));
  return answer && without(*answer, ",$") == ground_truth ? 1.0 : 0.0;
}

JsonlTask::JsonlTask(const TaskOptions& options, std::shared_ptr<const Tokenizer> tokenizer)
    : options_(options), tokenizer_(std::move(tokenizer)), stop_ids_(tokenizer_->special().stop) {
  check_choice("reward_fn", options_.reward_fn, {"gsm8k", "exact"});
  check(!options_.train_files.empty(), "the task jsonl needs data.train_files");
  check(!options_.digits && !options_.teacher_error,
        "the task jsonl has no options digits and teacher_error");
  train_ = read(options_.train_files, options_.train_max_samples);
  eval_ = read(options_.val_files, -1);
  std::set<std::vector<int64_t>> held_out;
  for (const Prompt& prompt : eval_) held_out.insert(prompt.ids);
  for (const Prompt& prompt : train_)
    check(!held_out.contains(prompt.ids),
          "data.train_files and data.val_files share the prompt '...{}': held-out prompts must not "
          "be "
          "trained on; take it out of one of them",
          last_characters(prompt.text, 80));
  std::sort(stop_ids_.begin(), stop_ids_.end());
  stop_ids_.erase(std::unique(stop_ids_.begin(), stop_ids_.end()), stop_ids_.end());
}

std::vector<Prompt> JsonlTask::read(const std::vector<std::filesystem::path>& files,
                                    int64_t max_lines) {
  std::vector<Prompt> prompts;
  for (const JsonLine& line : read_jsonl(files, max_lines)) {
    Prompt prompt = read_prompt(line.node());
    auto length = static_cast<int64_t>(prompt.ids.size());
    check(length > 0, "{}: the prompt has no tokens", line.where);
    if (options_.filter_overlong_prompts && length > options_.max_prompt_length) continue;
    prompt.ids = keep(prompt.ids, kept_ranges(length, options_.max_prompt_length,
                                              options_.truncation, line.where + ": the prompt"));
    prompts.push_back(std::move(prompt));
  }
  check(files.empty() || !prompts.empty(),
        "no prompt of {} has at most data.max_prompt_length = {} tokens",
        files.empty() ? "" : files[0].string(), options_.max_prompt_length);
  return prompts;
}

Prompt JsonlTask::read_prompt(const JsonNode& line) {
  Prompt prompt;
  JsonNode node = line.at(options_.prompt_key);
  if (node.value().is_array()) {
    ChatTemplate chat = resolve_chat_template(options_.chat_template, *tokenizer_);
    std::vector<Message> messages = read_messages(node);
    if (messages.back().role != "user")
      node.refuse("the last message of a prompt must be the user's");
    prompt.ids = encode_chat_prompt(chat, *tokenizer_, messages);
    prompt.text = tokenizer_->decode(prompt.ids, /*skip_special_tokens=*/false);
    stop_ids_.push_back(end_of_turn(chat, *tokenizer_));
  } else if (node.value().is_string()) {
    prompt.text = node.text();
    prompt.ids = tokenizer_->encode(prompt.text, /*add_special_tokens=*/true);
  } else {
    node.wrong("a string or a list of messages");
  }
  auto reward_model = line.find("reward_model");
  check(reward_model || line.find("answer"),
        "{} has neither the key reward_model.ground_truth nor the key answer", line.place());
  JsonNode truth = reward_model ? reward_model->at("ground_truth") : line.at("answer");
  prompt.ground_truth = truth.text();
  if (options_.reward_fn == "gsm8k")
    if (auto answer = last_answer(prompt.ground_truth)) prompt.ground_truth = without(*answer, ",");
  if (trimmed(prompt.ground_truth).empty()) truth.refuse("the answer is empty");
  auto source = line.find("data_source");
  prompt.data_source = source ? source->text() : options_.name;
  return prompt;
}

Prompt JsonlTask::train_prompt(int64_t index) const {
  int64_t item =
      shuffled_item(options_.seed, hash_name("prompts"), index, train_size(), options_.shuffle);
  return train_[static_cast<size_t>(item)];
}

Prompt JsonlTask::eval_prompt(int64_t index) const {
  check(index >= 0 && index < eval_size(), "held-out prompt {} of {} was asked for", index,
        eval_size());
  return eval_[static_cast<size_t>(index)];
}

double JsonlTask::reward(const Prompt& prompt, const std::string& response_text) const {
  if (options_.reward_fn == "gsm8k") return gsm8k_reward(response_text, prompt.ground_truth);
  return trimmed(response_text) == trimmed(prompt.ground_truth) ? 1.0 : 0.0;
}

SftExample JsonlTask::sft_example(int64_t) const {
  fail(
      "the task jsonl has no teacher; give SFT its own files with responses (data.train_files of "
      "muoncore sft)");
}

}  // namespace muoncore::data
