// 2,000 random configurations and shapes of Muon against the formula in fp64, twice: with a seed
// that is new each time (printed), and with 42.
#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "muoncore/muon/coefficient_guard.h"
#include "muoncore/muon/matrix_blocks.h"
#include "muoncore/muon/reference.h"
#include "muoncore/muon/scale_mode.h"
#include "muoncore/optim/muon.h"
#include "tests/muon/inputs.h"

namespace muoncore::optim {
namespace {

using muoncore::testing::gaussian;

constexpr int kCases = 2000;
constexpr int kSteps = 2;

// Draws by position: pick(n) is in [0, n).
class Draws {
 public:
  Draws(uint64_t seed, uint64_t index) : rng_({seed, hash_name("muon_random_test"), index}) {}
  int64_t pick(int64_t n) {
    return static_cast<int64_t>(rng_.below(next_++, static_cast<uint64_t>(n)));
  }
  template <typename T>
  T of(const std::vector<T>& choices) {
    return choices[static_cast<size_t>(pick(static_cast<int64_t>(choices.size())))];
  }

 private:
  CounterRng rng_;
  uint64_t next_ = 0;
};

struct Case {
  MuonOptions options;
  std::vector<int64_t> shape;
  RowBlocks blocks;
  at::ScalarType dtype = at::kFloat;
  double grad_size = 1, clip = 1;

  std::string text() const {
    std::ostringstream s;
    s << options.coefficient_type() << "/" << options.num_ns_steps() << " "
      << options.fp32_matmul_prec() << " " << options.scale_mode() << " "
      << options.weight_decay_method() << " momentum " << options.momentum() << " nesterov "
      << options.nesterov() << " eps " << options.ns_eps().value_or(0) << " " << at::toString(dtype)
      << " grad " << grad_size << " clip " << clip << " shape " << ::testing::PrintToString(shape)
      << " blocks " << ::testing::PrintToString(blocks.rows) << blocks.per_group;
    return s.str();
  }
};

Case draw_case(Draws& d) {
  Case c;
  const bool medium = d.pick(4) == 0;
  using Type = std::pair<const char*, int64_t>;
  const auto [type, steps] =
      d.of<Type>(medium ? std::vector<Type>{{"simple", 5}, {"quintic", 5}, {"polar_express", 5}}
                        : std::vector<Type>{{"simple", 3},
                                            {"simple", 5},
                                            {"quintic", 4},
                                            {"quintic", 5},
                                            {"polar_express", 6},
                                            {"cans", 5},
                                            {"aol", 4},
                                            {"deepseekv4", 10},
                                            {"cubic5", 5}});
  c.options = MuonOptions(d.of<double>({0.0, 0.01, 0.1}));
  c.options.coefficient_type(type).num_ns_steps(steps);
  c.options.fp32_matmul_prec(medium ? "medium" : d.of<const char*>({"highest", "high"}));
  c.options.momentum(d.of<double>({0.0, 0.5, 0.95})).nesterov(d.pick(2) == 1);
  c.options.weight_decay(d.of<double>({0.0, 0.1}));
  c.options.weight_decay_method(
      d.of<const char*>({"none", "decoupled", "independent", "palm", "l2"}));
  c.options.scale_mode(d.of<const char*>(
      {"spectral", "unit_rms_norm", "shape_scaling", "original", "match_rms_adamw"}));
  c.options.extra_scale_factor(d.of<double>({1.0, 0.2}));
  if (d.pick(4) == 0) c.options.ns_eps(1e-7);
  const int64_t group = 1 + d.pick(6), groups = 1 + d.pick(4);
  const int64_t rows = group * groups, cols = 1 + d.pick(20);
  c.shape = d.pick(4) == 0 ? std::vector<int64_t>{1 + d.pick(3), rows, cols}
                           : std::vector<int64_t>{rows, cols};
  if (d.pick(3) == 0) {
    const int64_t first = 1 + d.pick(group);
    c.blocks.rows =
        first == group ? std::vector<int64_t>{group} : std::vector<int64_t>{first, group - first};
    c.blocks.per_group = d.pick(2) == 1;
  }
  c.dtype = d.of<at::ScalarType>({at::kFloat, at::kFloat, at::kDouble, at::kBFloat16});
  // an update near zero decides by its sign, which only fp64 shares with the reference
  if (c.dtype == at::kDouble && !medium && d.pick(4) == 0)
    c.options.weight_decay_method("cautious");
  c.grad_size = d.of<double>({1e-25, 1e-12, 1e-3, 1.0, 1e8, 1e25});
  // upstream's norm overflows there, by definition; AOL scaling undoes eps, and refuses it
  if (c.grad_size > 1e18 || c.options.coefficient_type() == "aol") c.options.ns_eps(std::nullopt);
  c.clip = d.of<double>({1.0, 0.37, 1e-6});
  return c;
}

double decay_rate(const MuonOptions& o) {
  if (o.weight_decay_method() == "decoupled") return o.weight_decay() * o.lr();
  if (o.weight_decay_method() == "independent") return o.weight_decay();
  return o.weight_decay_method() == "palm" ? o.weight_decay() * o.lr() * o.lr() : 0.0;
}

muon::NewtonSchulzOptions newton_schulz_of(const MuonOptions& o) {
  muon::NewtonSchulzOptions ns;
  ns.coefficient_type = o.coefficient_type();
  ns.steps = o.num_ns_steps();
  ns.eps = o.ns_eps();
  return ns;
}

// The formula of the header, in fp64. `moved` collects the length of the path that the updates
// make.
void reference_step(at::Tensor& p, at::Tensor& m, const at::Tensor& grad, const Case& c,
                    double& moved) {
  const MuonOptions& o = c.options;
  p = p * (1 - decay_rate(o));
  at::Tensor g = grad.to(at::kDouble) * c.clip;
  if (o.weight_decay_method() == "l2") g = g + p * o.weight_decay();
  m = m * o.momentum() + g * (1 - o.momentum());
  at::Tensor u = o.nesterov() ? m * o.momentum() + g * (1 - o.momentum()) : m;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : muon::split_blocks(u, c.blocks))
    parts.push_back(
        muon::reference::newton_schulz(part, newton_schulz_of(o)) *
        muon::scale_factor(muon::parse_scale_mode(o.scale_mode()), part.size(-2), part.size(-1)));
  at::Tensor update =
      muon::merge_blocks(parts, c.blocks, p.sizes()) * (o.lr() * o.extra_scale_factor());
  moved += update.norm().item<double>();
  if (o.weight_decay_method() == "cautious")
    p = p - p * (update * p >= 0).to(at::kDouble) * (o.weight_decay() * o.lr());
  p = p - update;
  if (c.dtype == at::kBFloat16) p = p.to(at::kFloat).to(at::kBFloat16).to(at::kDouble);
}

// Relative error of an update: rounding of the smallest directions, times the slope by which the
// iteration lifts them.
double update_bound(const Case& c) {
  if (c.options.fp32_matmul_prec() == "medium") return 0.25;
  const double unit = c.dtype == at::kDouble ? 1e-14 : 3e-6;
  return 10 * unit +
         unit * muon::map_properties(muon::resolve_coefficients(newton_schulz_of(c.options))).slope;
}

void expect_bound(const Case& c, uint64_t seed) {
  at::Tensor p = gaussian(c.shape, seed, c.dtype).requires_grad_();
  Muon muon(std::vector<at::Tensor>{p}, c.options);
  ParamSpec spec;
  spec.name = "drawn";
  spec.blocks = c.blocks;
  muon.set_spec(p, spec);
  at::Tensor expected = p.detach().to(at::kDouble).clone(), m = expected * 0;
  double moved = 0;
  for (uint64_t k = 1; k <= kSteps; ++k) {
    p.mutable_grad() = (gaussian(c.shape, seed + k, at::kDouble) * c.grad_size).to(c.dtype);
    at::Tensor before = p.grad().clone();
    muon.step_with({c.clip});
    ASSERT_TRUE(p.grad().equal(before));
    reference_step(expected, m, before, c, moved);
  }
  const double rounding = c.dtype == at::kDouble ? 1e-14 : c.dtype == at::kBFloat16 ? 8e-3 : 1e-6;
  const double error = (p.detach().to(at::kDouble) - expected).norm().item<double>();
  EXPECT_LE(error, update_bound(c) * moved + rounding * kSteps * expected.norm().item<double>());
  EXPECT_EQ(muon.last_stats()[0].matrices, muon::count_matrices(c.shape, c.blocks));
}

void run(uint64_t seed) {
  for (int i = 0; i < kCases && !::testing::Test::HasFailure(); ++i) {
    Draws draws(seed, static_cast<uint64_t>(i));
    const Case c = draw_case(draws);
    SCOPED_TRACE("seed " + std::to_string(seed) + " case " + std::to_string(i) + ": " + c.text());
    expect_bound(c, seed + 1000 * static_cast<uint64_t>(i));
  }
}

TEST(MuonRandom, HoldsItsBoundsWithSeed42) { run(42); }

TEST(MuonRandom, HoldsItsBoundsWithANewSeed) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  run(seed);
}

}  // namespace
}  // namespace muoncore::optim
