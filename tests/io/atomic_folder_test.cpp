#include "muoncore/io/atomic_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/error_of.h"
#include "tests/support/scratch_folder.h"

namespace muoncore::io {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::vector<std::string> names(const fs::path& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder))
    found.push_back(entry.path().filename().string());
  return found;
}

TEST(AtomicFolderTest, AppearsOnlyWhenCommitted) {
  const ScratchFolder scratch;
  const fs::path target = scratch.path() / "a" / "b";
  {
    AtomicFolder folder(target);
    std::ofstream(folder.building() / "file") << "x";
    EXPECT_FALSE(fs::exists(target));
    folder.commit();
    EXPECT_THAT(names(target), testing::ElementsAre("file"));
  }
  EXPECT_THAT(names(target), testing::ElementsAre("file"));
  EXPECT_THAT(names(target.parent_path()), testing::ElementsAre("b"));
}

TEST(AtomicFolderTest, LeavesNothingBehindWithoutACommit) {
  const ScratchFolder scratch;
  {
    AtomicFolder folder(scratch.path() / "a/");
    std::ofstream(folder.building() / "file") << "x";
  }
  EXPECT_THAT(names(scratch.path()), testing::IsEmpty());
}

TEST(AtomicFolderTest, TakesTheLeftOversOfAKilledProcessAway) {
  const ScratchFolder scratch;
  const fs::path target = scratch.path() / "a";
  fs::path building;
  {
    AtomicFolder folder(target);
    building = folder.building();
  }
  fs::create_directories(building);
  std::ofstream(building / "old") << "x";
  AtomicFolder folder(target);
  EXPECT_THAT(names(folder.building()), testing::IsEmpty());
}

TEST(RemoveFolderTest, TakesAllOfItAway) {
  const ScratchFolder scratch;
  fs::create_directories(scratch.path() / "a" / "b");
  std::ofstream(scratch.path() / "a" / "b" / "file") << "x";
  std::ofstream(scratch.path() / "other") << "x";
  remove_folder(scratch.path() / "a/");
  EXPECT_THAT(names(scratch.path()), testing::ElementsAre("other"));
  EXPECT_THAT(
      error_of([&] { remove_folder(scratch.path() / "a"); }),
      HasSubstr("cannot remove the folder " + (scratch.path() / "a").string() + ": No such"));
}

TEST(AtomicFolderTest, NamesTheFolderAndTheReason) {
  const ScratchFolder scratch;
  std::ofstream(scratch.path() / "file") << "x";
  EXPECT_THAT(error_of([&] { AtomicFolder(scratch.path() / "file" / "a"); }),
              HasSubstr("file/.a.tmp-"));
  fs::create_directories(scratch.path() / "full" / "inside");
  AtomicFolder folder(scratch.path() / "full");
  EXPECT_THAT(error_of([&] { folder.commit(); }), HasSubstr("full: Directory not empty"));
  EXPECT_EQ(names(scratch.path() / "full"), std::vector<std::string>{"inside"});
}

}  // namespace
}  // namespace muoncore::io
