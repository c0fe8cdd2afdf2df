// Tensor-parallel Muon against one process, by values, on 2 and 4 ranks.
#include "muoncore/parallel/tensor_parallel_muon.h"

#include <ATen/ops/allclose.h>
#include <gmock/gmock.h>

#include "muoncore/muon/newton_schulz.h"
#include "muoncore/muon/scale_mode.h"
#include "muoncore/parallel/tensor_parallel_orthogonalize.h"
#include "tests/parallel/tensor_parallel_training.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's

constexpr TpMode kSameAsOneProcess[] = {TpMode::kDuplicated, TpMode::kDistributed,
                                        TpMode::kLayerSharded};

std::string at_ranks(const ParamSpec& spec, TpMode mode, int64_t ranks) {
  return fmt::format("{}, {}, {} ranks", spec.name, to_string(mode), ranks);
}

void expect_same_bytes(const Trained& got, const Trained& expected, const Training& training,
                       TpMode mode, int64_t ranks) {
  for (size_t k = 0; k < training.specs.size(); ++k) {
    const std::string where = at_ranks(training.specs[k], mode, ranks);
    EXPECT_TRUE(same_bytes(got.params[k], expected.params[k])) << where;
    EXPECT_TRUE(same_bytes(got.momenta[k], expected.momenta[k])) << where;
  }
}

void expect_within_bound(const Trained& got, const Trained& expected, const Training& training,
                         TpMode mode, int64_t ranks) {
  for (size_t k = 0; k < training.specs.size(); ++k) {
    const std::string where = at_ranks(training.specs[k], mode, ranks);
    EXPECT_LE(of_bound(got.params[k], expected.params[k]), 1.0) << where;
    EXPECT_TRUE(same_bytes(got.momenta[k], expected.momenta[k])) << where;
  }
}

TEST(TensorParallelMuon, DuplicatedAndLayerShardedAreOneProcessBitForBit) {
  for (const char* precision : {"highest", "medium"})
    for (bool nesterov : {false, true}) {
      Training training{.specs = transformer_layer(), .options = options_of(precision)};
      training.options.nesterov(nesterov);
      const Trained expected = one_process(training);
      for (int64_t ranks : {2, 4})
        for (TpMode mode : {TpMode::kDuplicated, TpMode::kLayerSharded})
          expect_same_bytes(tensor_parallel(training, ranks, {.mode = mode}), expected, training,
                            mode, ranks);
    }
}

TEST(TensorParallelMuon, DistributedIsOneProcessUpToRounding) {
  for (const char* scale : {"spectral", "unit_rms_norm", "shape_scaling"}) {
    Training training{.specs = transformer_layer(), .options = options_of()};
    training.options.scale_mode(scale);
    const Trained expected = one_process(training);
    for (int64_t ranks : {2, 4})
      for (bool upstream : {false, true})
        expect_within_bound(
            tensor_parallel(training, ranks, {.mode = TpMode::kDistributed, .upstream = upstream}),
            expected, training, TpMode::kDistributed, ranks);
  }
}

// The iterates of the distributed form are bf16 too; its Gram matrices are sums of rounded parts.
TEST(TensorParallelMuon, DistributedUnderMediumStaysWithinBf16) {
  Training training{.specs = transformer_layer(), .options = options_of("medium", 1.0), .steps = 1};
  const Trained expected = one_process(training);
  const Trained got = tensor_parallel(training, 4, {.mode = TpMode::kDistributed});
  for (size_t k = 0; k < training.specs.size(); ++k) {
    if (expected.params[k].numel() == 0) continue;
    // lr 1 and factor 0.2: an update's RMS is about 0.2
    EXPECT_LE(max_difference(got.params[k], expected.params[k]), 0.02) << training.specs[k].name;
  }
}

TEST(TensorParallelMuon, Fp64AndBf16Parameters) {
  for (at::ScalarType dtype : {at::kDouble, at::kBFloat16}) {
    Training training{.specs = transformer_layer(), .options = options_of(), .dtype = dtype};
    const Trained expected = one_process(training);
    const double limit =
        dtype == at::kDouble ? 1e-12 : 1.0 / 64;  // bf16: one unit in the last place
    for (TpMode mode : kSameAsOneProcess) {
      const Trained got = tensor_parallel(training, 4, {.mode = mode});
      for (size_t k = 0; k < training.specs.size(); ++k) {
        const std::string where = at_ranks(training.specs[k], mode, 4);
        if (expected.params[k].numel() == 0) continue;
        EXPECT_LE(max_difference(got.params[k], expected.params[k]), limit) << where;
        if (mode == TpMode::kDuplicated) {
          EXPECT_TRUE(same_bytes(got.params[k], expected.params[k])) << where;
        }
      }
    }
  }
}

// Blockwise is Muon on the shards: the negative control of all equalities above, checked against
// one written down here.
TEST(TensorParallelMuon, BlockwiseDiffersAndIsMuonOnTheShards) {
  Training training{.specs = {matrix("rows", {48, 32}, 0), matrix("cols", {32, 48}, 1)},
                    .options = options_of(),
                    .steps = 1};
  const Trained whole = one_process(training);
  for (int64_t ranks : {2, 4})
    for (bool upstream : {false, true}) {
      const Trained got =
          tensor_parallel(training, ranks, {.mode = TpMode::kBlockwise, .upstream = upstream});
      for (size_t k = 0; k < 2; ++k) {
        const ParamSpec& spec = training.specs[k];
        EXPECT_GT(max_difference(got.params[k], whole.params[k]), 1e-3);
        std::vector<at::Tensor> shards;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          at::Tensor p = shard_of(training.start(spec), spec, ranks, rank) * (1 - 0.02 * 0.1);
          at::Tensor m = 0.05 * shard_of(training.gradient(spec, 1), spec, ranks, rank);
          const double scale =
              upstream
                  ? muon::scale_factor(muon::ScaleMode::kSpectral, p.size(0), p.size(1))
                  : muon::scale_factor(muon::ScaleMode::kSpectral, spec.shape[0], spec.shape[1]);
          shards.push_back(p - 0.02 * 0.2 * scale * muon::newton_schulz(m, {}));
        }
        EXPECT_LE(max_difference(got.params[k], unshard(shards, spec)), 1e-6) << ranks;
      }
    }
}

// One rank, and a group of several with nothing cut, are plain Muon.
TEST(TensorParallelMuon, OneRankIsPlainMuon) {
  Training training{.specs = transformer_layer(), .options = options_of("medium")};
  const Trained expected = one_process(training);
  for (TpMode mode :
       {TpMode::kBlockwise, TpMode::kDuplicated, TpMode::kDistributed, TpMode::kLayerSharded}) {
    const Trained got = tensor_parallel(training, 1, {.mode = mode});
    for (size_t k = 0; k < training.specs.size(); ++k)
      EXPECT_TRUE(same_bytes(got.params[k], expected.params[k]))
          << at_ranks(training.specs[k], mode, 1);
    EXPECT_EQ(got.bytes, std::vector<int64_t>{0});
  }
  for (ParamSpec& spec : training.specs) spec.partition_dim = -1;
  const Trained got = tensor_parallel(training, 3, {.mode = TpMode::kDistributed});
  for (size_t k = 0; k < training.specs.size(); ++k)
    EXPECT_TRUE(same_bytes(got.params[k], expected.params[k])) << training.specs[k].name;
}

TEST(TensorParallelMuon, MoreRanksThanMatricesAndOneMatrix) {
  Training training{.specs = {matrix("only", {16, 24}, 1)}, .options = options_of()};
  const Trained expected = one_process(training);
  for (TpMode mode : kSameAsOneProcess) {
    const Trained got = tensor_parallel(training, 4, {.mode = mode});
    EXPECT_LE(of_bound(got.params[0], expected.params[0]), 1.0) << to_string(mode);
  }
}

TEST(TensorParallelMuon, NoParametersAtAll) {
  for (TpMode mode : kSameAsOneProcess)
    EXPECT_NO_THROW(tensor_parallel({.specs = {}, .options = options_of()}, 2, {.mode = mode}));
}

// What is not cut is each rank's own: experts spread over the ranks, more here than there, and a
// step in which only they have gradients.
TEST(TensorParallelMuon, ExpertsSpreadOverTheRanks) {
  const ParamSpec cut = matrix("cut", {16, 24}, 0);
  Training expected_of_cut{.specs = {cut}, .options = options_of(), .steps = 2};
  const Trained expected = one_process(expected_of_cut);
  for (TpMode mode : kSameAsOneProcess)
    comm::run_ranks(2, [&](comm::Group& tp) {
      const int64_t experts = tp.rank() == 0 ? 3 : 1;
      std::vector<ParamSpec> specs;
      for (int64_t e = 0; e < experts; ++e)
        specs.push_back(matrix(fmt::format("rank{}.expert{}", tp.rank(), e), {12, 2048}, -1));
      specs.insert(specs.begin() + 1, cut);
      std::vector<at::Tensor> params;
      for (const ParamSpec& spec : specs)
        params.push_back(shard_of(expected_of_cut.start(spec), spec, 2, tp.rank()));
      TensorParallelMuon muon(tp, {.mode = mode}, one_group(params, options_of()), options_of());
      for (size_t k = 0; k < specs.size(); ++k) muon.set_spec(params[k], shard_spec(specs[k], 2));
      auto set_gradients = [&](int step) {
        for (size_t k = 0; k < specs.size(); ++k)
          params[k].mutable_grad() =
              shard_of(expected_of_cut.gradient(specs[k], step), specs[k], 2, tp.rank());
      };
      for (int step = 1; step <= 2; ++step) {
        set_gradients(step);
        muon.step();
      }
      EXPECT_LE(of_bound(params[1], shard_of(expected.params[0], cut, 2, tp.rank())), 1.0);
      if (tp.rank() == 1) return;  // the rest is rank 0's alone
      params[1].mutable_grad() = at::Tensor();
      EXPECT_NO_THROW(muon.step());
      EXPECT_EQ(muon.last_stats().at(0).matrices, 3);
    });
}

// Every logical matrix counts on each rank that takes part in it.
TEST(TensorParallelMuon, CountsItsMatrices) {
  Training training{.specs = {matrix("qkv", {48, 16}, 0, {8, 2, 2}), matrix("e", {4, 8, 8}, 0),
                              matrix("w", {8, 8}, -1)},
                    .options = options_of(),
                    .steps = 1};
  for (TpMode mode : kSameAsOneProcess)
    for (const optim::GroupStats& stats : tensor_parallel(training, 2, {.mode = mode}).stats) {
      EXPECT_EQ(stats.matrices, 3 + 2 + 1);
      EXPECT_EQ(stats.elements, 24 * 16 + 2 * 64 + 64);
    }
}

// What the header promises, to the byte; the agreement's maxima left out.
TEST(TensorParallelMuon, SendsTheBytesThatTheHeaderSays) {
  constexpr int64_t kRows = 64, kCols = 96, kSteps = 5, kMatrices = 6;
  for (int64_t t : {2, 4})
    for (const char* precision : {"highest", "medium"}) {
      Training training{.specs = {}, .options = options_of(precision), .steps = 1};
      for (int64_t k = 0; k < kMatrices; ++k)
        training.specs.push_back(matrix(fmt::format("w{}", k), {kRows, kCols}, 1));
      auto mean_bytes = [&](TpMode mode) {
        int64_t sum = 0;
        for (int64_t bytes : tensor_parallel(training, t, {.mode = mode}).bytes) sum += bytes;
        return static_cast<double>(sum) / static_cast<double>(t);
      };
      const double agreement = mean_bytes(TpMode::kBlockwise);
      const double away = static_cast<double>(t - 1) / static_cast<double>(t);
      const double elements = kMatrices * kRows * kCols;
      const double g = std::string(precision) == "medium" ? 2 : 4;
      EXPECT_EQ(mean_bytes(TpMode::kDuplicated) - agreement, away * elements * 4);
      EXPECT_EQ(mean_bytes(TpMode::kLayerSharded) - agreement,
                2 * away * elements * 4 / static_cast<double>(t));
      // Greatest elements and sums of squares: so small that everybody sends them to everybody.
      const double norms = 2 * static_cast<double>(t - 1) * kMatrices * 4;
      EXPECT_EQ(mean_bytes(TpMode::kDistributed) - agreement,
                kSteps * 2 * away * kMatrices * kRows * kRows * g + norms);
    }
}

TEST(TensorParallelMuon, DealsByCost) {
  EXPECT_THAT(deal_by_cost({5, 9, 1, 5, 4}, 2), ::testing::ElementsAre(1, 0, 1, 1, 0));
  EXPECT_THAT(deal_by_cost({3, 3, 3}, 4), ::testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(deal_by_cost({}, 4), ::testing::IsEmpty());
}

}  // namespace
}  // namespace muoncore::parallel
