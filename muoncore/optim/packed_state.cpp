#include "muoncore/optim/packed_state.h"

#include <ATen/ops/empty.h>

#include <cstring>

#include "muoncore/core/check.h"

namespace muoncore::optim {
namespace {

void put(std::vector<char>& bytes, const void* data, size_t size) {
  const char* begin = static_cast<const char*>(data);
  bytes.insert(bytes.end(), begin, begin + size);
}

void put(std::vector<char>& bytes, int64_t number) { put(bytes, &number, sizeof(number)); }

class Reader {
 public:
  explicit Reader(const std::vector<char>& bytes) : bytes_(bytes) {}
  bool done() const { return at_ == bytes_.size(); }

  const char* take(int64_t size) {
    check(size >= 0 && static_cast<size_t>(size) <= bytes_.size() - at_,
          "optimizer state from another rank is cut off at byte {}", at_);
    const char* data = bytes_.data() + at_;
    at_ += static_cast<size_t>(size);
    return data;
  }

  int64_t number() {
    int64_t value = 0;
    std::memcpy(&value, take(sizeof(value)), sizeof(value));
    return value;
  }

 private:
  const std::vector<char>& bytes_;
  size_t at_ = 0;
};

}  // namespace

// Per entry: length and letters of `what`; param, begin, end; dtype, dimensions, sizes; elements.
std::vector<char> pack_state(const std::vector<ChainedOptimizer::StateEntry>& entries) {
  std::vector<char> bytes;
  for (const auto& [what, piece, tensor] : entries) {
    put(bytes, static_cast<int64_t>(what.size()));
    put(bytes, what.data(), what.size());
    for (int64_t number : {static_cast<int64_t>(piece.param), piece.begin, piece.end,
                           static_cast<int64_t>(tensor.scalar_type()), tensor.dim()})
      put(bytes, number);
    for (int64_t size : tensor.sizes()) put(bytes, size);
    const at::Tensor flat = tensor.detach().to(at::kCPU).contiguous();
    put(bytes, flat.const_data_ptr(), flat.nbytes());
  }
  return bytes;
}

std::vector<ChainedOptimizer::StateEntry> unpack_state(const std::vector<char>& bytes) {
  std::vector<ChainedOptimizer::StateEntry> entries;
  for (Reader reader(bytes); !reader.done();) {
    ChainedOptimizer::StateEntry entry;
    const int64_t letters = reader.number();
    entry.what.assign(reader.take(letters), static_cast<size_t>(letters));
    entry.piece.param = static_cast<size_t>(reader.number());
    entry.piece.begin = reader.number();
    entry.piece.end = reader.number();
    const auto dtype = static_cast<at::ScalarType>(reader.number());
    std::vector<int64_t> sizes(static_cast<size_t>(reader.number()));
    for (int64_t& size : sizes) size = reader.number();
    entry.tensor = at::empty(sizes, dtype);
    std::memcpy(entry.tensor.mutable_data_ptr(),
                reader.take(static_cast<int64_t>(entry.tensor.nbytes())), entry.tensor.nbytes());
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace muoncore::optim
