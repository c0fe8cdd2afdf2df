// Two ranks of Megatron-Core 0.19.2's TensorParallelMuon, recorded: tests/data/golden/README.md.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "muoncore/io/safetensors.h"
#include "tests/parallel/tensor_parallel_training.h"

namespace muoncore::parallel {
namespace {

using namespace testing;  // NOLINT: this room's
using nlohmann::json;

at::Tensor tensor_of(const io::SafetensorsFile& file, const std::string& name) {
  const io::SafetensorsEntry& entry = file.at(name);
  at::Tensor out = at::empty(entry.shape, at::kFloat);
  std::memcpy(out.mutable_data_ptr(), entry.bytes.data(), entry.bytes.size());
  return out;
}

Training training_of(const io::SafetensorsFile& file, const json& common, const json& c) {
  const std::string id = c.at("id"), name = id.substr(id.rfind('/') + 1);
  const json& hyper = c.at("hyper");
  const at::Tensor start = tensor_of(file, "in/param/" + name);
  const at::Tensor gradients = tensor_of(file, "in/grad/" + name);
  ParamSpec spec = matrix(name, start.sizes().vec(), -1);
  if (!c.at("partition_dim").is_null()) spec.partition_dim = c.at("partition_dim");
  if (!c.at("qkv_split_shapes").is_null())
    spec.blocks.rows = c.at("qkv_split_shapes").get<std::vector<int64_t>>();
  Training training{.specs = {spec},
                    .options = optim::MuonOptions(common.at("lr").get<double>()),
                    .steps = common.at("steps")};
  training.options.momentum(common.at("momentum"))
      .num_ns_steps(common.at("num_ns_steps"))
      .fp32_matmul_prec(common.at("fp32_matmul_prec"))
      .nesterov(hyper.at("nesterov"))
      .weight_decay(hyper.at("weight_decay"))
      .weight_decay_method(hyper.at("use_decoupled_weight_decay").get<bool>() ? "decoupled" : "l2")
      .coefficient_type(hyper.at("coefficient_type"))
      .scale_mode(hyper.at("scale_mode"))
      .extra_scale_factor(hyper.at("extra_scale_factor"))
      .ns_eps(1e-7)
      .upstream_exact(true);
  training.start = [start](const ParamSpec&) { return start.clone(); };
  training.gradient = [gradients](const ParamSpec&, int step) {
    return gradients.select(0, step - 1);
  };
  return training;
}

TEST(TensorParallelGolden, TwoRanksOfMegatron) {
  const io::SafetensorsFile file(std::string(MUONCORE_TEST_DATA) +
                                 "/golden/tensor_parallel.safetensors");
  const json common = json::parse(file.metadata().at("common"));
  const json cases = json::parse(file.metadata().at("cases"));
  ASSERT_GE(cases.size(), 24u);
  for (const json& c : cases) {
    const std::string id = c.at("id");
    const TpMode mode = parse_tp_mode(c.at("hyper").at("tp_mode").get<std::string>());
    const Training training = training_of(file, common, c);
    const at::Tensor expected = tensor_of(file, "out/" + id).to(at::kDouble);
    const double atol = c.at("atol"), rtol = c.at("rtol");
    auto worst = [&](const at::Tensor& got) {
      return ((got.to(at::kDouble) - expected).abs() / (expected.abs() * rtol + atol))
          .max()
          .item<double>();
    };
    auto run = [&](TpMode how, bool upstream) {
      return tensor_parallel(training, 2, {.mode = how, .upstream = upstream}).params[0];
    };
    EXPECT_LE(worst(run(mode, true)), 1.0) << id;
    // What upstream has in one of two ways, we have in a third.
    if (mode != TpMode::kBlockwise) {
      EXPECT_LE(worst(run(TpMode::kLayerSharded, false)), 1.0) << id;
    }
    // Our own blockwise scales by the whole matrix: where the scale differs, so does the result.
    if (mode == TpMode::kBlockwise && c.at("hyper").at("scale_mode") == "unit_rms_norm" &&
        training.specs[0].partition_dim >= 0) {
      EXPECT_GT(worst(run(mode, false)), 10.0) << id;
    }
  }
}

}  // namespace
}  // namespace muoncore::parallel
