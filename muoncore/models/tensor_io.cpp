#include "muoncore/models/tensor_io.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "muoncore/core/check.h"

namespace muoncore::models {
namespace {

using io::Dtype;

constexpr std::pair<Dtype, at::ScalarType> kTypes[] = {
    {Dtype::kBool, at::kBool},
    {Dtype::kU8, at::kByte},
    {Dtype::kI8, at::kChar},
    {Dtype::kF8E5M2, at::kFloat8_e5m2},
    {Dtype::kF8E4M3, at::kFloat8_e4m3fn},
    {Dtype::kF8E8M0, at::kFloat8_e8m0fnu},
    {Dtype::kF8E4M3Fnuz, at::kFloat8_e4m3fnuz},
    {Dtype::kF8E5M2Fnuz, at::kFloat8_e5m2fnuz},
    {Dtype::kI16, at::kShort},
    {Dtype::kU16, at::kUInt16},
    {Dtype::kF16, at::kHalf},
    {Dtype::kBF16, at::kBFloat16},
    {Dtype::kI32, at::kInt},
    {Dtype::kU32, at::kUInt32},
    {Dtype::kF32, at::kFloat},
    {Dtype::kC64, at::kComplexFloat},
    {Dtype::kF64, at::kDouble},
    {Dtype::kI64, at::kLong},
    {Dtype::kU64, at::kUInt64},
};

}  // namespace

at::ScalarType scalar_type(Dtype dtype) {
  for (auto [ours, theirs] : kTypes)
    if (ours == dtype) return theirs;
  fail("tensors of type {} are not supported", io::to_string(dtype));
}

Dtype dtype_of(at::ScalarType type) {
  for (auto [ours, theirs] : kTypes)
    if (theirs == type) return ours;
  fail("safetensors has no type for {}", c10::toString(type));
}

at::Tensor to_tensor(const io::SafetensorsEntry& entry) {
  at::Tensor out = at::empty(entry.shape, scalar_type(entry.dtype));
  if (!entry.bytes.empty())
    std::memcpy(out.mutable_data_ptr(), entry.bytes.data(), entry.bytes.size());
  return out;
}

std::vector<std::pair<std::string, at::Tensor>> load_tensors(const std::filesystem::path& path) {
  io::SafetensorsFile file(path);
  std::vector<std::pair<std::string, at::Tensor>> out;
  for (const auto& entry : file.entries()) out.emplace_back(entry.name, to_tensor(entry));
  return out;
}

void save_tensors(const std::filesystem::path& path,
                  const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                  const io::SafetensorsMetadata& metadata) {
  std::vector<at::Tensor> alive;
  std::vector<io::SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    at::Tensor dense = tensor.detach().to(at::kCPU).contiguous();
    std::span<const std::byte> bytes(static_cast<const std::byte*>(dense.const_data_ptr()),
                                     dense.nbytes());
    entries.push_back({name, dtype_of(dense.scalar_type()), dense.sizes().vec(), bytes});
    alive.push_back(std::move(dense));
  }
  io::write_safetensors(path, std::move(entries), metadata);
}

}  // namespace muoncore::models
