// The mesh's rank lists against tables made by hand and against what must hold for any sizes.
#include "muoncore/comm/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "muoncore/comm/recorder.h"
#include "muoncore/comm/threads.h"
#include "muoncore/core/check.h"
#include "tests/support/error_of.h"

namespace muoncore::comm {
namespace {

using ::testing::HasSubstr;
using Lists = std::vector<std::vector<int64_t>>;

MeshSizes sizes(int64_t tp, int64_t cp, int64_t pp, int64_t ep = 1, int64_t etp = 1) {
  MeshSizes sizes;
  sizes.tp = tp;
  sizes.cp = cp;
  sizes.pp = pp;
  sizes.ep = ep;
  sizes.etp = etp;
  return sizes;
}

TEST(MeshRanks, OfEightByHand) {
  const MeshSizes two = sizes(2, 1, 2);  // tp 2, dp 2, pp 2: Megatron's own example, halved
  EXPECT_EQ(axis_groups(two, 8, Axis::kTp), (Lists{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(axis_groups(two, 8, Axis::kDp), (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(axis_groups(two, 8, Axis::kPp), (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(axis_groups(two, 8, Axis::kModel), (Lists{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(axis_groups(two, 8, Axis::kExpertDp), (Lists{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(axis_groups(two, 8, Axis::kWorld), (Lists{{0, 1, 2, 3, 4, 5, 6, 7}}));
}

// The sixteen ranks of the comment in Megatron's parallel_state: tp 2, pp 4.
TEST(MeshRanks, OfSixteenAsMegatronsComment) {
  const MeshSizes m = sizes(2, 1, 4);
  EXPECT_EQ(axis_groups(m, 16, Axis::kTp),
            (Lists{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(axis_groups(m, 16, Axis::kPp),
            (Lists{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(axis_groups(m, 16, Axis::kDp),
            (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
}

TEST(MeshRanks, ContextIsInsideData) {
  const MeshSizes m = sizes(2, 2, 1);  // dp 2
  EXPECT_EQ(axis_groups(m, 8, Axis::kCp), (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(axis_groups(m, 8, Axis::kDp), (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(axis_groups(m, 8, Axis::kDpCp), (Lists{{0, 2, 4, 6}, {1, 3, 5, 7}}));
}

TEST(MeshRanks, ExpertsCountTheSameRanksAnew) {
  const MeshSizes m = sizes(2, 1, 1, 4);  // 8 ranks: dp 4; ep 4, etp 1, so edp 2
  EXPECT_EQ(axis_groups(m, 8, Axis::kEp), (Lists{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(axis_groups(m, 8, Axis::kExpertDp), (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(axis_groups(m, 8, Axis::kDp), (Lists{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  const MeshSizes with_tp = sizes(2, 1, 1, 2, 2);
  EXPECT_EQ(axis_groups(with_tp, 8, Axis::kExpertTp), (Lists{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(axis_groups(with_tp, 8, Axis::kEp), (Lists{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(axis_groups(with_tp, 8, Axis::kExpertDp), (Lists{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(axis_groups(with_tp, 8, Axis::kExpertModel), (Lists{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  // Qwen3-30B-A3B on 16 ranks, TP 2, EP 8
  EXPECT_EQ(axis_size(sizes(2, 1, 1, 8), 16, Axis::kDp), 8);
  EXPECT_EQ(axis_size(sizes(2, 1, 1, 8), 16, Axis::kExpertDp), 2);
}

TEST(MeshRanks, EachRankIsInExactlyOneGroupOfEachKind) {
  for (int64_t world : {1, 2, 6, 12, 24, 48})
    for (int64_t tp : {1, 2, 3})
      for (int64_t cp : {1, 2})
        for (int64_t pp : {1, 2})
          for (int64_t ep : {1, 2, 3})
            for (int64_t etp : {1, 2}) {
              if (world % (tp * cp * pp) != 0 || world % (etp * ep * pp) != 0) continue;
              const MeshSizes m = sizes(tp, cp, pp, ep, etp);
              for (size_t a = 0; a < kAxes; ++a) {
                auto axis = static_cast<Axis>(a);
                Lists groups = axis_groups(m, world, axis);
                std::vector<int64_t> seen;
                for (const std::vector<int64_t>& group : groups) {
                  EXPECT_EQ(static_cast<int64_t>(group.size()), axis_size(m, world, axis));
                  EXPECT_TRUE(std::is_sorted(group.begin(), group.end()));
                  seen.insert(seen.end(), group.begin(), group.end());
                }
                std::sort(seen.begin(), seen.end());
                std::vector<int64_t> all(world);
                std::iota(all.begin(), all.end(), 0);
                EXPECT_EQ(seen, all) << axis_name(axis);
                EXPECT_TRUE(std::is_sorted(groups.begin(), groups.end()));
                EXPECT_EQ(axis_group(m, world, axis, world - 1).back(), world - 1);
              }
              EXPECT_EQ(axis_size(m, world, Axis::kModel) * axis_size(m, world, Axis::kDpCp),
                        world);
              EXPECT_EQ(
                  axis_size(m, world, Axis::kExpertModel) * axis_size(m, world, Axis::kExpertDp),
                  world);
            }
}

TEST(MeshRanks, Refusals) {
  EXPECT_EQ(error_of([] { axis_groups(sizes(3, 1, 2), 8, Axis::kTp); }),
            "mesh: 8 ranks cannot be divided by tp * cp * pp = 3 * 1 * 2 = 6");
  EXPECT_EQ(error_of([] { axis_groups(sizes(1, 1, 1, 5, 2), 8, Axis::kTp); }),
            "mesh: 8 ranks cannot be divided by etp * ep * pp = 2 * 5 * 1 = 10");
  EXPECT_THAT(error_of([] { axis_groups(sizes(1, 0, 1), 8, Axis::kTp); }),
              HasSubstr("cp is 0; it must be at least 1"));
  EXPECT_THAT(error_of([] { axis_size(sizes(1, 1, 1), 0, Axis::kDp); }),
              HasSubstr("the world is 0"));
  EXPECT_THAT(error_of([] { axis_group(sizes(1, 1, 1), 4, Axis::kDp, 4); }),
              HasSubstr("no rank 4 in a world of 4"));
}

TEST(Mesh, GroupsWork) {
  run_ranks(8, [](Group& world, GroupFactory& factory) {
    Mesh mesh(factory, sizes(2, 1, 2, 2));
    EXPECT_EQ(mesh.rank(), world.rank());
    EXPECT_EQ(mesh.dp().name(), "dp");
    for (size_t a = 0; a < kAxes; ++a) {
      Group& group = mesh.group(static_cast<Axis>(a));
      torch::Tensor t = torch::full({3}, static_cast<double>(world.rank()));
      group.all_reduce(t, ReduceOp::kSum, "ranks")->wait();
      int64_t sum =
          std::accumulate(group.global_ranks().begin(), group.global_ranks().end(), int64_t{0});
      EXPECT_EQ(t[0].item<float>(), static_cast<float>(sum)) << group.name();
    }
  });
}

TEST(Mesh, OfTheRecorder) {
  RecorderFactory factory(517, 1024);
  Mesh mesh(factory, sizes(8, 1, 4, 16));
  EXPECT_EQ(mesh.dp().size(), 32);
  EXPECT_EQ(mesh.dp().global_ranks()[1] - mesh.dp().global_ranks()[0], 8);
  EXPECT_EQ(mesh.pp().rank(), 2);
  EXPECT_EQ(mesh.expert_dp().size(), 16);
}

}  // namespace
}  // namespace muoncore::comm
