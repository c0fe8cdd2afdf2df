#include "muoncore/train/rollout_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "muoncore/core/check.h"
#include "muoncore/data/jsonl_reader.h"
#include "muoncore/train/run_dir.h"

namespace muoncore::train {
namespace {

std::filesystem::path file_of(const std::filesystem::path& folder, int64_t step) {
  return folder / fmt::format("{}.jsonl", step);
}

template <typename T>
std::vector<T> values(const at::Tensor& tensor) {
  const at::Tensor cpu = tensor.cpu().contiguous();
  return {cpu.const_data_ptr<T>(), cpu.const_data_ptr<T>() + cpu.numel()};
}

struct RecordedRow {
  std::vector<int64_t> prompt, response;
  std::vector<float> log_probs;
  bool stopped = false;
};

RecordedRow read_row(const data::JsonLine& line) {
  try {
    return {.prompt = line.value.at("prompt_ids"),
            .response = line.value.at("response_ids"),
            .log_probs = line.value.at("log_probs"),
            .stopped = line.value.at("stopped")};
  } catch (const nlohmann::json::exception& error) {
    fail("{}: no recorded rollout: {}", line.where, error.what());
  }
}

void put_row(const RecordedRow& row, int64_t at, rl::Rollout& out) {
  const auto prompt = static_cast<int64_t>(row.prompt.size());
  const auto response = static_cast<int64_t>(row.response.size());
  out.prompt_lengths.push_back(prompt);
  out.response_lengths.push_back(response);
  out.finish_reasons.push_back(row.stopped ? rl::FinishReason::kStop : rl::FinishReason::kLength);
  out.ids[at].slice(0, 0, prompt).copy_(torch::tensor(row.prompt, torch::kInt64));
  const auto of_response = [&](const at::Tensor& all) {
    return all[at].slice(0, prompt, prompt + response);
  };
  of_response(out.ids).copy_(torch::tensor(row.response, torch::kInt64));
  of_response(out.response_mask).fill_(1.0);
  of_response(out.log_probs).copy_(torch::tensor(row.log_probs, torch::kFloat));
}

}  // namespace

void record_rollouts(const std::filesystem::path& folder, int64_t step, const RolloutBatch& batch,
                     const data::Tokenizer& tokenizer) {
  const rl::Rollout& rollout = batch.rollout;
  const std::vector<std::string> texts = rl::response_texts(rollout, tokenizer);
  const auto n = static_cast<size_t>(batch.samples_per_prompt);
  std::string lines;
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    const int64_t begin = rollout.prompt_lengths[i];
    const int64_t end = begin + rollout.response_lengths[i];
    const data::Prompt& prompt = batch.prompts[i / n];
    const nlohmann::ordered_json line = {
        {"input", prompt.text},
        {"output", texts[i]},
        {"gts", prompt.ground_truth},
        {"score", batch.scores[i]},
        {"step", step},
        {"prompt_ids", prompt.ids},
        {"response_ids", rollout.response(row)},
        {"log_probs", values<float>(rollout.log_probs[row].slice(0, begin, end))},
        {"stopped", rollout.finish_reasons[i] == rl::FinishReason::kStop}};
    lines += line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check(!error, "cannot make the folder {}: {}", folder.string(), error.message());
  write_file_atomically(file_of(folder, step), lines);
}

rl::Rollout recorded_rollouts(const std::filesystem::path& folder,
                              const std::vector<std::vector<int64_t>>& prompts,
                              const rl::RolloutOptions& options) {
  const std::filesystem::path file = file_of(folder, static_cast<int64_t>(options.step));
  const std::vector<data::JsonLine> lines = data::read_jsonl({file}, -1);
  const auto n = static_cast<size_t>(options.n);
  const size_t first = options.first_prompt * n;
  check(lines.size() >= first + prompts.size() * n, "{}: has {} rollouts, needed are {}",
        file.string(), lines.size(), first + prompts.size() * n);
  std::vector<RecordedRow> rows;
  size_t width = 0;
  for (size_t i = 0; i < prompts.size() * n; ++i) {
    const data::JsonLine& line = lines[first + i];
    rows.push_back(read_row(line));
    const RecordedRow& row = rows.back();
    check(row.prompt == prompts[i / n],
          "{}: the recorded prompt is not that of this run: the task, its seed, the batch or n is "
          "another",
          line.where);
    check(!row.response.empty() && row.response.size() == row.log_probs.size(),
          "{}: {} response tokens with {} log-probabilities", line.where, row.response.size(),
          row.log_probs.size());
    width = std::max(width, row.prompt.size() + row.response.size());
  }
  const auto shape = std::array{static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)};
  rl::Rollout out;
  out.ids = torch::full(shape, options.pad_id, torch::kInt64);
  out.response_mask = torch::zeros(shape);
  out.log_probs = torch::zeros(shape);
  for (size_t i = 0; i < rows.size(); ++i) put_row(rows[i], static_cast<int64_t>(i), out);
  return out;
}

}  // namespace muoncore::train
