#include "muoncore/io/jsonl.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "muoncore/core/check.h"

namespace muoncore::io {
namespace {

namespace fs = std::filesystem;

class JsonlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("muoncore_jsonl_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::vector<std::string> lines(const fs::path& path) {
    std::ifstream in(path);
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }
  fs::path folder_;
};

TEST_F(JsonlTest, KeepsEveryDigitAndTheOrderOfKeys) {
  const std::vector<double> values = {0.1,       1.0 / 3.0, 1e-300, -5e-324, 1.7976931348623157e308,
                                      6368256.0, -0.0};
  {
    JsonlWriter writer(folder_ / "m.jsonl");
    for (const double v : values) writer.write({{"z", v}, {"a", 7}});
  }
  const auto read = lines(folder_ / "m.jsonl");
  ASSERT_EQ(read.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto object = nlohmann::ordered_json::parse(read[i]);
    EXPECT_EQ(object["z"].get<double>(), values[i]);
    EXPECT_EQ(object.begin().key(), "z");
  }
}

TEST_F(JsonlTest, LinesAreThereBeforeTheWriterIsClosed) {
  JsonlWriter writer(folder_ / "m.jsonl");
  writer.write({{"step", 1}});
  EXPECT_EQ(lines(folder_ / "m.jsonl"), std::vector<std::string>{R"({"step":1})"});
}

TEST_F(JsonlTest, AppendsToAnOlderFile) {
  { JsonlWriter(folder_ / "m.jsonl").write({{"step", 1}}); }
  { JsonlWriter(folder_ / "m.jsonl").write({{"step", 2}}); }
  EXPECT_EQ(lines(folder_ / "m.jsonl").size(), 2u);
}

TEST_F(JsonlTest, NotANumberIsNull) {
  JsonlWriter writer(folder_ / "m.jsonl");
  writer.write({{"x", std::numeric_limits<double>::quiet_NaN()},
                {"y", std::numeric_limits<double>::infinity()}});
  EXPECT_EQ(lines(folder_ / "m.jsonl")[0], R"({"x":null,"y":null})");
}

TEST_F(JsonlTest, AFolderThatIsMissingIsNamed) {
  try {
    JsonlWriter writer(folder_ / "none" / "m.jsonl");
    FAIL() << "opened a file in a folder that does not exist";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("none/m.jsonl"), std::string::npos) << e.what();
  }
}

TEST(JsonlDiskTest, AFullDiskIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  JsonlWriter writer("/dev/full");
  EXPECT_THROW(writer.write({{"step", 1}}), Error);
}

}  // namespace
}  // namespace muoncore::io
