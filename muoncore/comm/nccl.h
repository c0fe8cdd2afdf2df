// Ranks with one CUDA device each: c10d's ProcessGroupNCCL moves the bytes, sums stay ours
// (group.h). Compiled against torch 2.14.1 (CUDA 13); never run on a device. A build without CUDA
// has no_nccl.cpp in place of nccl.cpp.
//
// When results may be read. A group's works run on its worker thread, which uses the device's
// default stream; so:
//  - What is given to a group must have been written on the default stream of its device (or be
//    complete): the transfer waits for that stream as it stands when it is posted, for no other.
//  - Work::wait() blocks the host until the transfers are done on the device. After it, work on the
//    default stream, and copies to the host made there, read the results. Sums (all_reduce,
//    reduce_scatter) are then enqueued on the default stream: another stream must wait for that
//    one. What is only moved (all other calls) may be read from any stream.
//  - Tensors may be freed or overwritten, on the default stream, after wait(). A work that is
//  dropped
//    without it keeps its tensors until the group is gone.
//
// Each group has three communicators, so that point-to-point calls wait neither for collectives nor
// for those of the other direction: collectives, transfers to higher ranks, transfers to lower
// ones. On one rank transfers of one direction run in the order of their calls: one whose peer does
// not come holds up the later ones. Groups of one device that communicate at the same time share
// its multiprocessors: all ranks must begin their works in one order.
//
// Failures. A peer that dies on another machine is seen by NCCL (LostPeer); one on the same machine
// may not be, nor one that is missing while a group is made: the heartbeat of World ends those
// waits. Sizes that differ end by the time-out. After a failure the group's communicators are
// aborted, in the background: a driver that hangs delays no error.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "muoncore/comm/factory.h"
#include "muoncore/comm/store.h"

namespace muoncore::comm {

struct NcclOptions {
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // of each exchange of bytes
  int64_t local_rank = 0;  // among the ranks of this machine: the index of this rank's device
};

bool nccl_is_built();

// Makes the device current in the calling thread; groups take tensors of that device only. Sets
// TORCH_NCCL_BLOCKING_WAIT=1: c10d's watchdog, which ends the process on an error, is then not
// started. Throws Error where this build has no NCCL or the machine no such device.
std::unique_ptr<GroupFactory> make_nccl_factory(const Store& store, int64_t rank,
                                                int64_t world_size, const NcclOptions& options);

}  // namespace muoncore::comm
