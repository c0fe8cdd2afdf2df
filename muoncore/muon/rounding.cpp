#include "muoncore/muon/rounding.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>

#include <algorithm>

#include "muoncore/core/check.h"

namespace muoncore::muon {
namespace {

constexpr int64_t kDrawsPerWord = 4;  // of 16 bits each
constexpr int64_t kGrain = int64_t{1} << 14;

// 16 random bits per element, as int32.
at::Tensor draw(int64_t count, const CounterRng& rng) {
  at::Tensor out = at::empty({count}, at::kInt);
  auto* values = out.mutable_data_ptr<int32_t>();
  const int64_t words = (count + kDrawsPerWord - 1) / kDrawsPerWord;
  at::parallel_for(0, words, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t w = begin; w < end; ++w) {
      uint64_t bits = rng.bits(static_cast<uint64_t>(w));
      const int64_t last = std::min(count, (w + 1) * kDrawsPerWord);
      for (int64_t i = w * kDrawsPerWord; i < last; ++i, bits >>= 16)
        values[i] = static_cast<int32_t>(bits & 0xffff);
    }
  });
  return out;
}

}  // namespace

// A bf16 is the upper half of an fp32, so a uniform number below 2^16 is added to the bits and the
// lower half is cut off: it carries into the upper half with the probability lower half / 2^16.
at::Tensor round_stochastically(const at::Tensor& x, const CounterRng& rng) {
  check(x.scalar_type() == at::kFloat, "stochastic rounding starts from fp32, got {}",
        c10::toString(x.scalar_type()));
  const at::Tensor plain = x.contiguous();
  at::Tensor bits = plain.view(at::kInt).add(draw(x.numel(), rng).view(x.sizes()).to(x.device()));
  bits.bitwise_and_(static_cast<int64_t>(-65536));
  return at::where(plain.isfinite(), bits.view(at::kFloat), plain).to(at::kBFloat16);
}

}  // namespace muoncore::muon
