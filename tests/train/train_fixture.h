// A tiny model with its optimizer, and batches of unequal lengths, for the trainers' tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "muoncore/core/rng.h"
#include "muoncore/data/sft_data.h"
#include "muoncore/optim/build.h"
#include "muoncore/train/setup.h"
#include "muoncore/train/update_actor.h"

namespace muoncore::train {

inline models::ModelConfig tiny_config() {
  models::ModelConfig config;
  config.vocab_size = 32;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 1;
  config.head_dim = 16;
  config.max_position_embeddings = 64;
  config.initializer_range = 0.1;
  return config;
}

// Model, optimizer and scheduler of one arm.
struct Arm {
  std::shared_ptr<models::CausalLM> model;
  std::unique_ptr<optim::ChainedOptimizer> optimizer;
  std::unique_ptr<optim::OptimizerParamScheduler> scheduler;
  Ranks ranks;
  PhaseRecorder recorder{c10::Device(c10::DeviceType::CPU)};

  explicit Arm(const std::string& kind, models::ModelConfig model_config = tiny_config()) {
    model = std::make_shared<models::CausalLM>(model_config);
    model->init_weights(7);
    optim::OptimizerConfig config;
    config.optimizer = kind;
    config.lr = 1e-2;
    config.total_training_steps = 100;
    config.lr_warmup_steps = 10;
    config.lr_decay_style = "linear";
    if (kind == "muon") config.muon_fp32_matmul_prec = "highest";
    optimizer = optim::build_optimizer(optimizer_params(*model), config);
    scheduler = std::make_unique<optim::OptimizerParamScheduler>(*optimizer,
                                                                 optim::scheduler_options(config));
  }
  Trainee trainee() { return {*model, *optimizer, *scheduler, ranks}; }

  std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> out;
    for (const auto& [name, tensor] : model->named_params()) {
      out.push_back(tensor.detach().clone());
    }
    return out;
  }
};

inline double largest_difference(const std::vector<at::Tensor>& a,
                                 const std::vector<at::Tensor>& b) {
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, (a[i] - b[i]).abs().max().item<double>());
  }
  return largest;
}

inline bool same_bytes(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].equal(b[i])) return false;
  }
  return a.size() == b.size();
}

// `rows` rollouts with prompts of 2 to 4 and responses of 1 to 7 tokens, random ids, and the given
// advantages (one per row).
inline RolloutBatch random_batch(const std::vector<double>& advantages) {
  const auto rows = static_cast<int64_t>(advantages.size());
  const CounterRng rng({99, hash_name("batch")});
  RolloutBatch batch;
  rl::Rollout& r = batch.rollout;
  int64_t width = 0;
  for (int64_t i = 0; i < rows; ++i) {
    r.prompt_lengths.push_back(2 + i % 3);
    r.response_lengths.push_back(1 + (5 * i) % 7);
    width = std::max(width, r.prompt_lengths.back() + r.response_lengths.back());
  }
  r.ids = torch::zeros({rows, width}, torch::kInt64);
  r.response_mask = torch::zeros({rows, width});
  r.log_probs = torch::zeros({rows, width});
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t end = r.prompt_lengths[i] + r.response_lengths[i];
    for (int64_t t = 0; t < end; ++t) {
      r.ids[i][t] = static_cast<int64_t>(3 + rng.below(i * 64 + t, 29));
      if (t >= r.prompt_lengths[i]) r.response_mask[i][t] = 1.0;
    }
  }
  batch.advantages = advantages;
  batch.scores = batch.rewards = std::vector<double>(advantages.size(), 0.0);
  return batch;
}

// Examples of unequal lengths; the responses' share differs too.
class ListData final : public data::SftData {
 public:
  data::SftExample example(int64_t position) const override {
    const CounterRng rng({5, static_cast<uint64_t>(position)});
    const int64_t length = 4 + (3 * position) % 9;
    data::SftExample out;
    for (int64_t t = 0; t < length; ++t) {
      out.ids.push_back(static_cast<int64_t>(3 + rng.below(t, 29)));
      out.loss_mask.push_back(t >= 2 + position % 2 ? 1 : 0);
    }
    return out;
  }
  int64_t size() const override { return 11; }
};

}  // namespace muoncore::train
