#include "muoncore/optim/exact_sum.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>

#include "muoncore/core/check.h"

namespace muoncore::optim {
namespace {

// Digit i counts 2^(32 i - kBias). The square of the smallest fp64 number is 2^-2148; that of the
// largest, times 2^40 elements, is below 2^2088 and so below the last digit.
constexpr int kBias = 2176;
constexpr int kDigits = ExactSum::kRecordSize - 2;
constexpr int64_t kDigitMask = 0xffffffff;

// Elements between two emptyings of a Collector. Each adds less than 2^48 to one of kLanes sums,
// and no sum gets more than 2^15 + 3 of them.
constexpr int64_t kCollected = int64_t{1} << 17;
constexpr int64_t kLanes = 4;  // so that equal exponents in a row do not wait for each other
constexpr int64_t kBlock = int64_t{1} << 20;

// Sums of squared mantissas by exponent.
class Collector {
 public:
  void add(int64_t lane, uint32_t bits) {
    const uint32_t exponent = (bits >> 23) & 0xff;
    const uint64_t mantissa = (bits & 0x7fffff) | (static_cast<uint32_t>(exponent != 0) << 23);
    sums_[lane][exponent] += mantissa * mantissa;
  }

  // emit(sum, position): the sum times 2^position; returns false when a value was NaN or infinite.
  template <typename Emit>
  bool empty(const Emit& emit) {
    bool finite = true;
    for (int exponent = 0; exponent < 256; ++exponent) {
      unsigned __int128 sum = 0;
      for (auto& lane : sums_) {
        sum += lane[exponent];
        lane[exponent] = 0;
      }
      if (sum == 0) continue;
      finite = finite && exponent < 255;
      if (exponent < 255) emit(sum, 2 * std::max(exponent, 1) - 300);
    }
    return finite;
  }

 private:
  std::array<std::array<uint64_t, 256>, kLanes> sums_{};
};

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
uint32_t bits_of(at::BFloat16 value) { return static_cast<uint32_t>(value.x) << 16; }
uint32_t bits_of(at::Half value) { return std::bit_cast<uint32_t>(static_cast<float>(value)); }

template <typename T>
bool collect(const T* x, int64_t n, Collector& collector, const auto& emit) {
  bool finite = true;
  for (int64_t begin = 0; begin < n; begin += kCollected) {
    const int64_t end = std::min(n, begin + kCollected);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes)
      for (int64_t lane = 0; lane < kLanes; ++lane) collector.add(lane, bits_of(x[i + lane]));
    for (; i < end; ++i) collector.add(0, bits_of(x[i]));
    finite = collector.empty(emit) && finite;
  }
  return finite;
}

struct Split {
  uint64_t mantissa;
  int exponent;
};

Split split(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const int exponent = static_cast<int>((bits >> 52) & 0x7ff);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  return {exponent == 0 ? fraction : fraction | (uint64_t{1} << 52), std::max(exponent, 1) - 1075};
}

}  // namespace

void ExactSum::add_shifted(unsigned __int128 value, int position) {
  const int bit = position + kBias;
  int digit = bit / 32;
  const int shift = bit % 32;
  // 128 bits shifted by up to 31 do not fit at once: the lowest digit is taken first
  record_[digit] += static_cast<int64_t>(static_cast<uint64_t>(value << shift) & kDigitMask);
  for (value >>= 32 - shift; value != 0; value >>= 32)
    record_[++digit] += static_cast<int64_t>(static_cast<uint64_t>(value) & kDigitMask);
}

void ExactSum::carry() {
  for (int i = 0; i + 1 < kDigits; ++i) {
    record_[i + 1] += record_[i] >> 32;
    record_[i] &= kDigitMask;
  }
}

void ExactSum::add(double value) {
  if (!std::isfinite(value)) {
    ++record_[std::isnan(value) ? kRecordSize - 2 : kRecordSize - 1];
    return;
  }
  const auto [mantissa, exponent] = split(value);
  add_shifted(mantissa, exponent);
  carry();
}

void ExactSum::merge(const ExactSum& other) {
  for (int64_t i = 0; i < kRecordSize; ++i) record_[i] += other.record_[i];
  carry();
}

template <typename T>
void ExactSum::add_block(const T* x, int64_t n) {
  bool finite = true;
  if constexpr (std::is_same_v<T, double>) {
    for (int64_t i = 0; i < n; ++i) {
      finite = finite && std::isfinite(x[i]);
      if (!std::isfinite(x[i])) continue;
      const auto [mantissa, exponent] = split(x[i]);
      add_shifted(static_cast<unsigned __int128>(mantissa) * mantissa, 2 * exponent);
    }
  } else {
    Collector collector;
    finite = collect(x, n, collector,
                     [&](unsigned __int128 sum, int position) { add_shifted(sum, position); });
  }
  carry();
  for (int64_t i = 0; !finite && i < n; ++i)
    if (const double value = static_cast<double>(x[i]); !std::isfinite(value)) add(value);
}

void ExactSum::add_squares(const at::Tensor& tensor) {
  check(tensor.is_cpu() && tensor.is_contiguous(), "an exact sum takes contiguous CPU tensors");
  std::mutex mutex;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, tensor.scalar_type(), "exact_sum", [&] {
    const auto* x = tensor.const_data_ptr<scalar_t>();
    const int64_t n = tensor.numel();
    at::parallel_for(0, n, kBlock, [&](int64_t first, int64_t last) {
      ExactSum own;
      for (int64_t i = first; i < last; i += kBlock)
        own.add_block(x + i, std::min(kBlock, last - i));
      std::lock_guard lock(mutex);
      merge(own);
    });
  });
}

// The highest 128 bits of the sum, rounded once, as mantissa * 2^exponent.
ExactSum::Scaled ExactSum::rounded() const {
  int top = kDigits - 1;
  while (top > 0 && record_[top] == 0) --top;
  unsigned __int128 bits = 0;
  for (int i = top; i > top - 4; --i)
    bits = (bits << 32) | static_cast<uint64_t>(i >= 0 ? record_[i] : 0);
  for (int i = top - 4; i >= 0; --i)
    if (record_[i] != 0) bits |= 1;  // breaks ties as the digits left out would
  return {static_cast<double>(bits), 32 * (top - 3) - kBias};
}

double ExactSum::value() const {
  if (nans() > 0) return std::numeric_limits<double>::quiet_NaN();
  if (infinities() > 0) return std::numeric_limits<double>::infinity();
  const auto [mantissa, exponent] = rounded();
  return std::ldexp(mantissa, exponent);
}

double ExactSum::root() const {
  if (!finite()) return value();
  const auto [mantissa, exponent] = rounded();
  return std::ldexp(std::sqrt(mantissa), exponent / 2);
}

std::vector<int64_t> ExactSum::record() const { return {record_.begin(), record_.end()}; }

ExactSum ExactSum::from_record(const std::vector<int64_t>& record) {
  check(record.size() == kRecordSize, "an exact sum's record has {} numbers, not {}", kRecordSize,
        record.size());
  ExactSum sum;
  std::copy(record.begin(), record.end(), sum.record_.begin());
  sum.carry();
  return sum;
}

}  // namespace muoncore::optim
