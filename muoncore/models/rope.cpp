#include "muoncore/models/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "muoncore/core/check.h"

namespace muoncore::models {
namespace {

// Llama 3: long waves are stretched by `factor`, short ones kept, those between blended.
double llama3_frequency(double frequency, const RopeScaling& s, double original_length) {
  double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < original_length / s.high_freq_factor) return frequency;
  if (wavelength > original_length / s.low_freq_factor) return frequency / s.factor;
  double blend =
      (original_length / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - blend) * frequency / s.factor + blend * frequency;
}

// YaRN (Peng et al., 2023, section 3.2): the dimension at which a wave turns `turns` times in the
// original length.
double yarn_dimension(double turns, const ModelConfig& c, double original_length) {
  return static_cast<double>(c.head_dim) *
         std::log(original_length / (turns * 2 * std::numbers::pi)) / (2 * std::log(c.rope_theta));
}

void yarn_frequencies(const ModelConfig& c, double original_length, std::vector<double>& inverse) {
  const RopeScaling& s = c.rope_scaling;
  double low = yarn_dimension(s.beta_fast, c, original_length);
  double high = yarn_dimension(s.beta_slow, c, original_length);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(c.head_dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < inverse.size(); ++i) {
    double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inverse[i] *= stretched / s.factor + (1 - stretched);
  }
}

double yarn_magnitude(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double yarn_attention_factor(const RopeScaling& s) {
  if (s.attention_factor) return *s.attention_factor;
  if (s.mscale.value_or(0) != 0 && s.mscale_all_dim.value_or(0) != 0)
    return yarn_magnitude(s.factor, *s.mscale) / yarn_magnitude(s.factor, *s.mscale_all_dim);
  return yarn_magnitude(s.factor, 1.0);
}

}  // namespace

RopeFrequencies rope_frequencies(const ModelConfig& config) {
  const RopeScaling& s = config.rope_scaling;
  double original_length = static_cast<double>(
      s.original_max_position_embeddings.value_or(config.max_position_embeddings));
  RopeFrequencies out;
  for (int64_t i = 0; i < config.head_dim; i += 2)
    out.inverse.push_back(std::pow(config.rope_theta,
                                   -static_cast<double>(i) / static_cast<double>(config.head_dim)));
  switch (s.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kLinear:
      for (double& f : out.inverse) f /= s.factor;
      break;
    case RopeType::kLlama3:
      for (double& f : out.inverse) f = llama3_frequency(f, s, original_length);
      break;
    case RopeType::kYarn:
      yarn_frequencies(config, original_length, out.inverse);
      out.attention_factor = yarn_attention_factor(s);
      break;
  }
  // The field's checkpoints were trained with fp32 frequencies; keep their rounding at long
  // positions.
  for (double& f : out.inverse) f = static_cast<double>(static_cast<float>(f));
  return out;
}

RopeTable::RopeTable(const ModelConfig& config, at::ScalarType dtype, at::Device device)
    : frequencies_(rope_frequencies(config)),
      options_(at::TensorOptions().dtype(dtype).device(device)) {}

void RopeTable::reserve(int64_t positions) {
  int64_t have = cos_.defined() ? cos_.size(0) : 0;
  if (positions <= have) return;
  int64_t want = std::max(positions, std::max<int64_t>(64, 2 * have));
  const auto& frequencies = frequencies_.inverse;
  std::vector<double> cos, sin;
  for (int64_t position = 0; position < want; ++position)
    for (double sign : {-1.0, 1.0})
      for (double frequency : frequencies) {
        // The angle is rounded to fp32 as transformers rounds it; its cos and sin are exact.
        double angle = static_cast<float>(position) * static_cast<float>(frequency);
        cos.push_back(std::cos(angle) * frequencies_.attention_factor);
        sin.push_back(std::sin(angle) * frequencies_.attention_factor * sign);
      }
  auto table = [&](std::vector<double>& values) {
    auto width = static_cast<int64_t>(2 * frequencies.size());
    return at::from_blob(values.data(), {want, width}, at::kDouble).to(options_, false, true);
  };
  cos_ = table(cos);
  sin_ = table(sin);
}

RopeTable::Angles RopeTable::range(int64_t start, int64_t tokens) {
  reserve(start + tokens);
  return {cos_.narrow(0, start, tokens).unsqueeze(1), sin_.narrow(0, start, tokens).unsqueeze(1)};
}

RopeTable::Angles RopeTable::rows(const std::vector<int64_t>& starts, int64_t tokens) {
  reserve(*std::max_element(starts.begin(), starts.end()) + tokens);
  auto count = static_cast<int64_t>(starts.size());
  at::Tensor first = at::tensor(starts, at::kLong).unsqueeze(1);
  at::Tensor positions = (first + at::arange(tokens)).reshape(-1).to(cos_.device());
  auto pick = [&](const at::Tensor& table) {
    return table.index_select(0, positions).view({count, tokens, 1, table.size(1)});
  };
  return {pick(cos_), pick(sin_)};
}

at::Tensor apply_rope(const at::Tensor& x, const RopeTable::Angles& angles) {
  return x * angles.cos + x.roll(x.size(-1) / 2, -1) * angles.sin;
}

}  // namespace muoncore::models
