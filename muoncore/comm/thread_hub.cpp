#include "muoncore/comm/thread_hub.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "muoncore/core/check.h"

namespace muoncore::comm {

// The transfers of one call.
class ThreadExchange : public Exchange {
 public:
  ThreadExchange(std::shared_ptr<ThreadHub> hub, std::shared_ptr<std::string> aborted)
      : hub_(std::move(hub)), aborted_(std::move(aborted)) {}

  ~ThreadExchange() override {
    for (const Posted& posted : posted_)
      hub_->take_back(posted.key, posted.posting, posted.outgoing);
  }

  void post(const ThreadHub::BoxKey& key, const at::Tensor& tensor, bool outgoing) {
    auto posting = std::make_shared<ThreadHub::Posting>();
    posting->tensor = tensor;
    posting->from = std::get<1>(key);
    posting->to = std::get<2>(key);
    posted_.push_back({key, posting, outgoing});
    hub_->post(key, posting, outgoing);
  }

  void wait() override {
    const auto deadline = std::chrono::steady_clock::now() + hub_->timeout_;
    for (const Posted& posted : posted_) {
      const ThreadHub::Posting& posting = *posted.posting;
      const int64_t peer = posted.outgoing ? posting.to : posting.from;
      std::unique_lock lock(hub_->mutex_);
      bool in_time = hub_->changed_.wait_until(lock, deadline, [&] {
        return posting.progress == ThreadHub::Progress::kDone || !aborted_->empty() ||
               (posting.progress == ThreadHub::Progress::kPosted &&
                (!hub_->failure_.empty() || hub_->left_[peer]));
      });
      if (posting.progress == ThreadHub::Progress::kDone) {
        check(posting.error.empty(), "{}", posting.error);
        continue;
      }
      check(aborted_->empty(), "{}", *aborted_);
      if (!hub_->failure_.empty()) throw LostPeer(hub_->failure_);
      if (hub_->left_[peer]) throw LostPeer(fmt::format("rank {} has left", peer));
      check(in_time, "rank {} did not answer within {} s (nccl_timeout)", peer,
            static_cast<double>(hub_->timeout_.count()) / 1000);
    }
  }

 private:
  struct Posted {
    ThreadHub::BoxKey key;
    std::shared_ptr<ThreadHub::Posting> posting;
    bool outgoing;
  };
  std::shared_ptr<ThreadHub> hub_;
  std::shared_ptr<std::string> aborted_;
  std::vector<Posted> posted_;
};

namespace {

class ThreadTransport : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadHub> hub, std::string key,
                  std::vector<int64_t> global_ranks, int64_t rank,
                  std::function<void(const std::string&)> set_aborted,
                  std::shared_ptr<std::string> aborted)
      : hub_(std::move(hub)),
        key_(std::move(key)),
        global_ranks_(std::move(global_ranks)),
        own_(global_ranks_[rank]),
        set_aborted_(std::move(set_aborted)),
        aborted_(std::move(aborted)) {}

  std::unique_ptr<Exchange> start(std::vector<Transfer> transfers, Lane lane) override {
    auto exchange = std::make_unique<ThreadExchange>(hub_, aborted_);
    for (const Transfer& transfer : transfers) {
      int64_t peer = global_ranks_[transfer.peer];
      exchange->post({key_, transfer.outgoing ? own_ : peer, transfer.outgoing ? peer : own_, lane},
                     transfer.tensor, transfer.outgoing);
    }
    return exchange;
  }

  void abort(const std::string& reason) override { set_aborted_(reason); }

 private:
  std::shared_ptr<ThreadHub> hub_;
  std::string key_;
  std::vector<int64_t> global_ranks_;
  int64_t own_;
  std::function<void(const std::string&)> set_aborted_;
  std::shared_ptr<std::string> aborted_;
};

}  // namespace

std::unique_ptr<Transport> ThreadHub::transport(const std::string& key,
                                                const std::vector<int64_t>& global_ranks,
                                                int64_t rank) {
  auto aborted = std::make_shared<std::string>();  // guarded by mutex_
  auto set_aborted = [hub = shared_from_this(), aborted](const std::string& reason) {
    std::lock_guard lock(hub->mutex_);
    if (aborted->empty()) *aborted = reason;
    hub->changed_.notify_all();
  };
  return std::make_unique<ThreadTransport>(shared_from_this(), key, global_ranks, rank, set_aborted,
                                           aborted);
}

void ThreadHub::fail(const std::string& reason) {
  std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = reason;
  changed_.notify_all();
}

void ThreadHub::leave(int64_t global_rank) {
  std::lock_guard lock(mutex_);
  left_[global_rank] = true;
  changed_.notify_all();
}

// The second of a pair to come copies, outside the lock: both postings are marked, so neither
// tensor can go away meanwhile.
void ThreadHub::post(const BoxKey& key, PostingPtr posting, bool outgoing) {
  PostingPtr other;
  {
    std::lock_guard lock(mutex_);
    Box& box = boxes_[key];
    std::deque<PostingPtr>& waiting = outgoing ? box.receives : box.sends;
    if (waiting.empty()) {
      (outgoing ? box.sends : box.receives).push_back(std::move(posting));
      return;
    }
    other = std::move(waiting.front());
    waiting.pop_front();
    posting->progress = other->progress = Progress::kCopying;
  }
  const at::Tensor& from = (outgoing ? posting : other)->tensor;
  const at::Tensor& to = (outgoing ? other : posting)->tensor;
  std::string error;
  if (from.nbytes() == to.nbytes())
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  else
    error = fmt::format("rank {} sends {} bytes where rank {} receives {}", posting->from,
                        from.nbytes(), posting->to, to.nbytes());
  std::lock_guard lock(mutex_);
  for (Posting* done : {posting.get(), other.get()}) {
    done->progress = Progress::kDone;
    done->error = error;
  }
  changed_.notify_all();
}

void ThreadHub::take_back(const BoxKey& key, const PostingPtr& posting, bool outgoing) {
  std::unique_lock lock(mutex_);
  Box& box = boxes_[key];
  std::deque<PostingPtr>& waiting = outgoing ? box.sends : box.receives;
  waiting.erase(std::remove(waiting.begin(), waiting.end(), posting), waiting.end());
  changed_.wait(lock, [&] { return posting->progress != Progress::kCopying; });
}

}  // namespace muoncore::comm
