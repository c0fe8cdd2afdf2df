// Against PyPI's safetensors, both directions. tests/python/test_models.py writes the cases and
// judges what is written; without MUONCORE_SAFETENSORS_CASES there is nothing to compare and the
// test is skipped.
#include <gmock/gmock.h>

#include <cstdlib>

#include "muoncore/core/check.h"
#include "muoncore/io/safetensors.h"
#include "tests/io/safetensors_fixture.h"

namespace muoncore::io {
namespace {

namespace fs = std::filesystem;

class SafetensorsPypi : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("MUONCORE_SAFETENSORS_CASES");
    if (!folder)
      GTEST_SKIP() << "MUONCORE_SAFETENSORS_CASES is not set (tests/python/test_models.py sets it)";
    folder_ = folder;
  }
  fs::path folder_;
};

TEST_F(SafetensorsPypi, WhatIsReadIsWrittenByteForByte) {
  int files = 0;
  for (const auto& item : fs::directory_iterator(folder_ / "same")) {
    SafetensorsFile file(item.path());
    auto shuffled = file.entries();
    std::reverse(shuffled.begin(), shuffled.end());
    fs::path ours = folder_ / "ours.safetensors";
    write_safetensors(ours, shuffled, file.metadata());
    EXPECT_EQ(read_whole(ours), read_whole(item.path())) << item.path();
    ++files;
  }
  EXPECT_GE(files, 3);
}

// Files that PyPI's reader accepts (names that start with ok) or refuses (bad): so do we.
TEST_F(SafetensorsPypi, AcceptsAndRefusesTheSameFiles) {
  int accepted = 0, refused = 0;
  for (const auto& item : fs::directory_iterator(folder_ / "mutated")) {
    std::string why;
    try {
      SafetensorsFile file(item.path());
    } catch (const Error& e) {
      why = e.what();
    }
    bool ok = item.path().filename().string().starts_with("ok");
    EXPECT_EQ(ok, why.empty()) << item.path() << ": " << (why.empty() ? "accepted" : why) << "\n"
                               << read_whole(item.path());
    (ok ? accepted : refused) += 1;
  }
  EXPECT_GE(accepted, 50);
  EXPECT_GE(refused, 500);
}

}  // namespace
}  // namespace muoncore::io
