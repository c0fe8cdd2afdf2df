#include "muoncore/parallel/tensor_parallel_exchange.h"

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

namespace muoncore::parallel {
namespace {

// All lists in one buffer, list after list, with the elements of each list.
struct FlatLists {
  at::Tensor buffer;
  std::vector<std::vector<at::Tensor>> views;
  std::vector<int64_t> sizes;
};

FlatLists flat_lists(const std::vector<std::vector<Shape>>& lists,
                     const at::TensorOptions& options) {
  std::vector<Shape> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  FlatTensors flat = flat_tensors(all, options);
  FlatLists out{flat.buffer, {}, {}};
  auto next = flat.views.begin();
  for (const auto& list : lists) {
    const auto last = next + static_cast<std::ptrdiff_t>(list.size());
    out.views.emplace_back(next, last);
    int64_t size = 0;
    for (const at::Tensor& view : out.views.back()) size += view.numel();
    out.sizes.push_back(size);
    next = last;
  }
  return out;
}

std::vector<Shape> shapes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<Shape> out;
  for (const at::Tensor& x : tensors) out.push_back(x.sizes().vec());
  return out;
}

}  // namespace

FlatTensors flat_tensors(const std::vector<Shape>& shapes, const at::TensorOptions& options) {
  int64_t total = 0;
  for (const Shape& shape : shapes) total += c10::multiply_integers(shape);
  FlatTensors out{at::empty({total}, options), {}};
  int64_t start = 0;
  for (const Shape& shape : shapes) {
    const int64_t size = c10::multiply_integers(shape);
    out.views.push_back(out.buffer.narrow(0, start, size).view(shape));
    start += size;
  }
  return out;
}

std::vector<std::vector<at::Tensor>> exchange(comm::Group& group,
                                              const std::vector<std::vector<at::Tensor>>& pieces,
                                              const std::vector<std::vector<Shape>>& shapes,
                                              const at::TensorOptions& options,
                                              std::string_view what) {
  std::vector<std::vector<Shape>> send_shapes;
  for (const auto& list : pieces) send_shapes.push_back(shapes_of(list));
  FlatLists sent = flat_lists(send_shapes, options), received = flat_lists(shapes, options);
  for (size_t rank = 0; rank < pieces.size(); ++rank)
    for (size_t k = 0; k < pieces[rank].size(); ++k) sent.views[rank][k].copy_(pieces[rank][k]);
  group.all_to_all(received.buffer, received.sizes, sent.buffer, sent.sizes, what)->wait();
  return received.views;
}

std::vector<std::vector<at::Tensor>> all_gather(comm::Group& group,
                                                const std::vector<at::Tensor>& tensors,
                                                const at::TensorOptions& options,
                                                std::string_view what) {
  const std::vector<Shape> shapes = shapes_of(tensors);
  FlatLists all = flat_lists(
      std::vector<std::vector<Shape>>(static_cast<size_t>(group.size()), shapes), options);
  for (size_t k = 0; k < tensors.size(); ++k)
    all.views[static_cast<size_t>(group.rank())][k].copy_(tensors[k]);
  group.all_gather(all.buffer, all.sizes, what)->wait();
  return all.views;
}

}  // namespace muoncore::parallel
