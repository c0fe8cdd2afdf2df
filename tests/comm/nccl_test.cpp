// The NCCL back end: what a build without it says; with it, a refusal on any machine and values on
// one device per rank.
#include "muoncore/comm/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <thread>

#include "backends.h"
#include "muoncore/core/check.h"
#include "tests/support/error_of.h"

namespace muoncore::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(int64_t local_rank) {
  NcclOptions options;
  options.local_rank = local_rank;
  return error_of([&] { make_nccl_factory(Store::in_process(), 1, 4, options); });
}

TEST(Nccl, ABuildWithoutItSaysWhatToDo) {
  if (nccl_is_built()) GTEST_SKIP() << "this build has NCCL";
  EXPECT_THAT(
      refusal(1),
      AllOf(HasSubstr("rank 1 of 4 asked for NCCL on cuda:1, which this build does not have"),
            HasSubstr("use gloo"), HasSubstr("MUONCORE_PYTHON")));
}

TEST(Nccl, ADeviceThatIsNotThereIsRefused) {
  if (!nccl_is_built()) GTEST_SKIP() << "this build has no NCCL";
  EXPECT_THAT(refusal(99), HasSubstr("asked for NCCL on cuda:99, and this machine shows"));
  EXPECT_THAT(refusal(-1), HasSubstr("asked for NCCL on cuda:-1, and this machine shows"));
}

// The body of one rank of two, in a thread with a device of its own.
void values_on_devices(Group& world) {
  const int64_t rank = world.rank();
  auto options = torch::TensorOptions(torch::kFloat).device(torch::kCUDA, rank);
  torch::Tensor sum = torch::full({100000}, 1.5 + static_cast<double>(rank), options);
  world.all_reduce(sum, ReduceOp::kSum, "sum")->wait();
  EXPECT_TRUE(sum.eq(4.0).all().item<bool>());

  torch::Tensor buffer = torch::zeros({5}, options);
  buffer.narrow(0, rank == 0 ? 0 : 2, rank == 0 ? 2 : 3).fill_(7.0 + static_cast<double>(rank));
  world.all_gather(buffer, {2, 3}, "shards")->wait();
  EXPECT_TRUE(buffer.cpu().equal(torch::tensor({7.0f, 7.0f, 8.0f, 8.0f, 8.0f})));

  torch::Tensor out = torch::full({3}, static_cast<double>(rank), options);
  torch::Tensor in = torch::empty({3}, options);
  WorkPtr receive = world.recv(in, 1 - rank, "exchange");  // both receive first
  WorkPtr send = world.send(out, 1 - rank, "exchange");
  receive->wait();
  send->wait();
  EXPECT_TRUE(in.eq(static_cast<double>(1 - rank)).all().item<bool>());
  world.barrier("the end");
}

TEST(Nccl, ValuesOnTwoDevices) {
  if (!nccl_is_built()) GTEST_SKIP() << "this build has no NCCL";
  if (torch::cuda::device_count() < 2)
    GTEST_SKIP() << "it needs 2 CUDA devices, this machine shows " << torch::cuda::device_count();
  Store store = Store::in_process();
  auto body = [&](int64_t rank) {
    NcclOptions options;
    options.timeout = std::chrono::minutes(1);
    options.local_rank = rank;
    EXPECT_EQ(error_of([&] {
                std::unique_ptr<GroupFactory> factory = make_nccl_factory(store, rank, 2, options);
                values_on_devices(*factory->make("world", ranks_up_to(2)));
              }),
              "no error");
  };
  std::thread other(body, 1);
  body(0);
  other.join();
}

}  // namespace
}  // namespace muoncore::comm
