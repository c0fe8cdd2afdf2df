// Exact live and peak bytes of CPU tensors. c10's CPU allocator keeps no such figures, and the
// process peak (VmHWM) counts mapped files and whatever malloc keeps; so this allocator wraps c10's
// own and counts.
#pragma once

#include <cstdint>

namespace muoncore {

// Puts the counting allocator in front of c10's CPU allocator for the rest of the process. Call it
// before the first tensor is made: tensors made earlier are not counted (they are still freed
// rightly, by their own deleter). Calling it again does nothing. Thread-safe.
void install_counting_allocator();
bool counting_allocator_installed();

// Bytes as asked for by tensors (without the 64 bytes per block that the counting itself takes). 0
// when not installed.
int64_t live_tensor_bytes();
// The largest value of live_tensor_bytes() since the process started or since the last reset.
int64_t peak_tensor_bytes();
// Sets the peak to the present live bytes.
void reset_peak_tensor_bytes();

}  // namespace muoncore
