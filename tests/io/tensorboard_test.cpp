#include "muoncore/io/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "muoncore/core/check.h"

namespace muoncore::io {
namespace {

// Check values of RFC 3720 (iSCSI), appendix B.4, and of the CRC catalogue.
TEST(Crc32cTest, KnownAnswers) {
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Crc32cTest, MaskRotatesAndAdds) {
  const uint32_t crc = 0xe3069283u;
  EXPECT_EQ(masked_crc32c("123456789"), ((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

TEST(TfRecordTest, FramesThePayload) {
  const std::string record = tf_record("abc");
  ASSERT_EQ(record.size(), 8u + 4u + 3u + 4u);
  EXPECT_EQ(record.substr(0, 8), std::string("\x03\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 3), "abc");
  uint32_t crc = 0;
  std::memcpy(&crc, record.data() + 8, 4);
  EXPECT_EQ(crc, masked_crc32c(record.substr(0, 8)));
  std::memcpy(&crc, record.data() + 15, 4);
  EXPECT_EQ(crc, masked_crc32c("abc"));
}

TEST(EventTest, EncodesByHandWhatProtobufWouldEncode) {
  // wall_time 1.0; step 300 as a two-byte varint; summary of one value {tag "a", 0.5f}
  const std::string expected =
      std::string("\x09\0\0\0\0\0\0\xf0\x3f", 9) + std::string("\x10\xac\x02", 3) +
      std::string("\x2a\x0a\x0a\x08\x0a\x01", 6) + "a" + std::string("\x15\0\0\0\x3f", 5);
  EXPECT_EQ(scalars_event(1.0, 300, {{"a", 0.5}}), expected);
}

TEST(EventWriterTest, WritesAndFlushes) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("muoncore_tb_" + std::to_string(::getpid()));
  EventWriter writer(folder / "deep");
  writer.add_scalars(1, {{"actor/lr", 1e-4}});
  std::ifstream in(writer.path(), std::ios::binary);
  std::stringstream bytes;
  bytes << in.rdbuf();
  EXPECT_GT(bytes.str().size(), 12u + 9u + 15u);
  EXPECT_NE(bytes.str().find("brain.Event:2"), std::string::npos);
  EXPECT_NE(bytes.str().find("actor/lr"), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST(EventWriterTest, AFileInTheWayIsAnError) {
  EXPECT_THROW(EventWriter("/proc/version/none"), Error);
}

}  // namespace
}  // namespace muoncore::io
