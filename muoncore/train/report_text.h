// Numbers of a report for people.
#pragma once

#include <string>
#include <vector>

#include "muoncore/train/report.h"

namespace muoncore::train {

// The scale in which all numbers of one quantity are written, chosen by the first arm: 0.0041 s ->
// "ms".
struct Scale {
  double factor = 1.0;
  int decimals = 3;
  std::string unit;  // "ms", "MiB", ""; written once, in the quantity's label
};
Scale scale_of(const Quantity& quantity);

// "optimizer state (B)"; the label alone when there is no unit.
std::string with_unit(const std::string& label, const Scale& scale);

// "6,368,256", "4.12", "-0.012" (with `plus`: "+0.012").
std::string format_scaled(double value, const Scale& scale, bool plus = false);

// "0.875 ± 0.012 [0.861, 0.886]"; one value, or an exact one, stands alone. kTimedSteps: without
// the range.
std::string format_spread(const Spread& spread, const Quantity& quantity, const Scale& scale);

// A Markdown table with padded columns; widths count code points. The first column is left-aligned,
// the rest right.
std::string format_table(const std::vector<std::vector<std::string>>& rows);

// The arm against the first one, in one sentence that says no more than its verdict:
// "optimizer state: muon 3,222,528 B against adamw 6,368,256 B, 49.4 % lower: holds (exact)".
std::string finding(const Report& report, const Quantity& quantity, size_t arm);

}  // namespace muoncore::train
