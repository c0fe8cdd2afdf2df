// The excerpt of golden results in tests/data/golden, for the tests of muon/ and of optim/muon.
#pragma once

#include <ATen/ops/from_blob.h>
#include <ATen/ops/isclose.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace muoncore::testing {

inline const nlohmann::json& golden_manifest() {
  static const nlohmann::json manifest =
      nlohmann::json::parse(std::ifstream(std::string(MUONCORE_TEST_DATA) + "/golden/muon.json"));
  return manifest;
}

inline at::Tensor golden_tensor(const std::string& name) {
  const auto& entry = golden_manifest().at("tensors").at(name);
  const auto shape = entry.at("shape").get<std::vector<int64_t>>();
  int64_t count = 1;
  for (int64_t s : shape) count *= s;
  std::vector<float> values(static_cast<size_t>(count));
  std::ifstream file(std::string(MUONCORE_TEST_DATA) + "/golden/muon.bin", std::ios::binary);
  file.seekg(entry.at("offset").get<int64_t>() * 4);
  file.read(reinterpret_cast<char*>(values.data()), count * 4);
  if (!file) throw std::runtime_error("muon.bin is too short for " + name);
  return at::from_blob(values.data(), shape, at::kFloat).clone();
}

// Greatest |got - expected| / (atol + rtol |expected|); infinite when NaNs do not stand where they
// should.
inline double of_limit(const at::Tensor& got, const at::Tensor& expected, double atol,
                       double rtol) {
  at::Tensor a = got.detach().to(at::kDouble), b = expected.detach().to(at::kDouble);
  if (a.sizes() != b.sizes() || !a.isnan().equal(b.isnan())) return INFINITY;
  if (b.numel() == 0) return 0;
  at::Tensor ratio =
      ((a - b).abs() / (b.abs() * rtol + atol)).masked_fill(a.eq(b).logical_or(b.isnan()), 0);
  const double worst = ratio.max().item<double>();
  return worst >= 0 ? worst : INFINITY;
}

}  // namespace muoncore::testing
