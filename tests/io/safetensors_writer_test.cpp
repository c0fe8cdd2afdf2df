// The writer: its bytes, its order, and that nothing half-written ever stands under the final name.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include "muoncore/core/check.h"
#include "muoncore/io/atomic_file.h"
#include "muoncore/io/safetensors.h"
#include "tests/io/safetensors_fixture.h"
#include "tests/support/error_of.h"

namespace muoncore::io {
namespace {

using testing::HasSubstr;

// While it lives, no file of this process may grow beyond `bytes`: what a full disk looks like to
// write().
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST(SafetensorsWriter, WritesTheFormatByteForByte) {
  TemporaryFolder folder;
  std::string f32(8, 'f'), bf16(6, 'b'), u8(1, 'u');
  write_safetensors(folder.path() / "t", {{"layers.2", Dtype::kBF16, {3}, bytes_of(bf16)},
                                          {"u", Dtype::kU8, {}, bytes_of(u8)},
                                          {"layers.10", Dtype::kBF16, {3}, bytes_of(bf16)},
                                          {"z\"é", Dtype::kF32, {1, 2}, bytes_of(f32)},
                                          {"none", Dtype::kF32, {0}, {}}});
  std::string header =
      R"({"__metadata__":{"format":"pt"},"none":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
      R"("z\"é":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
      R"("layers.10":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]},)"
      R"("layers.2":{"dtype":"BF16","shape":[3],"data_offsets":[14,20]},)"
      R"("u":{"dtype":"U8","shape":[],"data_offsets":[20,21]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(read_whole(folder.path() / "t"), file_of(header, 0) + f32 + bf16 + bf16 + u8);
  EXPECT_EQ(folder.files(), 1u);
}

TEST(SafetensorsWriter, RoundTripThroughAMappedFile) {
  TemporaryFolder folder;
  std::string data = "0123456789ab";
  write_safetensors(folder.path() / "t", {{"w", Dtype::kF32, {3, 1}, bytes_of(data)}},
                    {{"k", "v"}});
  SafetensorsFile file(folder.path() / "t");
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"k", "v"}}));
  EXPECT_EQ(file.at("w").shape, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(std::memcmp(file.at("w").bytes.data(), data.data(), data.size()), 0);
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_THAT(error_of([&] { file.at("v"); }), HasSubstr("no tensor \"v\""));
  write_safetensors(folder.path() / "none", {}, {});
  EXPECT_EQ(read_whole(folder.path() / "none"), file_of("{}      ", 0));
  EXPECT_TRUE(SafetensorsFile(folder.path() / "none").entries().empty());
}

TEST(SafetensorsWriter, RefusesEntriesThatDoNotFit) {
  TemporaryFolder folder;
  std::string data = "01234567";
  auto write = [&](std::vector<SafetensorsEntry> entries) {
    return error_of([&] { write_safetensors(folder.path() / "t", entries); });
  };
  EXPECT_THAT(write({{"w", Dtype::kF32, {3}, bytes_of(data)}}),
              HasSubstr("tensor \"w\" (F32 [3]) has 8 bytes"));
  EXPECT_THAT(
      write({{"w", Dtype::kF32, {2}, bytes_of(data)}, {"w", Dtype::kI64, {1}, bytes_of(data)}}),
      HasSubstr("two tensors are called \"w\""));
  EXPECT_THAT(write({{"__metadata__", Dtype::kF32, {2}, bytes_of(data)}}),
              HasSubstr("__metadata__"));
  EXPECT_THAT(write({{"\xff", Dtype::kF32, {2}, bytes_of(data)}}), HasSubstr("not UTF-8"));
  EXPECT_EQ(folder.files(), 0u);
}

TEST(SafetensorsWriter, AFullDiskLeavesTheOldFileAndNothingElse) {
  TemporaryFolder folder;
  auto path = folder.path() / "w.safetensors";
  std::string small(16, 's'), large(100000, 'l');
  write_safetensors(path, {{"w", Dtype::kU8, {16}, bytes_of(small)}});
  std::string before = read_whole(path);
  {
    FileSizeLimit limit(4096);
    EXPECT_THAT(error_of([&] {
                  write_safetensors(path, {{"w", Dtype::kU8, {100000}, bytes_of(large)}});
                }),
                testing::AllOf(HasSubstr("cannot write"), HasSubstr("w.safetensors"),
                               HasSubstr("File too large")));
    EXPECT_THAT(
        error_of([&] {
          write_safetensors(folder.path() / "new", {{"w", Dtype::kU8, {100000}, bytes_of(large)}});
        }),
        HasSubstr("cannot write"));
  }
  EXPECT_EQ(read_whole(path), before);
  EXPECT_EQ(folder.files(), 1u);
}

TEST(AtomicFile, NothingAppearsBeforeCommitAndNothingStaysWithoutIt) {
  TemporaryFolder folder;
  {
    AtomicFile file(folder.path() / "a");
    file.write("text");
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "a"));
  }
  EXPECT_EQ(folder.files(), 0u);
  AtomicFile file(folder.path() / "a");
  file.write("text");
  file.commit();
  EXPECT_EQ(read_whole(folder.path() / "a"), "text");
  EXPECT_THAT(error_of([&] { AtomicFile(folder.path() / "no" / "a"); }),
              HasSubstr("No such file or directory"));
  EXPECT_THAT(error_of([&] { AtomicFile(folder.path() / ""); }), HasSubstr("it names no file"));
}

TEST(SafetensorsFile, SaysWhyAFileCannotBeRead) {
  TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { SafetensorsFile(folder.path() / "none"); }),
              HasSubstr("No such file or directory"));
  EXPECT_THAT(error_of([&] { SafetensorsFile f(folder.path()); }), HasSubstr("not a regular file"));
  std::ofstream(folder.path() / "empty");
  EXPECT_THAT(error_of([&] { SafetensorsFile(folder.path() / "empty"); }),
              HasSubstr("0 bytes, shorter"));
}

}  // namespace
}  // namespace muoncore::io
