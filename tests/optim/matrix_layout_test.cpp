#include "muoncore/optim/matrix_layout.h"

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>

#include <functional>
#include <numeric>

#include "muoncore/core/check.h"
#include "muoncore/muon/reference.h"
#include "muoncore/optim/build.h"
#include "muoncore/optim/muon.h"
#include "support.h"

namespace muoncore::optim {
namespace {

using namespace testing;
using ::testing::HasSubstr;

using Rows = std::vector<int64_t>;  // the rows of one logical matrix, in order
using Slices = std::vector<Rows>;

constexpr double kLr = 0.1;

ParamSpec spec_of(std::vector<int64_t> shape, const std::string& name = "w") {
  return {.name = name, .role = ParamRole::kMatrix, .shape = std::move(shape), .blocks = {}};
}

// Minus the update of Muon's first step with this spec, in the parameter's shape.
at::Tensor first_step(const ParamSpec& spec, const at::Tensor& param, const at::Tensor& grad) {
  const at::Tensor before = param.detach().clone();
  Muon muon(std::vector<torch::optim::OptimizerParamGroup>{},
            MuonOptions(kLr).fp32_matmul_prec("highest").weight_decay(0.0));
  muon.add_param_group({std::vector<at::Tensor>{param}}, {spec});
  param.mutable_grad() = grad;
  muon.step();
  return before - param.detach();
}

// The same in fp64: every slice of rows of the matrix `grad` alone, by the naive reference.
at::Tensor by_slices(const at::Tensor& grad, const Slices& slices) {
  const at::Tensor g = grad.to(at::kDouble);
  at::Tensor out = at::zeros_like(g);
  for (const Rows& rows : slices) {
    const at::Tensor index = at::tensor(rows, at::kLong);
    const double longest =
        static_cast<double>(std::max<int64_t>(static_cast<int64_t>(rows.size()), g.size(1)));
    out.index_copy_(
        0, index,
        muon::reference::newton_schulz(g.index_select(0, index), {}) * kLr * std::sqrt(longest));
  }
  return out;
}

Rows run(int64_t first, int64_t count) {
  Rows rows(count);
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

// Rows of fused projections, counted by hand. 6 query heads share 2 key heads of 4 rows.
constexpr int64_t kWidth = 4;

Slices interleaved(bool gate, bool per_head) {
  Slices parts(gate ? 4 : 3), heads;
  int64_t row = 0;
  for (int group = 0; group < 2; ++group)
    for (size_t part = 0; part < parts.size(); ++part) {
      const bool many = part == 0 || (gate && part == 1);  // three query heads, or their gates
      for (int head = 0; head < (many ? 3 : 1); ++head, row += kWidth) {
        heads.push_back(run(row, kWidth));
        for (int64_t r : heads.back()) parts[part].push_back(r);
      }
    }
  return per_head ? heads : parts;
}

MatrixLayout qkv(bool gate = false, bool per_head = false, bool interleaved = true) {
  MatrixLayout layout;
  layout.kind = LayoutKind::kQkv;
  layout.q_heads = 6;
  layout.kv_heads = 2;
  layout.head_dim = kWidth;
  layout.gate = gate;
  layout.per_head = per_head;
  layout.interleaved = interleaved;
  return layout;
}

MatrixLayout plain(LayoutKind kind, int64_t head_dim = 0, RowBlocks blocks = {}) {
  MatrixLayout layout;
  layout.kind = kind;
  layout.head_dim = head_dim;
  layout.blocks = std::move(blocks);
  return layout;
}

struct Case {
  std::string name;
  std::vector<int64_t> shape;  // of a matrix
  MatrixLayout layout;
  Slices slices;
};

std::vector<Case> matrix_cases() {
  return {
      {"whole", {40, 10}, plain(LayoutKind::kWhole), {run(0, 40)}},
      {"qkv", {40, 10}, qkv(), interleaved(false, false)},
      {"qkv with a gate", {64, 10}, qkv(true), interleaved(true, false)},
      {"qkv per head", {40, 10}, qkv(false, true), interleaved(false, true)},
      {"qkv with a gate per head", {64, 10}, qkv(true, true), interleaved(true, true)},
      {"q, k, v one after another",
       {40, 10},
       qkv(false, false, false),
       {run(0, 24), run(24, 8), run(32, 8)}},
      {"q, gate, k, v one after another",
       {64, 10},
       qkv(true, false, false),
       {run(0, 24), run(24, 24), run(48, 8), run(56, 8)}},
      {"heads", {12, 10}, plain(LayoutKind::kHeads, 4), {run(0, 4), run(4, 4), run(8, 4)}},
      {"gate and up", {22, 10}, plain(LayoutKind::kGateUp), {run(0, 11), run(11, 11)}},
      {"rows",
       {12, 10},
       plain(LayoutKind::kRows, 0, {{4, 2}, false}),
       {{0, 1, 2, 3, 6, 7, 8, 9}, {4, 5, 10, 11}}},
      {"rows per group",
       {12, 10},
       plain(LayoutKind::kRows, 0, {{4, 2}, true}),
       {run(0, 4), run(4, 2), run(6, 4), run(10, 2)}},
  };
}

// Each layout is what orthogonalizing hand-made slices gives, and their shapes set the scale.
TEST(MatrixLayout, EqualsHandMadeSlices) {
  for (const Case& c : matrix_cases()) {
    const ParamSpec spec = with_layout(spec_of(c.shape), {".*", c.layout});
    const at::Tensor grad = random_tensor(c.shape, "grad of " + c.name);
    const at::Tensor expected = by_slices(grad, c.slices);
    EXPECT_LT(max_difference(first_step(spec, leaf(c.shape, "w"), grad), expected), 2e-6) << c.name;
    // and not what the matrix as a whole would give
    if (c.slices.size() == 1) continue;
    EXPECT_GT(max_difference(by_slices(grad, {run(0, c.shape[0])}), expected), 1e-2) << c.name;
  }
}

TEST(MatrixLayout, ExpertsAreMatricesAndMayBeFusedThemselves) {
  const std::vector<int64_t> shape{3, 12, 10};
  const at::Tensor grad = random_tensor(shape, "experts");
  grad.select(0, 1).mul_(1e-12);
  for (const auto& [layout, slices] :
       {std::pair<MatrixLayout, Slices>{plain(LayoutKind::kExperts), {run(0, 12)}},
        {plain(LayoutKind::kGateUp), {run(0, 6), run(6, 6)}},
        {plain(LayoutKind::kHeads, 4), {run(0, 4), run(4, 4), run(8, 4)}}}) {
    const ParamSpec spec = with_layout(spec_of(shape), {".*", layout});
    const at::Tensor moved = first_step(spec, leaf(shape, "w"), grad);
    for (int64_t e = 0; e < 3; ++e)
      EXPECT_LT(max_difference(moved.select(0, e), by_slices(grad.select(0, e), slices)), 2e-6)
          << to_string(layout.kind) << " " << e;
  }
}

// [out, in, kernel...] is the matrix [out, in * kernel...], also in channels-last memory, and its
// scale is that matrix' (not that of the kernel's own last dimensions).
TEST(MatrixLayout, ConvolutionsAreMatricesOfTheirOutputs) {
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{8, 3, 3, 3}, {8, 3, 5}, {6, 1, 3, 3}, {4, 2, 2, 2, 2}}) {
    const ParamSpec spec = with_layout(spec_of(shape), {".*", plain(LayoutKind::kConvolution)});
    const at::Tensor grad = random_tensor(shape, "kernel");
    const at::Tensor expected =
        by_slices(grad.reshape({shape[0], -1}), {run(0, shape[0])}).view(shape);
    EXPECT_LT(max_difference(first_step(spec, leaf(shape, "w"), grad), expected), 2e-6);
    if (shape.size() != 4) continue;
    const at::Tensor last =
        random_tensor(shape, "w").contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
    EXPECT_LT(max_difference(first_step(spec, last, grad), expected), 2e-6);
  }
}

// Which head stands where decides nothing: permuted gradients give permuted updates.
TEST(MatrixLayout, PermutedHeadsGivePermutedUpdates) {
  const std::vector<int64_t> shape{40, 10};
  const at::Tensor grad = random_tensor(shape, "permuted");
  // heads of the fused rows: q0 q1 q2 k0 v0 | q3 q4 q5 k1 v1
  const std::vector<Rows> orders{{2, 0, 1, 3, 4, 5, 7, 6, 8, 9},   // within their groups
                                 {5, 6, 7, 8, 9, 0, 1, 2, 3, 4}};  // the groups change places
  for (bool per_head : {false, true})
    for (const Rows& order : orders) {
      Rows rows;
      for (int64_t head : order)
        for (int64_t r = 0; r < kWidth; ++r) rows.push_back(head * kWidth + r);
      const at::Tensor index = at::tensor(rows, at::kLong);
      const ParamSpec spec = with_layout(spec_of(shape), {".*", qkv(false, per_head)});
      const at::Tensor moved = first_step(spec, leaf(shape, "w"), grad);
      const at::Tensor permuted = first_step(spec, leaf(shape, "w"), grad.index_select(0, index));
      EXPECT_LT(max_difference(permuted, moved.index_select(0, index)), 2e-6);
    }
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string misfit(std::vector<int64_t> shape, const MatrixLayout& layout) {
  return refusal([&] {
    with_layout(spec_of(std::move(shape), "layers.0.w"), {"layers.*", layout});
  });
}

TEST(MatrixLayout, ImpossibleLayoutsNameParameterShapeAndRule) {
  EXPECT_EQ(misfit({48, 10}, qkv()),
            "layout rule 'layers.*' does not fit layers.0.w of shape [48, 10]: 6 q heads and 2 kv "
            "heads of 4 make 40 rows");
  EXPECT_THAT(misfit({40, 10}, qkv(true)), HasSubstr("6 q heads with a gate and 2 kv heads of 4"));
  EXPECT_THAT(misfit({10, 10}, plain(LayoutKind::kHeads, 4)),
              HasSubstr("10 rows are not a multiple of head_dim 4"));
  EXPECT_THAT(misfit({11, 10}, plain(LayoutKind::kGateUp)), HasSubstr("11 rows have no halves"));
  EXPECT_THAT(misfit({11, 10}, plain(LayoutKind::kRows, 0, {{4, 2}, false})),
              HasSubstr("not a multiple of the blocks [4, 2], which sum to 6"));
  EXPECT_THAT(misfit({10, 10}, plain(LayoutKind::kExperts)), HasSubstr("takes 3 dimensions"));
  EXPECT_THAT(misfit({10, 10}, plain(LayoutKind::kConvolution)), HasSubstr("3 dimensions or more"));
  EXPECT_THAT(misfit({2, 10, 10}, plain(LayoutKind::kWhole)), HasSubstr("takes 2 dimensions"));
  EXPECT_THAT(misfit({40}, qkv()), HasSubstr("qkv takes [rows, columns]"));
}

TEST(MatrixLayout, RulesWithoutMeaningAreRefused) {
  const auto bad = [](const MatrixLayout& layout, const std::string& pattern = ".*") {
    return refusal([&] { check_layout_rule({pattern, layout}); });
  };
  EXPECT_THAT(bad(plain(LayoutKind::kWhole), "("), HasSubstr("'(' is no regular expression"));
  EXPECT_THAT(bad(plain(LayoutKind::kHeads)), HasSubstr("head_dim of heads must be above 0"));
  EXPECT_THAT(bad(plain(LayoutKind::kRows)), HasSubstr("needs the row count"));
  EXPECT_THAT(bad(plain(LayoutKind::kRows, 0, {{4, 0}, false})), HasSubstr("must be above 0"));
  MatrixLayout uneven = qkv();
  uneven.kv_heads = 4;
  EXPECT_THAT(bad(uneven), HasSubstr("6 q heads cannot share 4 kv heads"));
  EXPECT_THAT(refusal([] { parse_layout_kind("gate-up"); }), HasSubstr("did you mean 'gate_up'?"));
  EXPECT_EQ(parse_layout_kind("convolution"), LayoutKind::kConvolution);
}

TEST(MatrixLayout, NothingIsUnmatchedAndNothingMatchedTwice) {
  const std::vector<ParamSpec> specs{spec_of({8, 4}, "a.weight"), spec_of({8, 4}, "b.weight")};
  const LayoutRule a{"a\\.weight", plain(LayoutKind::kGateUp)};
  const auto laid = lay_out(specs, {a});
  EXPECT_EQ(laid.specs[0].blocks, (RowBlocks{{4, 4}, false}));
  EXPECT_EQ(laid.specs[1], specs[1]);
  EXPECT_EQ(laid.patterns, (std::vector<std::string>{"a\\.weight", ""}));
  EXPECT_THAT(refusal([&] {
                lay_out(specs, {a, {".*", plain(LayoutKind::kWhole)}});
              }),
              HasSubstr("a.weight is laid out by two rules, 'a\\.weight' and '.*'"));
  EXPECT_THAT(refusal([&] {
                lay_out(specs, {{"weight", plain(LayoutKind::kWhole)}});
              }),
              HasSubstr("layout rule 'weight' decides nothing"));
}

// A model declares blocks; `whole` takes them back.
TEST(MatrixLayout, ARuleReplacesTheModelsWord) {
  ParamSpec fused = spec_of({8, 4});
  fused.blocks = {{4, 2, 2}, false};
  EXPECT_TRUE(with_layout(fused, {".*", plain(LayoutKind::kWhole)}).blocks.rows.empty());
  EXPECT_EQ(with_layout(fused, {".*", plain(LayoutKind::kGateUp)}).blocks,
            (RowBlocks{{4, 4}, false}));
}

TEST(MatrixLayout, IsDescribedInOneLine) {
  const auto text = [](std::vector<int64_t> shape, const MatrixLayout& layout) {
    return describe_layout(with_layout(spec_of(std::move(shape)), {".*", layout}));
  };
  EXPECT_EQ(text({40, 10}, plain(LayoutKind::kWhole)), "");
  EXPECT_EQ(text({40, 10}, qkv()), "split into rows 12 + 4 + 4, twice");
  EXPECT_EQ(text({40, 10}, qkv(false, true)), "split into rows 4, 10 times, each alone");
  EXPECT_EQ(text({40, 10}, qkv(false, false, false)), "split into rows 24 + 8 + 8");
  EXPECT_EQ(text({3, 8, 10}, plain(LayoutKind::kExperts)), "3 slices");
  EXPECT_EQ(text({3, 8, 10}, plain(LayoutKind::kGateUp)), "3 slices, split into rows 4 + 4");
  EXPECT_EQ(text({8, 3, 3, 3}, plain(LayoutKind::kConvolution)), "[8, 27] of [8, 3, 3, 3]");
}

// From here on through the config: what build_optimizer makes of the rules.
std::vector<NamedParam> foreign_model() {
  return {named("embed.weight", ParamRole::kEmbedding, {20, 10}),
          named("layers.0.qkv_proj.weight", ParamRole::kMatrix, {40, 10}),
          named("layers.0.qkv_proj.bias", ParamRole::kBias, {40}),
          named("layers.0.gate_up.weight", ParamRole::kMatrix, {16, 10}),
          named("patch.weight", ParamRole::kMatrix, {8, 3, 2, 2})};
}

OptimizerConfig foreign_config() {
  OptimizerConfig config;
  config.optimizer = "muon";
  config.lr = kLr;
  config.weight_decay = 0.0;
  config.clip_grad = 0.0;
  config.muon_fp32_matmul_prec = "highest";
  config.muon_matrix_layouts = {{".*qkv_proj\\.weight", qkv()},
                                {".*gate_up\\.weight", plain(LayoutKind::kGateUp)},
                                {"patch\\.weight", plain(LayoutKind::kConvolution)}};
  return config;
}

TEST(MatrixLayout, RulesReachTheChainItsTableAndItsHash) {
  const auto params = foreign_model();
  const auto chain = build_optimizer(params, foreign_config());
  EXPECT_EQ(chain->routing()[4].optimizer, "muon");
  EXPECT_EQ(chain->routing()[4].layout, "[8, 12] of [8, 3, 2, 2]");
  EXPECT_EQ(chain->routing()[0].layout, "");
  EXPECT_THAT(to_string(chain->routing()),
              HasSubstr("matrix of the transformer body; split into rows 12 + 4 + 4, twice\n"));
  OptimizerConfig other = foreign_config();
  other.muon_matrix_layouts[0].layout.per_head = true;
  EXPECT_NE(hash_routes(chain->routing()),
            hash_routes(build_optimizer(foreign_model(), other)->routing()));

  set_gradients(params, 0);
  std::vector<at::Tensor> before;
  for (const auto& param : params) before.push_back(param.tensor.detach().clone());
  EXPECT_EQ(chain->step().ns_calls, 3 + 2 + 1);
  const auto moved = [&](size_t i) { return before[i] - params[i].tensor.detach(); };
  EXPECT_LT(max_difference(moved(1), by_slices(params[1].tensor.grad(), interleaved(false, false))),
            3e-6);
  EXPECT_LT(max_difference(moved(3), by_slices(params[3].tensor.grad(), {run(0, 8), run(8, 8)})),
            3e-6);
  const at::Tensor kernel = params[4].tensor.grad().reshape({8, 12});
  EXPECT_LT(max_difference(moved(4).view({8, 12}), by_slices(kernel, {run(0, 8)})), 3e-6);
}

// Momentum, state by name and a resumed run, where the stored shape is not the matrix'.
TEST(MatrixLayout, KernelsResumeBitwise) {
  for (auto dtype : {at::kFloat, at::kBFloat16}) {
    const std::vector<NamedParam> straight{
        named("patch.weight", ParamRole::kMatrix, {8, 3, 2, 2}, dtype)};
    const std::vector<NamedParam> begun{
        named("patch.weight", ParamRole::kMatrix, {8, 3, 2, 2}, dtype)};
    OptimizerConfig config = foreign_config();
    config.muon_matrix_layouts.erase(config.muon_matrix_layouts.begin(),
                                     config.muon_matrix_layouts.begin() + 2);
    const auto whole = build_optimizer(straight, config), first = build_optimizer(begun, config);
    for (int t = 0; t < 4; ++t) {
      set_gradients(straight, t);
      whole->step();
      if (t < 2) {
        set_gradients(begun, t);
        first->step();
      }
    }
    const auto resumed = build_optimizer(begun, config);
    EXPECT_EQ(first->state_bytes(), 4 * 96);
    resumed->load_state(first->state());
    for (int t = 2; t < 4; ++t) {
      set_gradients(begun, t);
      resumed->step();
    }
    EXPECT_TRUE(same_bytes(begun[0].tensor, straight[0].tensor));
  }
}

TEST(MatrixLayout, ContradictionsAreRefused) {
  const auto built = [](const OptimizerConfig& config) {
    return refusal([&] { build_optimizer(foreign_model(), config); });
  };
  OptimizerConfig config = foreign_config();
  config.muon_split_qkv = false;
  EXPECT_THAT(built(config),
              HasSubstr("rule '.*qkv_proj\\.weight' splits layers.0.qkv_proj.weight, "
                        "which muon_split_qkv: false keeps whole"));
  config = foreign_config();
  config.muon_matrix_layouts = {{"embed.*", plain(LayoutKind::kWhole)}};
  EXPECT_THAT(built(config), HasSubstr("rule 'embed.*' lays out embed.weight, which adam updates "
                                       "(embedding)"));
  config = foreign_config();
  config.optimizer = "adam";
  EXPECT_THAT(built(config), HasSubstr("muon_matrix_layouts and muon_qk_clip_tau need optimizer"));
  config = foreign_config();
  config.muon_qk_clip_tau = 0.0;
  EXPECT_THAT(built(config), HasSubstr("muon_qk_clip_tau: 0"));
  // a kernel without a rule is no matrix
  config = foreign_config();
  config.muon_matrix_layouts.pop_back();
  EXPECT_EQ(build_optimizer(foreign_model(), config)->routing()[4].optimizer, "adam");
}

TEST(MatrixLayout, SpecsGivenWithAGroupAreChecked) {
  Muon muon(std::vector<torch::optim::OptimizerParamGroup>{});
  const at::Tensor kernel = leaf({8, 3, 2, 2}, "k");
  ParamSpec spec = spec_of({8, 3, 2, 2}, "patch.weight");
  const auto add = [&](std::vector<ParamSpec> specs) {
    return refusal([&] { muon.add_param_group({std::vector<at::Tensor>{kernel}}, specs); });
  };
  EXPECT_THAT(add({}), HasSubstr("ParamSpec with flatten"));
  EXPECT_THAT(add({spec}), HasSubstr("[8, 3, 2, 2]"));
  spec.flatten = true;
  EXPECT_THAT(add({spec, spec}), HasSubstr("a group of 1 parameters came with 2 specifications"));
  spec.blocks = {{3, 2}, false};
  EXPECT_THAT(add({spec}), HasSubstr("patch.weight: 8 rows"));
  EXPECT_TRUE(muon.param_groups().empty());
  spec.blocks = {{2, 2}, false};
  EXPECT_EQ(add({spec}), "");
}

TEST(ScaleRows, ActsOnMasterAndParameter) {
  for (auto dtype : {at::kFloat, at::kBFloat16}) {
    const std::vector<NamedParam> params{named("w", ParamRole::kMatrix, {4, 6}, dtype),
                                         named("b", ParamRole::kBias, {4}, dtype)};
    const auto chain = build_optimizer(params, [] {
      OptimizerConfig config;
      config.optimizer = "muon";
      return config;
    }());
    const at::Tensor factors = at::tensor({1.0, 0.5, 0.3, 2.0}, at::kDouble);
    std::vector<at::Tensor> wide;
    for (const auto& param : params)
      wide.push_back(param.tensor.detach().to(at::kFloat, false, /*copy=*/true));
    chain->scale_rows("w", factors);
    chain->scale_rows("b", factors);
    const at::Tensor narrow = factors.to(at::kFloat);
    EXPECT_TRUE(same_bytes(params[0].tensor, (wide[0] * narrow.unsqueeze(1)).to(dtype)));
    EXPECT_TRUE(same_bytes(params[1].tensor, (wide[1] * narrow).to(dtype)));
    if (dtype == at::kBFloat16) {
      const at::Tensor master = chain->state().at("optimizer.state.fp32_param.w").view({4, 6});
      EXPECT_TRUE(same_bytes(master, wide[0] * narrow.unsqueeze(1)));
    }
    EXPECT_THROW(chain->scale_rows("w", factors.narrow(0, 0, 3)), Error);
    EXPECT_THROW(chain->scale_rows("x", factors), Error);
  }
}

}  // namespace
}  // namespace muoncore::optim
