// Values of all collectives over threads and over gloo: against a naive reference in rank order,
// bit for bit, so that the back ends agree with one another, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>

#include "backends.h"
#include "muoncore/core/check.h"

namespace muoncore::comm {
namespace {

const std::vector<at::ScalarType> kDtypes = {at::kFloat, at::kBFloat16, at::kDouble,
                                             at::kLong,  at::kHalf,     at::kInt};

// What rank r holds: other numbers on each, of mixed sizes, so that every order of a floating-point
// sum gives other bits.
torch::Tensor numbers(int64_t count, int64_t rank, at::ScalarType dtype) {
  torch::Tensor i = torch::arange(count, torch::kDouble);
  torch::Tensor x = torch::remainder(i * 7919 + rank * 104729, 1009.0) - 504.5;
  x = x * torch::pow(10.0, torch::remainder(i + 3 * rank, 7.0) - 3.0);
  if (dtype == at::kLong || dtype == at::kInt) x = torch::round(x);
  if (dtype == at::kHalf) x = x.clamp(-4000, 4000);
  return x.to(dtype);
}

// From rank 0 upwards in fp32 (fp64, integers), rounded once.
torch::Tensor reference(int64_t n, int64_t count, at::ScalarType dtype, ReduceOp op,
                        at::ScalarType out) {
  const bool half = dtype == at::kBFloat16 || dtype == at::kHalf;
  const at::ScalarType wide = half ? at::kFloat : dtype;
  torch::Tensor sum = numbers(count, 0, dtype).to(wide);
  for (int64_t r = 1; r < n; ++r) {
    torch::Tensor row = numbers(count, r, dtype).to(wide);
    sum = op == ReduceOp::kSum   ? sum + row
          : op == ReduceOp::kMax ? torch::maximum(sum, row)
                                 : torch::minimum(sum, row);
  }
  return sum.to(out);
}

int64_t sum_of(const std::vector<int64_t>& sizes) {
  int64_t sum = 0;
  for (int64_t size : sizes) sum += size;
  return sum;
}

int64_t before(const std::vector<int64_t>& sizes, int64_t rank) {
  return sum_of({sizes.begin(), sizes.begin() + rank});
}

class Collectives : public ::testing::TestWithParam<std::string> {
 protected:
  void run(int64_t n, const std::function<void(Group&)>& fn) {
    run_backend(GetParam(), n, [&](Group& world, GroupFactory&) { fn(world); });
  }
};

INSTANTIATE_TEST_SUITE_P(All, Collectives, ::testing::Values("threads", "gloo"),
                         [](const auto& info) { return info.param; });

TEST_P(Collectives, AllReduce) {
  for (int64_t n : {1, 2, 3, 4})
    run(n, [n](Group& world) {
      for (at::ScalarType dtype : kDtypes)
        for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin})
          for (int64_t count : {0, 1, 3, 4097, 40003}) {
            torch::Tensor t = numbers(count, world.rank(), dtype);
            world.all_reduce(t, op, "numbers")->wait();
            EXPECT_TRUE(torch::equal(t, reference(n, count, dtype, op, dtype)))
                << n << " ranks, " << count << " of " << c10::toString(dtype);
          }
    });
}

TEST_P(Collectives, AllReduceOfMoreThanOneRound) {
  run(2, [](Group& world) {
    const int64_t count = 1'300'001;  // shards of 2.6 MB
    torch::Tensor t = numbers(count, world.rank(), at::kFloat).view({1, count});
    world.all_reduce(t, ReduceOp::kSum, "a large one")->wait();
    EXPECT_TRUE(torch::equal(t[0], reference(2, count, at::kFloat, ReduceOp::kSum, at::kFloat)));
  });
}

TEST_P(Collectives, NanWinsInMaxAndMinAndSumsToNan) {
  run(3, [](Group& world) {
    for (int64_t count : {2, 20000})
      for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
        torch::Tensor t = torch::ones({count});
        if (world.rank() == 1) t[count - 1] = std::numeric_limits<float>::quiet_NaN();
        world.all_reduce(t, op, "a NaN on rank 1")->wait();
        EXPECT_TRUE(t[count - 1].isnan().item<bool>());
        EXPECT_FALSE(t[0].isnan().item<bool>());
      }
  });
}

TEST_P(Collectives, ReduceScatterOfUnevenAndEmptyShards) {
  const std::vector<std::vector<int64_t>> layouts = {
      {5}, {7, 0}, {0, 300'001}, {0, 0, 0}, {1, 70'000, 3}, {4, 0, 9, 2}, {600'000, 1, 0, 5}};
  for (const std::vector<int64_t>& sizes : layouts)
    run(static_cast<int64_t>(sizes.size()), [&sizes](Group& world) {
      const int64_t n = world.size(), count = sum_of(sizes);
      const int64_t begin = before(sizes, world.rank()), own = sizes[world.rank()];
      for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kDouble, at::kLong}) {
        torch::Tensor expected =
            reference(n, count, dtype, ReduceOp::kSum, dtype).narrow(0, begin, own);
        torch::Tensor input = numbers(count, world.rank(), dtype);
        torch::Tensor output = torch::empty({own}, dtype);
        world.reduce_scatter(output, input, sizes, "apart")->wait();
        EXPECT_TRUE(torch::equal(output, expected)) << c10::toString(dtype);
        EXPECT_TRUE(torch::equal(input, numbers(count, world.rank(), dtype)));  // only read
        world.reduce_scatter(input.narrow(0, begin, own), input, sizes, "in place")->wait();
        EXPECT_TRUE(torch::equal(input.narrow(0, begin, own), expected)) << c10::toString(dtype);
      }
      torch::Tensor wide = torch::empty({own});
      world.reduce_scatter(wide, numbers(count, world.rank(), at::kBFloat16), sizes, "wide")
          ->wait();
      EXPECT_TRUE(torch::equal(
          wide,
          reference(n, count, at::kBFloat16, ReduceOp::kSum, at::kFloat).narrow(0, begin, own)));
    });
}

TEST_P(Collectives, AllGatherOfUnevenAndEmptyShards) {
  const std::vector<std::vector<int64_t>> layouts = {{5},       {7, 0},         {0, 100'001},
                                                     {0, 0, 0}, {1, 70'000, 3}, {4, 0, 9, 2}};
  for (const std::vector<int64_t>& sizes : layouts)
    run(static_cast<int64_t>(sizes.size()), [&sizes](Group& world) {
      for (at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kByte, at::kLong}) {
        torch::Tensor whole = numbers(sum_of(sizes), 0, at::kFloat).abs().clamp(0, 200).to(dtype);
        torch::Tensor buffer = torch::zeros({sum_of(sizes)}, dtype);
        const int64_t begin = before(sizes, world.rank()), own = sizes[world.rank()];
        buffer.narrow(0, begin, own).copy_(whole.narrow(0, begin, own));
        world.all_gather(buffer, sizes, "shards")->wait();
        EXPECT_TRUE(torch::equal(buffer, whole)) << c10::toString(dtype);
      }
    });
}

TEST_P(Collectives, AllToAllOfUnevenAndEmptyParts) {
  for (int64_t n : {1, 2, 3, 4})
    run(n, [n](Group& world) {
      // rank a sends (a * 5 + b * 3) % 7 elements a * 100 + b to rank b; with a = 0, b = 0 none
      auto amount = [](int64_t from, int64_t to) { return (from * 5 + to * 3) % 7; };
      std::vector<int64_t> sends, receives;
      std::vector<torch::Tensor> in, expected;
      for (int64_t r = 0; r < n; ++r) {
        sends.push_back(amount(world.rank(), r));
        receives.push_back(amount(r, world.rank()));
        in.push_back(torch::full({sends[r]}, static_cast<double>(world.rank() * 100 + r)));
        expected.push_back(torch::full({receives[r]}, static_cast<double>(r * 100 + world.rank())));
      }
      torch::Tensor output = torch::empty({sum_of(receives)});
      world.all_to_all(output, receives, torch::cat(in), sends, "parts")->wait();
      EXPECT_TRUE(torch::equal(output, torch::cat(expected)));
    });
}

TEST_P(Collectives, BroadcastFromEveryRank) {
  for (int64_t n : {1, 2, 3, 4})
    run(n, [n](Group& world) {
      for (int64_t root = 0; root < n; ++root)
        for (int64_t count : {0, 1, 50'000}) {
          torch::Tensor t = numbers(count, world.rank(), at::kBFloat16).view({count, 1});
          world.broadcast(t, root, "weights")->wait();
          EXPECT_TRUE(torch::equal(t.view({-1}), numbers(count, root, at::kBFloat16)));
        }
    });
}

// All send first, two messages each, and around them collectives: a send that waits for its receive
// holds nothing up.
TEST_P(Collectives, SendAndReceiveInARing) {
  for (int64_t n : {2, 3, 4})
    run(n, [n](Group& world) {
      const int64_t next = (world.rank() + 1) % n, last = (world.rank() + n - 1) % n;
      torch::Tensor first = numbers(100'000, world.rank(), at::kFloat);
      torch::Tensor second = numbers(10, world.rank() + 7, at::kLong);
      WorkPtr a = world.send(first, next, "first");
      WorkPtr b = world.send(second, next, "second");
      torch::Tensor t = torch::ones({3});
      world.all_reduce(t, ReduceOp::kSum, "between")->wait();
      EXPECT_EQ(t[0].item<float>(), static_cast<float>(n));
      torch::Tensor x = torch::empty({100'000});
      torch::Tensor y = torch::empty({10}, torch::kLong);
      world.recv(x, last, "first")->wait();
      world.recv(y, last, "second")->wait();
      a->wait();
      b->wait();
      EXPECT_TRUE(torch::equal(x, numbers(100'000, last, at::kFloat)));
      EXPECT_TRUE(torch::equal(y, numbers(10, last + 7, at::kLong)));
    });
}

TEST_P(Collectives, ManyWorksWaitedForInAnyOrder) {
  run(3, [](Group& world) {
    std::vector<torch::Tensor> tensors;
    std::vector<WorkPtr> works;
    for (int64_t i = 0; i < 24; ++i) {
      tensors.push_back(numbers(i * 1000, world.rank(), at::kFloat));
      works.push_back(i % 3 == 0 ? world.broadcast(tensors[i], i % 2, "one of many")
                                 : world.all_reduce(tensors[i], ReduceOp::kSum, "one of many"));
    }
    // other orders on other ranks; some are dropped and must still have run
    for (int64_t i = 23; i >= 0; --i) {
      int64_t k = world.rank() == 1 ? 23 - i : i;
      if (k % 5 != 4) works[k]->wait();
      works[k]->wait();  // a second time does nothing
      works[k].reset();
    }
    world.barrier("the end");
    for (int64_t i = 0; i < 24; ++i)
      EXPECT_TRUE(torch::equal(
          tensors[i], i % 3 == 0 ? numbers(i * 1000, i % 2, at::kFloat)
                                 : reference(3, i * 1000, at::kFloat, ReduceOp::kSum, at::kFloat)));
  });
}

TEST_P(Collectives, WorksKeepTheirTensorsAlive) {
  run(2, [](Group& world) {
    torch::Tensor out = torch::zeros({50'000});
    WorkPtr work;
    {
      torch::Tensor in = numbers(100'000, world.rank(), at::kFloat);
      work = world.reduce_scatter(out, in, {50'000, 50'000}, "a tensor that went away");
    }
    torch::Tensor other = torch::full({100'000}, 5.0);  // would take its place
    work->wait();
    EXPECT_TRUE(torch::equal(out, reference(2, 100'000, at::kFloat, ReduceOp::kSum, at::kFloat)
                                      .narrow(0, 50'000 * world.rank(), 50'000)));
  });
}

TEST_P(Collectives, GradientsOfAutogradAreReduced) {
  run(2, [](Group& world) {
    torch::Tensor p = torch::ones({4}, torch::requires_grad());
    (p * static_cast<double>(world.rank() + 1)).sum().backward();
    world.all_reduce(p.grad(), ReduceOp::kSum, "a gradient")->wait();
    EXPECT_TRUE(torch::equal(p.grad(), torch::full({4}, 3.0)));
    world.all_reduce(p, ReduceOp::kSum, "a parameter that requires a gradient")->wait();
    EXPECT_EQ(p[0].item<float>(), 2);
  });
}

TEST_P(Collectives, GroupsWithinTheWorld) {
  run_backend(GetParam(), 4, [](Group& world, GroupFactory& factory) {
    const int64_t r = world.rank();
    std::unique_ptr<Group> row = factory.make("row", {r / 2 * 2, r / 2 * 2 + 1});
    std::unique_ptr<Group> column = factory.make("column", {r % 2, r % 2 + 2});
    std::unique_ptr<Group> again = factory.make("column", {r % 2, r % 2 + 2});
    std::unique_ptr<Group> alone = factory.make("alone", {r});
    torch::Tensor a = torch::full({20'000}, static_cast<double>(r));
    torch::Tensor b = a.clone(), c = a.clone(), d = a.clone();
    std::vector<WorkPtr> works = {row->all_reduce(a, ReduceOp::kSum, "row"),
                                  column->all_reduce(b, ReduceOp::kSum, "column"),
                                  again->all_reduce(c, ReduceOp::kMax, "column again"),
                                  alone->all_reduce(d, ReduceOp::kSum, "alone")};
    for (int64_t i = 3; i >= 0; --i) works[i]->wait();
    EXPECT_EQ(a[7].item<float>(), static_cast<float>(r / 2 * 4 + 1));
    EXPECT_EQ(b[7].item<float>(), static_cast<float>(r % 2 * 2 + 2));
    EXPECT_EQ(c[7].item<float>(), static_cast<float>(r % 2 + 2));
    EXPECT_EQ(d[7].item<float>(), static_cast<float>(r));
  });
}

TEST(CollectivesOfThreads, ManyRanksInThreads) {
  run_ranks(16, [](Group& world) {
    torch::Tensor t = numbers(50'000, world.rank(), at::kBFloat16);
    world.all_reduce(t, ReduceOp::kSum, "16 ranks")->wait();
    EXPECT_TRUE(
        torch::equal(t, reference(16, 50'000, at::kBFloat16, ReduceOp::kSum, at::kBFloat16)));
  });
}

}  // namespace
}  // namespace muoncore::comm
