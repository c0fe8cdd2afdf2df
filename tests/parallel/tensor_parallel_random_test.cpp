// 100 sets of matrices of random shapes, cuts, blocks and options: every mode equals one process.
#include <gtest/gtest.h>

#include "muoncore/core/rng.h"
#include "tests/parallel/tensor_parallel_training.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's

// Whole numbers from a stream of its own for each case.
class Draw {
 public:
  explicit Draw(int64_t seed)
      : rng_({hash_name("tensor-parallel cases"), static_cast<uint64_t>(seed)}) {}
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(rng_.uniform(next_++) * static_cast<double>(high - low + 1));
  }
  template <typename T>
  T of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(between(0, static_cast<int64_t>(choices.size()) - 1))];
  }

 private:
  CounterRng rng_;
  uint64_t next_ = 0;
};

ParamSpec random_spec(Draw& draw, const std::string& name, int64_t tp) {
  const int64_t side = draw.between(1, 40), cut = tp * draw.between(1, 24 / tp);
  const int64_t a = draw.between(1, 4), b = draw.between(1, 4), groups = tp * draw.between(1, 2);
  switch (draw.between(0, 7)) {
    case 0:
      return matrix(name, {side, draw.between(1, 40)}, -1);
    case 1:
      return matrix(name, {cut, side}, 0);
    case 2:
      return matrix(name, {side, cut}, 1);
    case 3:
      return matrix(name, {groups * (a + 2 * b), side}, 0, {a, b, b});
    case 4:
      return matrix(name, {groups * (a + b), side}, 0, {a, b}, true);
    case 5:
      return matrix(name, {2 * cut, side}, 0, {cut, cut});
    case 6:
      return matrix(name, {a, (a + b) * 2, cut}, 2, {a, b});
    default:
      return matrix(name, {a, cut, side}, 1);
  }
}

Training random_training(Draw& draw, int64_t seed, int64_t tp) {
  Training training{.specs = {}, .options = options_of(), .steps = 2};
  training.grad_scale = draw.of<double>({1.0, 0.25});
  training.options.nesterov(draw.between(0, 1) == 1)
      .momentum(draw.of<double>({0.0, 0.9, 0.95}))
      .scale_mode(draw.of<std::string>({"spectral", "unit_rms_norm", "shape_scaling"}))
      .coefficient_type(draw.of<std::string>({"quintic", "simple", "polar_express"}))
      .weight_decay_method(draw.of<std::string>({"decoupled", "l2", "independent"}));
  for (int64_t k = draw.between(1, 6); k > 0; --k)
    training.specs.push_back(random_spec(draw, fmt::format("{}/{}", seed, k), tp));
  return training;
}

TEST(TensorParallelRandom, EveryModeEqualsOneProcess) {
  double worst = 0;
  for (int64_t seed = 0; seed < 100; ++seed) {
    Draw draw(seed);
    const int64_t tp = draw.of<int64_t>({2, 2, 3, 4});
    const Training training = random_training(draw, seed, tp);
    const Trained expected = one_process(training);
    for (TpMode mode : {TpMode::kDuplicated, TpMode::kDistributed, TpMode::kLayerSharded}) {
      const Trained got = tensor_parallel(training, tp, {.mode = mode});
      for (size_t k = 0; k < training.specs.size(); ++k) {
        const double error = of_bound(got.params[k], expected.params[k]);
        worst = std::max(worst, error);
        EXPECT_LE(error, 1.0) << "seed " << seed << ", " << to_string(mode) << ", " << tp
                              << " ranks, parameter " << k;
        if (mode == TpMode::kDuplicated) {
          EXPECT_TRUE(same_bytes(got.params[k], expected.params[k])) << "seed " << seed;
        }
      }
    }
  }
  RecordProperty("worst_of_bound", fmt::format("{}", worst));
}

}  // namespace
}  // namespace muoncore::parallel
