// muoncore generate MODEL --prompt TEXT: text from a Hugging Face folder, printed as it is made.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "muoncore/cli/commands.h"
#include "muoncore/core/check.h"
#include "muoncore/data/chat_template.h"
#include "muoncore/data/tokenizer.h"
#include "muoncore/models/hf.h"
#include "muoncore/rl/rollout.h"
#include "muoncore/train/setup.h"

namespace muoncore::cli {
namespace {

constexpr int64_t kDefaultNewTokens = 128;

struct GenerateArguments {
  std::string model, prompt, dtype = "float32", device = "auto";
  std::optional<int64_t> max_new_tokens;
  int64_t top_k = -1;
  double temperature = 0.0, top_p = 1.0;
  uint64_t seed = 0;
  bool chat = false, json = false;
  std::vector<std::string> stops;
};

// Passes text on, up to the first stop text. What may be the beginning of one is held back until it
// is known.
class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  bool stopped() const { return stopped_; }

  std::string push(const std::string& text) {
    if (stopped_) return "";
    held_ += text;
    size_t end = std::string::npos;
    for (const auto& stop : stops_) end = std::min(end, held_.find(stop));
    stopped_ = end != std::string::npos;
    return release(stopped_ ? end : held_.size() - longest_beginning());
  }

  std::string finish() { return stopped_ ? "" : release(held_.size()); }

 private:
  size_t longest_beginning() const {  // length of the longest end of held_ that begins a stop text
    for (size_t length = held_.size(); length > 0; --length)
      for (const auto& stop : stops_)
        if (stop.starts_with(std::string_view(held_).substr(held_.size() - length))) return length;
    return 0;
  }

  std::string release(size_t count) {
    std::string text = held_.substr(0, count);
    held_.erase(0, count);
    return text;
  }

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

std::string read_prompt(const std::string& prompt) {
  if (prompt != "-") return prompt;
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

struct Start {
  std::vector<int64_t> ids;       // what the model continues
  std::vector<int64_t> stop_ids;  // what ends its text
};

Start make_start(const GenerateArguments& a, const std::string& prompt,
                 const data::Tokenizer& tokenizer, const models::ModelConfig& config) {
  Start start;
  start.stop_ids = tokenizer.special().stop;
  start.stop_ids.insert(start.stop_ids.end(), config.eos_token_ids.begin(),
                        config.eos_token_ids.end());
  if (!a.chat) {
    start.ids = tokenizer.encode(prompt, /*add_special_tokens=*/true);
    return start;
  }
  data::ChatTemplate chat = data::resolve_chat_template("auto", tokenizer);
  start.ids = data::encode_chat_prompt(chat, tokenizer, {{"user", prompt}});
  start.stop_ids.push_back(data::end_of_turn(chat, tokenizer));
  return start;
}

// How many tokens to write after a prompt of `length`: what was asked for, or kDefaultNewTokens
// where the model has room.
int64_t new_tokens(const GenerateArguments& a, int64_t length, const models::ModelConfig& config) {
  int64_t most = config.max_position_embeddings;
  check(length > 0, "--prompt is empty and the tokenizer of {} adds no token of its own", a.model);
  check(length < most, "--prompt has {} tokens: {} can hold {} (max_position_embeddings)", length,
        a.model, most);
  int64_t wanted = a.max_new_tokens.value_or(std::min(kDefaultNewTokens, most - length));
  check(length + wanted <= most,
        "--max-new-tokens {} is too much after a prompt of {} tokens: {} can hold {} in all "
        "(max_position_embeddings), so at most {} new ones",
        wanted, length, a.model, most, most - length);
  return wanted;
}

rl::RolloutOptions rollout_options(const GenerateArguments& a, const Start& start,
                                   const models::ModelConfig& config) {
  rl::RolloutOptions o;
  o.sampling = {a.temperature, a.top_k, a.top_p};
  o.max_new_tokens = new_tokens(a, static_cast<int64_t>(start.ids.size()), config);
  o.stop_ids = start.stop_ids;
  o.seed = a.seed;
  return o;
}

void run(const GenerateArguments& a) {
  check(std::filesystem::is_directory(a.model), "model folder '{}' does not exist", a.model);
  rl::check_sampling_options({a.temperature, a.top_k, a.top_p});
  for (const auto& stop : a.stops) check(!stop.empty(), "--stop is empty: it would end every text");
  auto tokenizer = data::load_tokenizer(a.model);
  auto loaded = models::load_hf(a.model, a.dtype == "bfloat16" ? at::kBFloat16 : at::kFloat,
                                train::device_named(a.device, "--device"));
  data::check_vocabulary(*tokenizer, loaded.config.vocab_size, a.model);
  std::string prompt = read_prompt(a.prompt);
  Start start = make_start(a, prompt, *tokenizer, loaded.config);
  rl::RolloutOptions options = rollout_options(a, start, loaded.config);

  data::StreamDecoder decoder(*tokenizer);
  StopFilter filter(a.stops);
  std::vector<int64_t> generated;
  std::string text;
  auto emit = [&](const std::string& piece) {
    text += piece;
    if (!a.json) std::cout << piece << std::flush;
  };
  auto on_token = [&](int64_t id) {
    generated.push_back(id);
    emit(filter.push(decoder.push(id)));
    return !filter.stopped();
  };
  auto reason = rl::generate_streaming(*loaded.model, start.ids, options, on_token);
  emit(filter.push(decoder.finish()));
  emit(filter.finish());
  bool stop = filter.stopped() || reason == rl::FinishReason::kStop;
  if (a.json)
    std::cout << nlohmann::json{{"prompt", prompt},
                                {"prompt_ids", start.ids},
                                {"ids", generated},
                                {"text", text},
                                {"finish_reason", stop ? "stop" : "length"}}
                     .dump();
  std::cout << std::endl;
}

}  // namespace

void add_generate(CLI::App& app) {
  auto args = std::make_shared<GenerateArguments>();
  CLI::App* c = app.add_subcommand("generate", "print text that a model writes after a prompt");
  c->add_option("model", args->model, "Hugging Face folder: config.json, safetensors, tokenizer")
      ->required()
      ->type_name("MODEL");
  c->add_option("--prompt", args->prompt, "text to continue; - reads it from standard input")
      ->required();
  c->add_option("--max-new-tokens", args->max_new_tokens,
                "most tokens to write (128 if not given, or as many as the model can hold)")
      ->check(CLI::PositiveNumber);
  c->add_option("--temperature", args->temperature, "0: always the likeliest token (greedy)")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  c->add_option("--top-p", args->top_p, "draw among the likeliest tokens that make up this share")
      ->capture_default_str();
  c->add_option("--top-k", args->top_k, "draw among this many likeliest tokens; -1: all")
      ->capture_default_str();
  c->add_option("--seed", args->seed, "another seed, another text (temperature > 0)")
      ->capture_default_str();
  c->add_option("--stop", args->stops, "end before this text (may be given again)")
      ->allow_extra_args(false);
  c->add_option("--dtype", args->dtype, "precision of weights and arithmetic")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  c->add_option("--device", args->device, "auto: cuda where there is one, else cpu")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  c->add_flag("--chat", args->chat,
              "the prompt is a user's turn; the model's chat template wraps it");
  c->add_flag("--json", args->json, "one JSON object at the end: ids, text, finish_reason");
  c->callback([args] { run(*args); });
}

}  // namespace muoncore::cli
