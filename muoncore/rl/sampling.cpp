#include "muoncore/rl/sampling.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "muoncore/core/check.h"
#include "muoncore/core/rng.h"

namespace muoncore::rl {
namespace {

constexpr int64_t kGrainElements = int64_t{1} << 14;  // logits worth a thread

// Everything in double: the drawn id and its log-probability then depend on the row alone, not on
// how a vectorised kernel splits a batch.
struct Row {
  const float* logits;
  int64_t vocabulary;
  double temperature;
  double largest;

  double weight(int64_t id) const {  // in (0, 1], 0 for a logit of -inf
    return std::exp((static_cast<double>(logits[id]) - largest) / temperature);
  }
};

int64_t argmax(const float* logits, int64_t vocabulary) {
  return std::max_element(logits, logits + vocabulary) - logits;  // the first of equals
}

// Weights of ids 0, 1, …: their sum, and in `cumulative` the running sums.
double accumulate(const Row& row, std::vector<double>& cumulative) {
  cumulative.resize(static_cast<size_t>(row.vocabulary));
  double total = 0.0;
  for (int64_t id = 0; id < row.vocabulary; ++id) {
    total += row.weight(id);
    cumulative[static_cast<size_t>(id)] = total;
  }
  return total;
}

// The index that u in [0, 1) falls on. Entries of weight zero own an empty interval and are never
// chosen.
size_t invert(const std::vector<double>& cumulative, double u) {
  double target = u * cumulative.back();
  auto found = std::upper_bound(cumulative.begin(), cumulative.end(), target);
  if (found == cumulative.end())  // u * total rounded up to total: the last entry with a weight
    found = std::lower_bound(cumulative.begin(), cumulative.end(), cumulative.back());
  return static_cast<size_t>(found - cumulative.begin());
}

std::vector<int64_t> all_ids_within(const Row& row, int64_t top_k) {
  float threshold = -std::numeric_limits<float>::infinity();
  if (top_k > 0 && top_k < row.vocabulary) {
    std::vector<float> sorted(row.logits, row.logits + row.vocabulary);
    std::nth_element(sorted.begin(), sorted.begin() + (top_k - 1), sorted.end(), std::greater<>());
    threshold = sorted[static_cast<size_t>(top_k - 1)];
  }
  std::vector<int64_t> ids;
  for (int64_t id = 0; id < row.vocabulary; ++id)
    if (row.logits[id] >= threshold && !std::isinf(row.logits[id])) ids.push_back(id);
  return ids;
}

// `ids` become a heap whose pops are sorted, so that a small nucleus of a large vocabulary costs no
// full sort.
std::vector<int64_t> smallest_nucleus(const Row& row, std::vector<int64_t> ids, double top_p) {
  auto less_likely = [&](int64_t a, int64_t b) {
    return row.logits[a] != row.logits[b] ? row.logits[a] < row.logits[b] : a > b;
  };
  double total = 0.0;
  if (top_p < 1.0)
    for (int64_t id : ids) total += row.weight(id);
  std::make_heap(ids.begin(), ids.end(), less_likely);
  std::vector<int64_t> kept;
  double reached = 0.0;
  for (auto end = ids.end(); end != ids.begin(); --end) {
    if (!kept.empty() && top_p < 1.0 && reached >= top_p * total) break;
    std::pop_heap(ids.begin(), end, less_likely);
    kept.push_back(*(end - 1));
    reached += row.weight(kept.back());
  }
  return kept;
}

std::vector<int64_t> kept_of(const Row& row, const SamplingOptions& options) {
  return smallest_nucleus(row, all_ids_within(row, options.top_k), options.top_p);
}

struct Drawn {
  int64_t id;
  double log_prob;
};

Drawn draw(const Row& row, double u, const SamplingOptions& options, int64_t greedy_id,
           std::vector<double>& cumulative) {
  double total = accumulate(row, cumulative);
  int64_t id = greedy_id;
  if (options.temperature > 0.0) {
    if (options.top_k <= 0 && options.top_p >= 1.0) {
      id = static_cast<int64_t>(invert(cumulative, u));
    } else {
      std::vector<int64_t> kept = kept_of(row, options);
      double sum = 0.0;
      cumulative.resize(kept.size());
      for (size_t i = 0; i < kept.size(); ++i) cumulative[i] = sum += row.weight(kept[i]);
      id = kept[invert(cumulative, u)];
    }
  }
  double z = (static_cast<double>(row.logits[id]) - row.largest) / row.temperature;
  return {id, z - std::log(total)};
}

Row make_row(const float* logits, int64_t vocabulary, double temperature, int64_t greedy_id) {
  return {logits, vocabulary, temperature > 0.0 ? temperature : 1.0, logits[greedy_id]};
}

void check_row(const float* logits, int64_t vocabulary, int64_t row) {
  bool some = false;
  for (int64_t id = 0; id < vocabulary; ++id) {
    float x = logits[id];
    check(!std::isnan(x) && x != std::numeric_limits<float>::infinity(),
          "the logits of row {} hold {} at token {}: the model's weights or activations overflowed",
          row, x, id);
    some |= std::isfinite(x);
  }
  check(some, "the logits of row {} are all -inf: no token can be drawn", row);
}

}  // namespace

void check_sampling_options(const SamplingOptions& options) {
  check(std::isfinite(options.temperature) && options.temperature >= 0.0,
        "temperature is {}: allowed are numbers >= 0 (0: greedy)", options.temperature);
  check(options.top_k == -1 || options.top_k >= 1,
        "top_k is {}: allowed are -1 (off) and numbers >= 1", options.top_k);
  check(options.top_p > 0.0 && options.top_p <= 1.0, "top_p is {}: allowed are numbers in (0, 1]",
        options.top_p);
}

double sample_uniform(const SampleKey& key, uint64_t position) {
  static const uint64_t purpose = hash_name("rollout");
  return CounterRng({purpose, key.seed, key.step, key.prompt, key.sample}).uniform(position);
}

std::vector<int64_t> kept_tokens(const float* logits, int64_t vocabulary,
                                 const SamplingOptions& options) {
  check_sampling_options(options);
  check_row(logits, vocabulary, 0);
  return kept_of(make_row(logits, vocabulary, options.temperature, argmax(logits, vocabulary)),
                 options);
}

SampledTokens sample_tokens(const at::Tensor& logits, const std::vector<double>& uniforms,
                            const SamplingOptions& options) {
  check_sampling_options(options);
  check(
      logits.dim() == 2 && logits.size(0) == static_cast<int64_t>(uniforms.size()) &&
          logits.size(1) > 0,
      "logits of {} dimensions came with {} random numbers: allowed are logits [rows, vocabulary] "
      "and one number for each row",
      logits.dim(), uniforms.size());
  at::Tensor host = logits.detach().to(at::kCPU, at::kFloat).contiguous();
  const float* data = host.const_data_ptr<float>();
  int64_t rows = host.size(0), vocabulary = host.size(1);
  SampledTokens out{std::vector<int64_t>(static_cast<size_t>(rows)),
                    std::vector<float>(static_cast<size_t>(rows))};
  int64_t grain = std::max<int64_t>(1, kGrainElements / vocabulary);
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    std::vector<double> cumulative;
    for (int64_t i = begin; i < end; ++i) {
      const float* row = data + i * vocabulary;
      check_row(row, vocabulary, i);
      int64_t best = argmax(row, vocabulary);
      size_t at = static_cast<size_t>(i);
      Drawn d = draw(make_row(row, vocabulary, options.temperature, best), uniforms[at], options,
                     best, cumulative);
      out.ids[at] = d.id;
      out.log_probs[at] = static_cast<float>(d.log_prob);
    }
  });
  return out;
}

}  // namespace muoncore::rl
