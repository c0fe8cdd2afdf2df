#include "muoncore/comm/group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <fmt/ranges.h>
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <utility>

#include "muoncore/comm/collectives.h"
#include "muoncore/core/check.h"

namespace muoncore::comm {
namespace {

class Finished : public Work {
 public:
  void wait() override {}
};

int64_t sum(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

const char* begin_of(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.const_data_ptr());
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  return a.numel() > 0 && b.numel() > 0 && begin_of(a) < begin_of(b) + b.nbytes() &&
         begin_of(b) < begin_of(a) + a.nbytes();
}

}  // namespace

std::string_view collective_name(Collective collective) {
  constexpr std::string_view kNames[kCollectives] = {"all_reduce", "reduce_scatter", "all_gather",
                                                     "all_to_all", "broadcast",      "send",
                                                     "recv",       "barrier"};
  return kNames[static_cast<size_t>(collective)];
}

// What works share with their group, which they may outlive.
struct Group::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::string failure;  // the first one; nothing after it can be trusted to be in step
  bool lost_peer = false;
  int64_t pending = 0;

  // With the mutex held.
  [[noreturn]] void rethrow(const std::string& where) const {
    std::string text = where + ": " + failure;
    if (lost_peer) throw LostPeer(text);
    throw Error(text);
  }
  void set_failure(const std::string& reason, bool peer) {
    std::lock_guard lock(mutex);
    if (!failure.empty()) return;
    failure = reason;
    lost_peer = peer;
    changed.notify_all();
  }
  // Runs `job`; what it throws becomes the group's failure.
  void guard(const std::function<void()>& job) {
    try {
      job();
    } catch (const LostPeer& e) {
      set_failure(e.what(), true);
    } catch (const std::exception& e) {
      set_failure(e.what(), false);
    }
  }
};

// On the worker.
class Group::Queued : public Work {
 public:
  Queued(std::shared_ptr<State> state, std::string where, std::vector<at::Tensor> tensors)
      : state_(std::move(state)), where_(std::move(where)), tensors_(std::move(tensors)) {}

  void wait() override {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [this] { return done_ || !state_->failure.empty(); });
    if (std::exchange(waited_, true)) return;
    if (!done_) state_->rethrow(where_);
    tensors_.clear();
  }

  void run(const std::function<void()>& job) {
    {
      std::lock_guard lock(state_->mutex);
      if (!state_->failure.empty()) {
        --state_->pending;
        return;
      }
    }
    bool ok = false;
    state_->guard([&] {
      at::NoGradGuard no_grad;
      job();
      ok = true;
    });
    std::lock_guard lock(state_->mutex);
    --state_->pending;
    done_ = ok;
    state_->changed.notify_all();
  }

 private:
  std::shared_ptr<State> state_;
  std::string where_;
  std::vector<at::Tensor> tensors_;
  bool done_ = false;
  bool waited_ = false;
};

// Point to point: on the transport since the call. `transport` outlives it, or has been aborted.
class Group::Direct : public Work {
 public:
  Direct(std::shared_ptr<State> state, std::string where, std::unique_ptr<Exchange> exchange)
      : state_(std::move(state)), where_(std::move(where)), exchange_(std::move(exchange)) {}

  void wait() override {
    if (std::exchange(waited_, true)) return;
    bool ok = false;
    state_->guard([&] {
      exchange_->wait();
      ok = true;
    });
    exchange_.reset();
    if (ok) return;
    std::lock_guard lock(state_->mutex);
    state_->rethrow(where_);
  }

 private:
  std::shared_ptr<State> state_;
  std::string where_;
  std::unique_ptr<Exchange> exchange_;
  bool waited_ = false;
};

Group::Group(std::string name, int64_t rank, std::vector<int64_t> global_ranks,
             std::optional<at::DeviceType> device, std::unique_ptr<Transport> transport)
    : name_(std::move(name)),
      rank_(rank),
      global_ranks_(std::move(global_ranks)),
      device_(device),
      state_(std::make_shared<State>()),
      transport_(std::move(transport)) {
  check(!global_ranks_.empty() && rank_ >= 0 && rank_ < size(),
        "group {}: rank {} is not one of its {} ranks", name_, rank_, size());
  std::vector<int64_t> sorted = global_ranks_;
  std::sort(sorted.begin(), sorted.end());
  check(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() && sorted[0] >= 0,
        "group {}: its global ranks [{}] repeat or are negative", name_,
        fmt::join(global_ranks_, ", "));
}

Group::~Group() {
  bool pending;
  {
    std::lock_guard lock(state_->mutex);
    pending = state_->pending > 0;
  }
  if (pending) abort("the group was closed with this collective under way");
}

void Group::abort(const std::string& reason) {
  state_->set_failure(reason, false);
  if (transport_) transport_->abort(reason);
}

std::string Group::where(Collective collective, std::string_view what) const {
  return fmt::format("group {} (rank {} of {}): {} of {}", name_, rank_, size(),
                     collective_name(collective), what);
}

void Group::check_tensor(const at::Tensor& tensor, const std::string& where) const {
  check(tensor.defined(), "{}: the tensor is undefined", where);
  check(tensor.layout() == at::kStrided && tensor.is_contiguous(),
        "{}: the tensor is not contiguous", where);
  check(!device_ || tensor.device().type() == *device_, "{}: the tensor lies on {}, not on {}",
        where, tensor.device().str(), device_ ? at::DeviceTypeName(*device_, true) : "");
}

void Group::check_flat(const at::Tensor& tensor, const std::vector<int64_t>& sizes,
                       const char* tensor_name, const std::string& where) const {
  check_tensor(tensor, where);
  check(tensor.dim() == 1, "{}: {} has {} dimensions, not 1", where, tensor_name, tensor.dim());
  check(static_cast<int64_t>(sizes.size()) == size(), "{}: {} sizes of {} for {} ranks", where,
        sizes.size(), tensor_name, size());
  for (size_t r = 0; r < sizes.size(); ++r)
    check(sizes[r] >= 0, "{}: rank {} has {} elements of {}", where, r, sizes[r], tensor_name);
  check(sum(sizes) == tensor.numel(), "{}: {} has {} elements, its sizes sum to {}", where,
        tensor_name, tensor.numel(), sum(sizes));
}

void Group::check_peer(int64_t peer, const std::string& where) const {
  check(peer >= 0 && peer < size(), "{}: there is no rank {} among {} ranks", where, peer, size());
}

void Group::count(Collective collective, int64_t bytes) {
  bytes_[static_cast<size_t>(collective)].fetch_add(bytes, std::memory_order_relaxed);
}

int64_t Group::bytes_sent(Collective collective) const {
  return bytes_[static_cast<size_t>(collective)].load(std::memory_order_relaxed);
}

int64_t Group::bytes_sent() const {
  int64_t total = 0;
  for (const auto& bytes : bytes_) total += bytes.load(std::memory_order_relaxed);
  return total;
}

WorkPtr Group::submit(std::string where, std::vector<at::Tensor> tensors,
                      std::function<void()> job) {
  if (!transport_) return std::make_shared<Finished>();
  {
    std::lock_guard lock(state_->mutex);
    if (!state_->failure.empty()) state_->rethrow(where);
    ++state_->pending;
  }
  auto work = std::make_shared<Queued>(state_, std::move(where), std::move(tensors));
  worker_.push([work, job = std::move(job)] { work->run(job); });
  return work;
}

WorkPtr Group::submit_direct(std::string where, Transfer transfer) {
  if (!transport_ || transfer.tensor.numel() == 0) return std::make_shared<Finished>();
  {
    std::lock_guard lock(state_->mutex);
    if (!state_->failure.empty()) state_->rethrow(where);
  }
  std::unique_ptr<Exchange> exchange;
  state_->guard([&] { exchange = transport_->start({std::move(transfer)}, Lane::kPoint); });
  if (!exchange) {
    std::lock_guard lock(state_->mutex);
    state_->rethrow(where);
  }
  return std::make_shared<Direct>(state_, std::move(where), std::move(exchange));
}

WorkPtr Group::all_reduce(const at::Tensor& tensor, ReduceOp op, std::string_view what) {
  std::string where = this->where(Collective::kAllReduce, what);
  check_tensor(tensor, where);
  check_reducible(tensor.scalar_type(), where);
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  if (bytes <= kOneRoundBytes) {
    count(Collective::kAllReduce, bytes * (size() - 1));
  } else {
    const int64_t own = even_shards(tensor.numel(), size())[rank_];
    count(Collective::kAllReduce, (tensor.numel() - own + own * (size() - 1)) *
                                      static_cast<int64_t>(tensor.element_size()));
  }
  at::Tensor flat = tensor.detach().view({-1});
  return submit(std::move(where), {tensor}, [=, this] {
    run_all_reduce({*transport_, rank_, size()}, flat, op);
  });
}

WorkPtr Group::reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                              const std::vector<int64_t>& shard_sizes, std::string_view what) {
  std::string where = this->where(Collective::kReduceScatter, what);
  check_flat(input, shard_sizes, "input", where);
  check_tensor(output, where);
  check_reducible(input.scalar_type(), where);
  const int64_t own = shard_sizes[rank_];
  check(output.dim() == 1 && output.numel() == own,
        "{}: output has {} elements, this rank's shard {}", where, output.numel(), own);
  const bool widens = output.scalar_type() == at::kFloat &&
                      (input.scalar_type() == at::kBFloat16 || input.scalar_type() == at::kHalf);
  check(output.scalar_type() == input.scalar_type() || widens,
        "{}: output is {} where the input is {}", where, c10::toString(output.scalar_type()),
        c10::toString(input.scalar_type()));
  const int64_t before =
      std::accumulate(shard_sizes.begin(), shard_sizes.begin() + rank_, int64_t{0});
  at::Tensor in = input.detach();
  at::Tensor out = output.detach();
  if (!input.is_meta()) {
    const bool own_shard = !widens && begin_of(out) == begin_of(in.narrow(0, before, own));
    check(own_shard || !overlap(out, in),
          "{}: output overlaps input and is not this rank's own shard of it", where);
  }
  count(Collective::kReduceScatter,
        (input.numel() - own) * static_cast<int64_t>(input.element_size()));
  if (size() == 1) out.copy_(in);
  return submit(std::move(where), {output, input}, [=, this] {
    run_reduce_scatter({*transport_, rank_, size()}, out, in, shard_sizes, ReduceOp::kSum);
  });
}

WorkPtr Group::all_gather(const at::Tensor& buffer, const std::vector<int64_t>& shard_sizes,
                          std::string_view what) {
  std::string where = this->where(Collective::kAllGather, what);
  check_flat(buffer, shard_sizes, "buffer", where);
  count(Collective::kAllGather,
        shard_sizes[rank_] * (size() - 1) * static_cast<int64_t>(buffer.element_size()));
  at::Tensor flat = buffer.detach();
  return submit(std::move(where), {buffer}, [=, this] {
    run_all_gather({*transport_, rank_, size()}, flat, shard_sizes);
  });
}

WorkPtr Group::all_to_all(const at::Tensor& output, const std::vector<int64_t>& recv_sizes,
                          const at::Tensor& input, const std::vector<int64_t>& send_sizes,
                          std::string_view what) {
  std::string where = this->where(Collective::kAllToAll, what);
  check_flat(output, recv_sizes, "output", where);
  check_flat(input, send_sizes, "input", where);
  check(output.scalar_type() == input.scalar_type(), "{}: output is {} where the input is {}",
        where, c10::toString(output.scalar_type()), c10::toString(input.scalar_type()));
  check(input.is_meta() || !overlap(output, input), "{}: output overlaps input", where);
  check(recv_sizes[rank_] == send_sizes[rank_],
        "{}: this rank sends itself {} elements and receives {}", where, send_sizes[rank_],
        recv_sizes[rank_]);
  count(Collective::kAllToAll,
        (input.numel() - send_sizes[rank_]) * static_cast<int64_t>(input.element_size()));
  at::Tensor in = input.detach();
  at::Tensor out = output.detach();
  if (size() == 1) out.copy_(in);
  return submit(std::move(where), {output, input}, [=, this] {
    run_all_to_all({*transport_, rank_, size()}, out, recv_sizes, in, send_sizes);
  });
}

WorkPtr Group::broadcast(const at::Tensor& tensor, int64_t root, std::string_view what) {
  std::string where = this->where(Collective::kBroadcast, what);
  check_tensor(tensor, where);
  check_peer(root, where);
  if (rank_ == root)
    count(Collective::kBroadcast, static_cast<int64_t>(tensor.nbytes()) * (size() - 1));
  at::Tensor flat = tensor.detach().view({-1});
  return submit(std::move(where), {tensor}, [=, this] {
    run_broadcast({*transport_, rank_, size()}, flat, root);
  });
}

WorkPtr Group::send(const at::Tensor& tensor, int64_t to, std::string_view what) {
  std::string where = this->where(Collective::kSend, what);
  check_tensor(tensor, where);
  check_peer(to, where);
  check(to != rank_, "{}: a rank cannot send to itself", where);
  count(Collective::kSend, static_cast<int64_t>(tensor.nbytes()));
  return submit_direct(std::move(where), {tensor.detach().view({-1}), to, /*outgoing=*/true});
}

WorkPtr Group::recv(const at::Tensor& tensor, int64_t from, std::string_view what) {
  std::string where = this->where(Collective::kRecv, what);
  check_tensor(tensor, where);
  check_peer(from, where);
  check(from != rank_, "{}: a rank cannot receive from itself", where);
  return submit_direct(std::move(where), {tensor.detach().view({-1}), from, /*outgoing=*/false});
}

void Group::barrier(std::string_view what) {
  std::string where = this->where(Collective::kBarrier, what);
  count(Collective::kBarrier, size() - 1);
  if (!transport_) return;
  at::Tensor signs = at::zeros(
      {size()}, at::TensorOptions(at::kByte).device(device_.value_or(at::DeviceType::CPU)));
  submit(std::move(where), {signs}, [=, this] {
    run_all_gather({*transport_, rank_, size()}, signs, std::vector<int64_t>(size(), 1));
  })->wait();
}

}  // namespace muoncore::comm
