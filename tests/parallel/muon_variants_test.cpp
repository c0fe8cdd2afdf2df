// Muon's variants on owned matrices: the weights of one process, and a state that any number of
// ranks continues.
#include <gmock/gmock.h>

#include "muoncore/core/check.h"
#include "tests/parallel/small_net.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's

struct Variant {
  std::string name;
  optim::OptimizerConfig config;
};

// Those that are smooth: a sign would make another order of sums a whole step.
std::vector<Variant> variants() {
  std::vector<Variant> out;
  auto add = [&](const std::string& name, auto change) {
    out.push_back({name, net_config()});
    change(out.back().config);
  };
  for (const char* mode : {"bias_corrected", "measured"})
    add(mode, [&](optim::OptimizerConfig& c) {
      c.muon_extra_scale_factor = 1.0;
      c.muon_match_adamw_update_rms = true;
      c.muon_match_adamw_update_rms_mode = mode;
      c.adam_eps = 1e-3;  // a first update is a sign but for eps
    });
  add("hyperball", [](optim::OptimizerConfig& c) {
    c.muon_extra_scale_factor = 1.0;
    c.weight_decay = 0.0;
    c.muon_hyperball = true;
  });
  add("normuon", [](optim::OptimizerConfig& c) {
    c.muon_momentum_kind = "classical";
    c.muon_moment2_method = "normuon";
    c.muon_pre_transform = "muoneq_rows";
    c.muon_align_update_rms = true;
  });
  add("namo", [](optim::OptimizerConfig& c) { c.muon_moment2_method = "namo"; });
  return out;
}

DistributedDataParallelConfig replicated() {
  DistributedDataParallelConfig config = sums();
  config.use_distributed_optimizer = false;
  return config;
}

TEST(MuonVariantsOverRanks, TrainTheModelOfOneProcess) {
  for (const auto& [name, config] : variants())
    for (const auto& ddp : {sums(), replicated()}) {
      NetRun run{.optimizer = config, .ddp = ddp};
      const NetResult alone = train_alone(run);
      for (int64_t ranks : {1, 2, 4}) {
        const NetResult got = train_on(ranks, run);
        for (size_t step = 0; step < alone.steps.size(); ++step) {
          for (size_t i = 0; i < alone.steps[step].size(); ++i)
            EXPECT_LE(max_difference(got.steps[step][i], alone.steps[step][i]), 2e-5)
                << name << " on " << ranks << ", step " << step << ", parameter " << i;
          const double factor = alone.results[step].extra_scale_factor.value();
          EXPECT_NEAR(got.results[step].extra_scale_factor.value(), factor, 1e-5 * factor) << name;
        }
      }
    }
}

// Two steps on 4 ranks, then one more on 1, 2 or 4 from what they wrote.
TEST(MuonVariantsOverRanks, StateGoesOnOnAnyNumberOfRanks) {
  for (const auto& [name, config] : variants()) {
    const NetRun run{.optimizer = config};
    std::map<std::string, at::Tensor> state;
    std::vector<at::Tensor> weights;
    auto leg = [&, &config = config](int64_t ranks, int first, int last, bool resume) {
      std::vector<at::Tensor> after;
      comm::run_ranks(ranks, [&](comm::Group& world) {
        at::AutoGradMode gradients_on(true);
        SmallNet net;
        WrappedModel model = wrap_model_chunks_with_layerwise_aware_ddp({net.chunk()}, config,
                                                                        sums(), dp_only(world));
        if (resume) {
          at::NoGradGuard no_grad;
          for (size_t i = 0; i < weights.size(); ++i) net.params()[i].tensor.copy_(weights[i]);
          model.optimizer->load_state(state);
        }
        for (int step = first; step < last; ++step) {
          model.optimizer->zero_grad();
          backward_share(net, model, run, world, step);
          model.optimizer->step();
        }
        auto written = model.optimizer->state();  // collective
        if (world.rank() > 0) return;
        after = values(net);
        if (resume) return;
        for (const auto& [key, tensor] : written) state[key] = tensor.clone();
        weights = after;
      });
      return after;
    };
    leg(4, 0, 2, false);
    const auto expected = leg(4, 2, 3, true);
    for (int64_t ranks : {1, 2}) {
      const auto got = leg(ranks, 2, 3, true);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_LE(max_difference(got[i], expected[i]), 2e-5) << name << ranks << i;
    }
  }
}

TEST(MuonVariantsOverRanks, LionOnSlices) {
  optim::OptimizerConfig config = net_config();
  config.muon_scalar_optimizer = "lion";
  config.adam_lr = 1e-3;
  const NetRun run{.optimizer = config};
  const NetResult alone = train_alone(run), got = train_on(4, run);
  int64_t total = 0, off = 0;
  for (size_t i = 0; i < alone.params.size(); ++i) {
    off += ((got.params[i] - alone.params[i]).abs() > 1e-5).sum().item<int64_t>();
    total += got.params[i].numel();
  }
  EXPECT_LE(off, total / 1000);  // where rounding turns a sign
  EXPECT_EQ(got.results[0].update_rms.count("lion"), 1u);
  EXPECT_EQ(got.results[0].update_rms.count("adam"), 0u);
}

TEST(MuonVariantsOverRanks, MastersAreThereOrItIsRefused) {
  optim::OptimizerConfig config = net_config();
  config.muon_bf16_params = "stochastic";
  EXPECT_THAT([&] { train_on(2, {.dtype = at::kBFloat16, .optimizer = config}); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("works on one rank only")));
}

}  // namespace
}  // namespace muoncore::parallel
