#include <array>

#include "muoncore/io/safetensors.h"

namespace muoncore::io {
namespace {

struct DtypeInfo {
  const char* name;
  int bits;
};
// clang-format off
constexpr std::array<DtypeInfo, 22> kDtypes{{
    {"BOOL", 8}, {"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8}, {"I8", 8}, {"F8_E5M2", 8}, {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},
    {"I32", 32}, {"U32", 32}, {"F32", 32}, {"C64", 64}, {"F64", 64}, {"I64", 64}, {"U64", 64},
}};
// clang-format on
static_assert(kDtypes.size() == static_cast<size_t>(Dtype::kU64) + 1);

}  // namespace

const char* to_string(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].name; }

int64_t bits_of(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].bits; }

std::optional<Dtype> dtype_named(std::string_view name) {
  for (size_t i = 0; i < kDtypes.size(); ++i)
    if (name == kDtypes[i].name) return static_cast<Dtype>(i);
  return std::nullopt;
}

}  // namespace muoncore::io
