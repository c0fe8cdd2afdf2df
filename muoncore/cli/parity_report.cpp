#include "muoncore/cli/parity_report.h"

#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include <algorithm>

#include "muoncore/core/check.h"

namespace muoncore::cli {

Distance distance(const at::Tensor& got, const at::Tensor& expected, double atol, double rtol) {
  check(got.sizes() == expected.sizes(), "a result has {} elements where the golden has {}",
        got.numel(), expected.numel());
  at::Tensor a = got.detach().to(at::kDouble), b = expected.to(at::kDouble);
  Distance d;
  at::Tensor nan = b.isnan();
  d.same_nans = a.isnan().equal(nan);
  if (b.numel() == 0) return d;
  at::Tensor equal = a.eq(b).logical_or(nan);  // infinities that agree are no distance
  at::Tensor error = at::where(equal, 0.0, (a - b).abs());
  d.worst_error = error.max().item<double>();
  d.worst_of_limit = at::where(equal, 0.0, error / (atol + rtol * b.abs())).max().item<double>();
  if (!(d.worst_of_limit >= 0)) d.same_nans = false;
  return d;
}

Distance number_distance(double got, double expected, double atol, double rtol) {
  return distance(at::scalar_tensor(got, at::kDouble), at::scalar_tensor(expected, at::kDouble),
                  atol, rtol);
}

void GroupReport::add(Verdict verdict, const std::string& id, const std::string& note) {
  ++counts_[verdict];
  if (verdict == Verdict::kFailed) failures_.push_back(note.empty() ? id : id + ": " + note);
  if (verdict == Verdict::kSkipped) ++skip_reasons_[note];
}

void GroupReport::judge(const std::string& id, const std::vector<Distance>& distances) {
  double error = 0, of_limit = 0;
  bool within = !distances.empty();
  for (const Distance& d : distances) {
    within = within && d.within();
    error = std::max(error, d.worst_error);
    of_limit = std::max(of_limit, d.same_nans ? d.worst_of_limit : INFINITY);
  }
  worst_of_limit_ = std::max(worst_of_limit_, of_limit);
  add(within ? Verdict::kPassed : Verdict::kFailed, id,
      within ? "" : fmt::format("error {:.3g} is {:.3g} times the tolerance", error, of_limit));
}

int64_t GroupReport::count(Verdict verdict) const {
  auto it = counts_.find(verdict);
  return it == counts_.end() ? 0 : it->second;
}

int64_t GroupReport::passed() const {
  return count(Verdict::kPassed) + count(Verdict::kStricter) + count(Verdict::kWider);
}

void GroupReport::print(std::ostream& out) const {
  out << fmt::format("{:24s} {:4d} passed {:4d} failed {:4d} skipped", name_, passed(), failed(),
                     skipped());
  if (worst_of_limit_ > 0) out << fmt::format("   worst error/tolerance {:.3f}", worst_of_limit_);
  if (count(Verdict::kStricter) + count(Verdict::kWider) > 0)
    out << fmt::format("   of the passed: {} stricter, {} wider", count(Verdict::kStricter),
                       count(Verdict::kWider));
  out << "\n";
  for (const std::string& failure : failures_) out << "  FAILED " << failure << "\n";
  for (const auto& [reason, n] : skip_reasons_) out << fmt::format("  skipped {}: {}\n", n, reason);
}

}  // namespace muoncore::cli
