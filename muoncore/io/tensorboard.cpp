#include "muoncore/io/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "muoncore/core/check.h"

namespace muoncore::io {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

template <typename T>
void append_little_endian(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void append_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

// Protocol Buffers wire types.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void append_key(std::string& out, uint32_t field, WireType type) {
  append_varint(out, field << 3 | type);
}

void append_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  append_key(out, field, kBytes);
  append_varint(out, bytes.size());
  out.append(bytes);
}

void append_wall_time(std::string& out, double wall_time) {
  append_key(out, 1, kFixed64);
  append_little_endian(out, wall_time);
}

double now_seconds() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8u;
}

std::string tf_record(std::string_view payload) {
  std::string length;
  append_little_endian(length, static_cast<uint64_t>(payload.size()));
  std::string record = length;
  append_little_endian(record, masked_crc32c(length));
  record.append(payload);
  append_little_endian(record, masked_crc32c(payload));
  return record;
}

std::string version_event(double wall_time) {
  std::string event;
  append_wall_time(event, wall_time);
  append_bytes(event, 3, "brain.Event:2");
  return event;
}

std::string scalars_event(double wall_time, int64_t step,
                          const std::vector<std::pair<std::string, double>>& scalars) {
  std::string summary;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    append_bytes(value, 1, tag);
    append_key(value, 2, kFixed32);
    append_little_endian(value, static_cast<float>(number));
    append_bytes(summary, 1, value);
  }
  std::string event;
  append_wall_time(event, wall_time);
  append_key(event, 2, kVarint);
  append_varint(event, static_cast<uint64_t>(step));
  append_bytes(event, 5, summary);
  return event;
}

EventWriter::EventWriter(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check(!error, "cannot make the folder {}: {}", folder.string(), error.message());
  const double now = now_seconds();
  path_ = folder / fmt::format("events.out.tfevents.{}.{}.{}.0", static_cast<int64_t>(now),
                               host_name(), ::getpid());
  file_ = std::fopen(path_.c_str(), "abe");
  check(file_ != nullptr, "cannot open {} for writing: {}", path_.string(), std::strerror(errno));
  write(tf_record(version_event(now)));
}

EventWriter::~EventWriter() { std::fclose(file_); }

void EventWriter::add_scalars(int64_t step,
                              const std::vector<std::pair<std::string, double>>& scalars) {
  write(tf_record(scalars_event(now_seconds(), step, scalars)));
}

void EventWriter::write(const std::string& record) {
  const bool whole = std::fwrite(record.data(), 1, record.size(), file_) == record.size();
  const bool flushed = std::fflush(file_) == 0;  // before errno is read
  check(flushed && whole, "cannot write to {}: {}", path_.string(), std::strerror(errno));
}

}  // namespace muoncore::io
