// Collectives on lists of tensors: one message instead of many.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "muoncore/comm/group.h"

namespace muoncore::parallel {

using Shape = std::vector<int64_t>;

// One 1-D buffer (uninitialized) and a view of each shape into it, one after another.
struct FlatTensors {
  at::Tensor buffer;
  std::vector<at::Tensor> views;
};
FlatTensors flat_tensors(const std::vector<Shape>& shapes, const at::TensorOptions& options);

// pieces[r]: what goes to rank r, any strides, all of one dtype; shapes[r]: what comes from rank r.
// Both hold one list per rank, which may be empty. Returns what came, by rank. Collective: one
// all_to_all.
std::vector<std::vector<at::Tensor>> exchange(comm::Group& group,
                                              const std::vector<std::vector<at::Tensor>>& pieces,
                                              const std::vector<std::vector<Shape>>& shapes,
                                              const at::TensorOptions& options,
                                              std::string_view what);

// Every rank's tensors, by rank: all ranks give tensors of the same shapes. Collective: one
// all_gather.
std::vector<std::vector<at::Tensor>> all_gather(comm::Group& group,
                                                const std::vector<at::Tensor>& tensors,
                                                const at::TensorOptions& options,
                                                std::string_view what);

}  // namespace muoncore::parallel
