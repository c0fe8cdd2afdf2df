// Exact sums of non-negative numbers, for norms that must not depend on anything but the numbers:
// not on order, threads, slices, buckets or the mesh of ranks. A sum is kept as a fixed-point
// number wide enough for the square of every fp64 value, in 32-bit digits held in 64-bit integers;
// adding the digits of two sums adds the sums, so ranks combine theirs by one all-reduce of
// integers.
//
// Source of the idea: U. Kulisch's long accumulator ("Computer Arithmetic and Validity", 2013).
// Squares of fp32, bf16 and fp16 values are first collected as integers by exponent, which costs
// about what a plain sum costs.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

namespace muoncore::optim {

class ExactSum {
 public:
  // Digits, then how many NaN and how many infinite values were added.
  static constexpr int64_t kRecordSize = 136;

  // Adds the square of every element: fp32, fp64, bf16, fp16; contiguous, on the CPU. Threads share
  // the work; the result does not depend on them.
  void add_squares(const at::Tensor& tensor);
  // Adds one value >= 0 (its square is not taken).
  void add(double value);
  void merge(const ExactSum& other);

  bool finite() const { return nans() == 0 && infinities() == 0; }
  int64_t nans() const { return record_[kRecordSize - 2]; }
  int64_t infinities() const { return record_[kRecordSize - 1]; }
  double value() const;  // rounded to the nearest fp64 number; NaN or infinite when !finite()
  double root() const;   // sqrt of the sum; finite even where value() overflows

  // The sum as integers, and back. Element-wise sums of up to 2^30 records stand for the sum of
  // their sums.
  std::vector<int64_t> record() const;
  static ExactSum from_record(const std::vector<int64_t>& record);

 private:
  struct Scaled {
    double mantissa;
    int exponent;  // even
  };
  template <typename T>
  void add_block(const T* x, int64_t n);
  void add_shifted(unsigned __int128 value, int position);
  void carry();
  Scaled rounded() const;

  std::array<int64_t, kRecordSize> record_{};
};

}  // namespace muoncore::optim
