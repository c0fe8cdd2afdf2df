#include "muoncore/core/counting_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <mutex>

namespace muoncore {
namespace {

// In front of every block: its size, padded so that the data keeps c10's 64-byte alignment. With
// the data pointer as the context of the DataPtr, raw_allocate / raw_deallocate keep working, and
// the deleter needs no table.
constexpr size_t kHeader = 64;

std::atomic<int64_t> live{0};
std::atomic<int64_t> peak{0};
c10::Allocator* inner = nullptr;  // written once, before the wrapper is published

void count_allocated(int64_t bytes) {
  const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

void release(void* data) {
  if (data == nullptr) return;
  char* block = static_cast<char*>(data) - kHeader;
  live.fetch_sub(*reinterpret_cast<const int64_t*>(block), std::memory_order_relaxed);
  inner->raw_deallocate(block);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::DeviceType::CPU)};
    char* block = static_cast<char*>(inner->raw_allocate(bytes + kHeader));
    *reinterpret_cast<int64_t*>(block) = static_cast<int64_t>(bytes);
    count_allocated(static_cast<int64_t>(bytes));
    char* data = block + kHeader;
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

}  // namespace

void install_counting_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    inner = c10::GetAllocator(c10::DeviceType::CPU);
    // Never freed: tensors in static objects may outlive any owner of ours.
    c10::SetCPUAllocator(new CountingAllocator, /*priority=*/1);
  });
}

bool counting_allocator_installed() { return inner != nullptr; }
int64_t live_tensor_bytes() { return live.load(std::memory_order_relaxed); }
int64_t peak_tensor_bytes() { return peak.load(std::memory_order_relaxed); }
void reset_peak_tensor_bytes() { peak.store(live.load(std::memory_order_relaxed)); }

}  // namespace muoncore
