#include "muoncore/optim/lion.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/serialize.h>

#include <cmath>
#include <sstream>

#include "muoncore/core/check.h"
#include "support.h"

namespace muoncore::optim {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

LionOptions options() { return LionOptions(0.01).betas({0.9, 0.99}).weight_decay(0.1); }

// The paper's algorithm, element by element in fp64.
struct ReferenceLion {
  std::vector<double> p, m;
  void step(const std::vector<double>& g, double scale) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double blend = 0.9 * m[i] + 0.1 * g[i] * scale;
      const double sign = blend > 0 ? 1 : blend < 0 ? -1 : 0;
      p[i] = p[i] * (1 - 0.01 * 0.1) - 0.01 * sign;
      m[i] = 0.99 * m[i] + 0.01 * g[i] * scale;
    }
  }
};

std::vector<double> values(const at::Tensor& t) {
  const at::Tensor d = t.detach().to(at::kDouble).contiguous();
  return {d.const_data_ptr<double>(), d.const_data_ptr<double>() + d.numel()};
}

TEST(Lion, FollowsTheFormulasAndWritesNoGradient) {
  for (auto dtype : {at::kDouble, at::kFloat}) {
    const at::Tensor p = leaf({7, 13}, "p", 1.0, dtype);
    ReferenceLion expected{values(p), std::vector<double>(91, 0.0)};
    Lion lion({p}, options());
    for (int t = 0; t < 6; ++t) {
      const at::Tensor g = random_tensor({7, 13}, fmt::format("g{}", t), 1.0, dtype);
      const at::Tensor before = g.clone();
      p.mutable_grad() = g;
      lion.step_with({.grad_scale = 0.25});
      EXPECT_TRUE(same_bytes(g, before));
      expected.step(values(g), 0.25);
      const auto got = values(p), momentum = values(lion.param_state(p).at("exp_avg"));
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected.p[i], dtype == at::kDouble ? 1e-14 : 1e-6);
        ASSERT_NEAR(momentum[i], expected.m[i], dtype == at::kDouble ? 1e-14 : 1e-7);
      }
      EXPECT_EQ(lion.last_stats()[0].update_rms(), 1.0);
      EXPECT_EQ(lion.last_stats()[0].elements, 91);
    }
    EXPECT_EQ(lion.state_bytes(), 91 * static_cast<int64_t>(p.element_size()));
  }
}

// sign(0) = 0: no gradient yet, no step; and neither the size of a gradient nor its precision
// changes one.
TEST(Lion, Edges) {
  const at::Tensor p = leaf({5}, "p"), still = p.detach().clone(), none = leaf({3}, "none");
  const at::Tensor none_before = none.detach().clone();
  Lion lion({p, none}, options().weight_decay(0.0));
  p.mutable_grad() = at::zeros({5});
  lion.step();
  EXPECT_TRUE(same_bytes(p.detach(), still));
  EXPECT_EQ(lion.last_stats()[0].update_rms(), 0.0);
  EXPECT_TRUE(same_bytes(none.detach(), none_before));
  EXPECT_TRUE(lion.param_state(none).empty());
  for (double size : {1e-30, 1.0, 1e30}) {
    const at::Tensor q = leaf({5}, "p");
    Lion one({q}, options().weight_decay(0.0));
    q.mutable_grad() = (random_tensor({5}, "g") * size).to(at::kFloat);
    one.step();
    EXPECT_LT(max_difference(q, still - 0.01 * random_tensor({5}, "g").sign()), 1e-7) << size;
  }
  const at::Tensor low = leaf({5}, "p");
  Lion bf16({low}, options());
  low.mutable_grad() = random_tensor({5}, "g", 1.0, at::kBFloat16);
  EXPECT_NO_THROW(bf16.step());
  EXPECT_EQ(bf16.param_state(low).at("exp_avg").scalar_type(), at::kFloat);
}

TEST(Lion, ResumesByNameAndFromAnArchive) {
  const at::Tensor straight = leaf({4, 6}, "p"), named_copy = leaf({4, 6}, "p"),
                   archived = leaf({4, 6}, "p");
  auto run = [](Lion& lion, const at::Tensor& p, int from, int to) {
    for (int t = from; t < to; ++t) {
      p.mutable_grad() = random_tensor({4, 6}, fmt::format("g{}", t));
      lion.step();
    }
  };
  Lion whole({straight}, options()), first({archived}, options()), second({named_copy}, options());
  run(whole, straight, 0, 4);
  run(first, archived, 0, 2);
  second.set_param_state(named_copy,
                         {{"exp_avg", first.param_state(archived).at("exp_avg").clone()}});
  named_copy.data().copy_(archived.data());
  std::stringstream file;
  torch::serialize::OutputArchive out;
  first.save(out);
  out.save_to(file);
  Lion loaded({archived});
  torch::serialize::InputArchive in;
  in.load_from(file);
  loaded.load(in);
  run(loaded, archived, 2, 4);
  run(second, named_copy, 2, 4);
  EXPECT_TRUE(same_bytes(archived.detach(), straight.detach()));
  EXPECT_TRUE(same_bytes(named_copy.detach(), straight.detach()));
}

TEST(Lion, RefusesWhatItCannotDo) {
  const at::Tensor p = leaf({4}, "p");
  EXPECT_THAT([&] { Lion({p}, LionOptions(-1.0)); }, ThrowsMessage<Error>(HasSubstr("lr -1")));
  EXPECT_THAT(
      [&] {
        Lion({p}, LionOptions().betas({0.9, 1.0}));
      },
      ThrowsMessage<Error>(HasSubstr("[0, 1)")));
  EXPECT_THAT([&] { Lion({p}, LionOptions().weight_decay(std::nan(""))); },
              ThrowsMessage<Error>(HasSubstr("weight_decay")));
  EXPECT_THAT([&] { Lion({leaf({4}, "p", 1.0, at::kBFloat16)}, LionOptions()); },
              ThrowsMessage<Error>(HasSubstr("BFloat16")));
  Lion lion({p}, options());
  EXPECT_THAT([&] { lion.set_param_state(p, {}); }, ThrowsMessage<Error>(HasSubstr("exp_avg")));
  EXPECT_THAT(
      [&] {
        lion.set_param_state(p, {{"exp_avg", at::zeros({5})}});
      },
      ThrowsMessage<Error>(HasSubstr("[5]")));
  EXPECT_THAT(
      [&] {
        lion.set_param_state(p, {{"exp_avg", at::zeros({4})}, {"step", at::zeros({})}});
      },
      ThrowsMessage<Error>(HasSubstr("no place for \"step\"")));
}

}  // namespace
}  // namespace muoncore::optim
