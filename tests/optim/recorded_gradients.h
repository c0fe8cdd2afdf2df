// What tools/record_gradients.py recorded: data, initial weights, 100 gradients of a small net, and
// what torch's Muon, Emerging-Optimizers' Muon and fp64 made of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace muoncore::optim::testing {

inline constexpr int kMatrices = 4;
inline constexpr int kRecordedSteps = 100;
inline const std::vector<int> kCheckpoints = {1, 3, 10, 30, 100};  // steps

// "data/x", "grad/W0", "match_rms/torch/W3", ...: fp32 or fp64. Throws when there is none.
at::Tensor recorded(const std::string& name);

// The four matrices as fresh leaves of `dtype`.
std::vector<at::Tensor> initial_weights(at::ScalarType dtype = at::kFloat);

}  // namespace muoncore::optim::testing
