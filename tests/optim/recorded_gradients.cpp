#include "tests/optim/recorded_gradients.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace muoncore::optim::testing {
namespace {

const std::string& file_bytes() {
  static const std::string bytes = [] {
    const std::string path =
        std::string(MUONCORE_TEST_DATA) + "/golden/recorded_gradients.safetensors";
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  return bytes;
}

}  // namespace

at::Tensor recorded(const std::string& name) {
  uint64_t header_size = 0;
  std::memcpy(&header_size, file_bytes().data(), sizeof(header_size));
  static const auto header = nlohmann::json::parse(file_bytes().substr(8, header_size));
  const auto& entry = header.at(name);
  const auto shape = entry.at("shape").get<std::vector<int64_t>>();
  const size_t begin = 8 + header_size + entry.at("data_offsets").at(0).get<size_t>();
  const size_t end = 8 + header_size + entry.at("data_offsets").at(1).get<size_t>();
  std::string bytes = file_bytes().substr(begin, end - begin);  // aligned, and ours to write
  const auto dtype = entry.at("dtype") == "F64" ? at::kDouble : at::kFloat;
  return at::from_blob(bytes.data(), shape, dtype).clone();
}

std::vector<at::Tensor> initial_weights(at::ScalarType dtype) {
  std::vector<at::Tensor> weights;
  for (int k = 0; k < kMatrices; ++k)
    weights.push_back(recorded(fmt::format("init/W{}", k)).to(dtype).set_requires_grad(true));
  return weights;
}

}  // namespace muoncore::optim::testing
