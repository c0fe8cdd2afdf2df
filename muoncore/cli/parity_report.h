// What `muoncore parity` finds: one verdict per case, counted by group.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace muoncore::cli {

// Stricter: upstream accepts it, we refuse. Wider: upstream refuses it, we support it and the
// result holds against the fp64 reference. Both are part of passed.
enum class Verdict { kPassed, kStricter, kWider, kFailed, kSkipped };

// How far `got` is from `expected`; NaN must stand where NaN stands.
struct Distance {
  bool same_nans = true;
  double worst_error = 0;     // greatest |got - expected|
  double worst_of_limit = 0;  // greatest |got - expected| / (atol + rtol |expected|)
  bool within() const { return same_nans && worst_of_limit <= 1; }
};
Distance distance(const at::Tensor& got, const at::Tensor& expected, double atol, double rtol);
Distance number_distance(double got, double expected, double atol, double rtol);

class GroupReport {
 public:
  explicit GroupReport(std::string name) : name_(std::move(name)) {}

  void add(Verdict verdict, const std::string& id, const std::string& note = "");
  void skip(const std::string& id, const std::string& reason) {
    add(Verdict::kSkipped, id, reason);
  }
  // Passed when every distance of the case is within its limits.
  void judge(const std::string& id, const std::vector<Distance>& distances);

  int64_t passed() const;  // stricter and wider included
  int64_t failed() const { return count(Verdict::kFailed); }
  int64_t skipped() const { return count(Verdict::kSkipped); }
  void print(std::ostream& out) const;

 private:
  int64_t count(Verdict verdict) const;
  std::string name_;
  std::map<Verdict, int64_t> counts_;
  std::vector<std::string> failures_;
  std::map<std::string, int64_t> skip_reasons_;
  double worst_of_limit_ = 0;
};

}  // namespace muoncore::cli
