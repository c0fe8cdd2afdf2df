// How bytes get from rank to rank: the one thing that a back end does. Collectives are built on it
// in collectives.h, the same for all back ends.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "muoncore/core/check.h"

namespace muoncore::comm {

// A rank of the group died, left or cannot be reached.
class LostPeer : public Error {
 public:
  using Error::Error;
};

// One contiguous, non-empty tensor to or from a peer (its rank in the group).
struct Transfer {
  at::Tensor tensor;
  int64_t peer = 0;
  bool outgoing = false;
};

// Transfers between two ranks meet in the order in which each posts them on a lane: point-to-point
// calls are posted by the caller, collectives by the group's worker, so they must not share one.
enum class Lane { kCollective, kPoint };

// Posted transfers. Dropped before they are done, they are taken back as far as possible.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Until all are done. Throws Error (a peer is gone, time-out, aborted, sizes that differ).
  virtual void wait() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Posts all and returns; sends and receives of one call never wait for one another. Called by two
  // threads at once, one per lane.
  virtual std::unique_ptr<Exchange> start(std::vector<Transfer> transfers, Lane lane) = 0;
  // Ends what is under way, and all that is started later, with Error(reason). From any thread.
  virtual void abort(const std::string& reason) = 0;
};

}  // namespace muoncore::comm
