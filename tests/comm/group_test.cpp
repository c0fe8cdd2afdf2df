// What a group refuses, what it says when something fails, and what it counts.
#include "muoncore/comm/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>

#include "backends.h"
#include "muoncore/comm/recorder.h"
#include "muoncore/comm/thread_hub.h"
#include "muoncore/core/check.h"
#include "tests/support/error_of.h"

namespace muoncore::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::unique_ptr<Group> recorded(int64_t rank, int64_t n) {
  RecorderFactory factory(rank, n);
  return factory.make("dp", ranks_up_to(n));
}

TEST(GroupRefuses, ArgumentsThatDoNotFit) {
  std::unique_ptr<Group> dp = recorded(1, 4);
  torch::Tensor six = torch::zeros({6});
  auto scatter = [&](const torch::Tensor& out, const torch::Tensor& in,
                     const std::vector<int64_t>& sizes) {
    return error_of([&] { dp->reduce_scatter(out, in, sizes, "grads of bucket 3"); });
  };
  EXPECT_EQ(scatter(torch::zeros({2}), six, {2, 2, 2}),
            "group dp (rank 1 of 4): reduce_scatter of grads of bucket 3: 3 sizes of input for 4 "
            "ranks");
  EXPECT_THAT(scatter(torch::zeros({2}), six, {2, 2, 1, 0}),
              HasSubstr("input has 6 elements, its sizes sum to 5"));
  EXPECT_THAT(scatter(torch::zeros({2}), six, {5, 2, -1, 0}),
              HasSubstr("rank 2 has -1 elements of input"));
  EXPECT_THAT(scatter(torch::zeros({3}), six, {2, 2, 1, 1}),
              HasSubstr("output has 3 elements, this rank's shard 2"));
  EXPECT_THAT(scatter(torch::zeros({2}, torch::kBFloat16), six, {2, 2, 1, 1}),
              HasSubstr("output is BFloat16 where the input is Float"));
  EXPECT_THAT(scatter(six.narrow(0, 1, 2), six, {2, 2, 1, 1}),
              HasSubstr("output overlaps input and is not this rank's own shard"));
  EXPECT_EQ(scatter(six.narrow(0, 2, 2), six, {2, 2, 1, 1}), "no error");
  EXPECT_THAT(scatter(torch::zeros({2}), six.view({2, 3}), {2, 2, 1, 1}),
              HasSubstr("input has 2 dimensions, not 1"));
  EXPECT_THAT(
      scatter(torch::zeros({2}, torch::kByte), torch::zeros({6}, torch::kByte), {2, 2, 1, 1}),
      HasSubstr("no reduction of Byte"));
  EXPECT_THAT(error_of([&] { dp->all_gather(six, {6, 0, 0, 1}, "x"); }), HasSubstr("sum to 7"));
  EXPECT_THAT(error_of([&] {
                dp->all_reduce(torch::zeros({2, 3}).t(), ReduceOp::kSum, "x");
              }),
              HasSubstr("not contiguous"));
  EXPECT_THAT(error_of([&] { dp->all_reduce(torch::Tensor(), ReduceOp::kSum, "x"); }),
              HasSubstr("undefined"));
  EXPECT_THAT(error_of([&] { dp->broadcast(six, 4, "x"); }),
              HasSubstr("there is no rank 4 among 4 ranks"));
  EXPECT_THAT(error_of([&] { dp->send(six, 1, "x"); }), HasSubstr("cannot send to itself"));
  EXPECT_THAT(error_of([&] { dp->recv(six, -1, "x"); }), HasSubstr("there is no rank -1"));
  std::vector<int64_t> parts = {1, 2, 2, 1};
  EXPECT_THAT(error_of([&] { dp->all_to_all(six, parts, six, parts, "x"); }),
              HasSubstr("output overlaps input"));
  EXPECT_THAT(error_of([&] {
                dp->all_to_all(torch::zeros({6}), {1, 1, 3, 1}, six, parts, "x");
              }),
              HasSubstr("sends itself 2 elements and receives 1"));
}

TEST(GroupRefuses, ItsOwnRanks) {
  EXPECT_THAT(error_of([] {
                RecorderFactory(0, 4).make("tp", {1, 2});
              }),
              HasSubstr("group tp: rank 0 is not one of its ranks [1, 2]"));
  EXPECT_THAT(error_of([] {
                RecorderFactory(0, 4).make("tp", {0, 4});
              }),
              HasSubstr("rank 4 is not in a world of 4"));
  EXPECT_THAT(error_of([] { RecorderFactory(0, 4).make("tp", {0, 0}); }), HasSubstr("repeat"));
}

TEST(GroupRefuses, TensorsOfAnotherDevice) {
  run_ranks(1, [](Group& world) {
    torch::Tensor t = torch::zeros({2}, torch::kMeta);
    EXPECT_THAT(error_of([&] { world.all_reduce(t, ReduceOp::kSum, "x"); }),
                HasSubstr("lies on meta, not on cpu"));
  });
}

TEST(GroupOfOne, ChecksAndCopies) {
  run_ranks(1, [](Group& world) {
    torch::Tensor in = torch::arange(4, torch::kBFloat16), out = torch::zeros({4});
    world.reduce_scatter(out, in, {4}, "x")->wait();
    EXPECT_TRUE(torch::equal(out, torch::arange(4, torch::kFloat)));
    torch::Tensor copy = torch::zeros({4}, torch::kBFloat16);
    world.all_to_all(copy, {4}, in, {4}, "x")->wait();
    EXPECT_TRUE(torch::equal(copy, in));
    EXPECT_THAT(error_of([&] { world.all_gather(in, {3}, "x"); }), HasSubstr("sum to 3"));
    world.barrier("x");
    EXPECT_EQ(world.bytes_sent(), 0);
  });
}

// ---- bytes

struct Shapes {
  int64_t count;
  std::vector<int64_t> sizes;  // of four ranks
};

void all_collectives(Group& group, const Shapes& shapes, at::Device device) {
  auto options = torch::TensorOptions().device(device).dtype(torch::kBFloat16);
  torch::Tensor t = torch::zeros({shapes.count}, options);
  torch::Tensor own = torch::zeros({shapes.sizes[group.rank()]}, options);
  std::vector<int64_t> sends(4), receives(4);
  int64_t received = 0, sent = 0;
  for (int64_t r = 0; r < 4; ++r) {
    sent += sends[r] = group.rank() * 3 + r;
    received += receives[r] = r * 3 + group.rank();
  }
  group.all_reduce(t, ReduceOp::kMax, "x")->wait();
  group.reduce_scatter(own, t, shapes.sizes, "x")->wait();
  group.all_gather(t, shapes.sizes, "x")->wait();
  group.broadcast(t, 2, "x")->wait();
  group
      .all_to_all(torch::zeros({received}, options), receives, torch::zeros({sent}, options), sends,
                  "x")
      ->wait();
  WorkPtr send = group.send(t, (group.rank() + 1) % 4, "x");
  torch::Tensor other = torch::empty_like(t);
  group.recv(other, (group.rank() + 3) % 4, "x")->wait();
  send->wait();
  group.barrier("x");
}

// Counts what really goes over a transport.
class Counting : public Transport {
 public:
  Counting(std::unique_ptr<Transport> inner, std::atomic<int64_t>& bytes)
      : inner_(std::move(inner)), bytes_(bytes) {}
  std::unique_ptr<Exchange> start(std::vector<Transfer> transfers, Lane lane) override {
    for (const Transfer& transfer : transfers)
      if (transfer.outgoing) bytes_ += static_cast<int64_t>(transfer.tensor.nbytes());
    return inner_->start(std::move(transfers), lane);
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }

 private:
  std::unique_ptr<Transport> inner_;
  std::atomic<int64_t>& bytes_;
};

TEST(GroupCounts, WhatIsSentAndTheRecorderTheSame) {
  const std::vector<Shapes> all = {{0, {0, 0, 0, 0}},
                                   {10, {1, 2, 3, 4}},
                                   {16'385, {16'385, 0, 0, 0}},
                                   {100'002, {50'000, 1, 0, 50'001}}};
  for (const Shapes& shapes : all) {
    auto hub = std::make_shared<ThreadHub>(4, std::chrono::minutes(1));
    run_ranks(4, [&](Group& world) {
      std::atomic<int64_t> sent{0};
      Group group(
          "dp", world.rank(), ranks_up_to(4), at::kCPU,
          std::make_unique<Counting>(hub->transport("dp", ranks_up_to(4), world.rank()), sent));
      all_collectives(group, shapes, at::kCPU);
      EXPECT_EQ(group.bytes_sent(), sent);
      std::unique_ptr<Group> plan = recorded(world.rank(), 4);
      all_collectives(*plan, shapes, at::kMeta);
      for (size_t i = 0; i < kCollectives; ++i) {
        auto collective = static_cast<Collective>(i);
        EXPECT_EQ(plan->bytes_sent(collective), group.bytes_sent(collective))
            << collective_name(collective);
      }
    });
  }
}

TEST(GroupCounts, ByHand) {
  std::unique_ptr<Group> dp = recorded(1, 4);
  torch::Tensor t = torch::zeros({100'000}, torch::TensorOptions(torch::kMeta));
  dp->all_reduce(t, ReduceOp::kSum, "x");  // 75,000 to their owners, then 25,000 to 3 ranks
  EXPECT_EQ(dp->bytes_sent(Collective::kAllReduce), (75'000 + 3 * 25'000) * 4);
  dp->reduce_scatter(t.narrow(0, 10'000, 20'000), t, {10'000, 20'000, 30'000, 40'000}, "x");
  EXPECT_EQ(dp->bytes_sent(Collective::kReduceScatter), 80'000 * 4);
  dp->all_gather(t, {10'000, 20'000, 30'000, 40'000}, "x");
  EXPECT_EQ(dp->bytes_sent(Collective::kAllGather), 3 * 20'000 * 4);
  dp->broadcast(t, 1, "x");
  dp->broadcast(t, 0, "x");
  EXPECT_EQ(dp->bytes_sent(Collective::kBroadcast), 3 * 100'000 * 4);
  EXPECT_EQ(dp->bytes_sent(), (150'000 + 80'000 + 60'000 + 300'000) * 4);
}

TEST(GroupCounts, InAWorldOfTenThousand) {
  std::unique_ptr<Group> dp = recorded(9'999, 10'000);
  torch::Tensor t = torch::zeros({1'000'000}, torch::TensorOptions(torch::kMeta));
  dp->all_reduce(t, ReduceOp::kSum, "x")->wait();
  EXPECT_EQ(dp->bytes_sent(), (1'000'000 - 100 + 100 * 9'999) * int64_t{4});
}

// ---- failures

class Failures : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(All, Failures, ::testing::Values("threads", "gloo"),
                         [](const auto& info) { return info.param; });

TEST_P(Failures, ARankThatLeavesIsNamed) {
  run_backend(GetParam(), 3, [](Group& world, GroupFactory& factory) {
    std::unique_ptr<Group> dp = factory.make("dp", {0, 1, 2});
    torch::Tensor t = torch::ones({10});
    dp->all_reduce(t, ReduceOp::kSum, "the first")->wait();
    if (world.rank() == 2) return;
    WorkPtr second = dp->all_reduce(t, ReduceOp::kSum, "grads of bucket 3");
    WorkPtr third = dp->all_gather(t, {5, 5, 0}, "parameters of bucket 0");
    try {
      second->wait();
      ADD_FAILURE();
    } catch (const LostPeer& e) {
      // rank 2 itself, or the one that ended because of it
      EXPECT_THAT(e.what(),
                  StartsWith(fmt::format("group dp (rank {} of 3): all_reduce of grads of "
                                         "bucket 3: rank ",
                                         world.rank())));
    }
    EXPECT_THROW(third->wait(), LostPeer);
    EXPECT_THROW(dp->broadcast(t, 0, "a later one"), LostPeer);  // the group stays broken
    EXPECT_THROW(dp->send(t, 1 - world.rank(), "a later one"), LostPeer);
  });
}

TEST_P(Failures, ASilentRankIsNamedAfterTheTimeout) {
  run_backend(
      GetParam(), 2,
      [](Group& world, GroupFactory& factory) {
        std::unique_ptr<Group> dp = factory.make("dp", {0, 1});
        torch::Tensor t = torch::ones({10});
        if (world.rank() == 0) {
          std::string text =
              error_of([&] { dp->all_reduce(t, ReduceOp::kSum, "grads of bucket 3")->wait(); });
          EXPECT_EQ(
              text,
              "group dp (rank 0 of 2): all_reduce of grads of bucket 3: rank 1 did not answer "
              "within 0.3 s (nccl_timeout)");
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(600));
        }
      },
      std::chrono::milliseconds(300));
}

TEST_P(Failures, AbortEndsWhatIsUnderWay) {
  run_backend(GetParam(), 2, [](Group& world, GroupFactory& factory) {
    std::unique_ptr<Group> dp = factory.make("dp", {0, 1});
    std::unique_ptr<Group> done = factory.make("done", {0, 1});
    torch::Tensor t = torch::ones({10});
    if (world.rank() == 0) {
      WorkPtr collective = dp->all_reduce(t, ReduceOp::kSum, "grads");
      WorkPtr receive = dp->recv(torch::empty({3}), 1, "activations");
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        dp->abort("rank 1: the disk is full");
      });
      EXPECT_EQ(error_of([&] { receive->wait(); }),
                "group dp (rank 0 of 2): recv of activations: rank 1: the disk is full");
      EXPECT_EQ(error_of([&] { collective->wait(); }),
                "group dp (rank 0 of 2): all_reduce of grads: rank 1: the disk is full");
      other.join();
    }
    done->barrier("the other group works on");
  });
}

// The transfer with the peer that is left is posted, the one with the peer that is gone cannot be:
// nothing of the exchange may stay behind for a later abort to stumble over.
TEST_P(Failures, AbortAfterAnExchangeThatCouldNotBePosted) {
  run_backend(GetParam(), 3, [](Group& world, GroupFactory& factory) {
    std::unique_ptr<Group> dp = factory.make("dp", {0, 1, 2});
    world.barrier("all are there");
    if (world.rank() == 2) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    torch::Tensor t = torch::ones({10});
    EXPECT_THROW(dp->all_reduce(t, ReduceOp::kSum, "grads")->wait(), LostPeer);
    std::vector<torch::Tensor> others;  // take the place of what was let go
    for (int i = 0; i < 100; ++i) others.push_back(torch::full({10}, -1.0));
    factory.abort("rank 2 is gone");
    EXPECT_THROW(dp->barrier("a later one"), Error);
  });
}

TEST_P(Failures, AGroupMayGoWithWorksUnderWay) {
  run_backend(GetParam(), 2, [](Group& world, GroupFactory& factory) {
    std::unique_ptr<Group> dp = factory.make("dp", {0, 1});
    torch::Tensor t = torch::ones({10});
    WorkPtr work;
    if (world.rank() == 0) {
      work = dp->all_reduce(t, ReduceOp::kSum, "grads");
      dp->all_reduce(t, ReduceOp::kSum, "grads");
      dp.reset();
      EXPECT_THAT(error_of([&] { work->wait(); }), HasSubstr("the group was closed"));
    }
    world.barrier("the end");
  });
}

TEST(FailuresOfThreads, OneThatThrowsEndsTheOthersAndIsRethrown) {
  std::atomic<int> ended{0};
  std::string text = error_of([&] {
    run_ranks(3, [&](Group& world) {
      if (world.rank() == 1) fail("no such file");
      torch::Tensor t = torch::ones({10});
      try {
        world.all_reduce(t, ReduceOp::kSum, "norm")->wait();
      } catch (const LostPeer& e) {
        EXPECT_THAT(e.what(), HasSubstr("all_reduce of norm: rank 1"));
        ++ended;
        throw;
      }
    });
  });
  EXPECT_EQ(text, "no such file");
  EXPECT_EQ(ended, 2);
}

TEST(FailuresOfThreads, SizesThatDiffer) {
  std::string text = error_of([] {
    run_ranks(2, [](Group& world) {
      torch::Tensor t = torch::ones({10 + world.rank()});
      world.all_reduce(t, ReduceOp::kSum, "norm")->wait();
    });
  });
  EXPECT_THAT(text, HasSubstr("sends 4"));
  EXPECT_THAT(text, HasSubstr("bytes where rank"));
}

}  // namespace
}  // namespace muoncore::comm
