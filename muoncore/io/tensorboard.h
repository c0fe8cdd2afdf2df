// TensorBoard event files, written without TensorFlow or protobuf.
//
// Format: TFRecord framing (length u64 LE, masked CRC32C of the length, payload, masked CRC32C of
// the payload; source: tensorflow/core/lib/io/record_writer.h), each payload an `Event` message
// (tensorflow/core/util/event.proto), encoded by hand: wall_time = 1 (double), step = 2 (varint),
// file_version = 3 (string), summary = 5 { value = 1 { tag = 1 (string), simple_value = 2 (float) }
// }.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muoncore::io {

// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78), and its masked form of TFRecord:
// rotate right by 15, plus 0xa282ead8.
uint32_t crc32c(std::string_view bytes);
uint32_t masked_crc32c(std::string_view bytes);

// One TFRecord around `payload`, and the events as payloads; exposed for tests.
std::string tf_record(std::string_view payload);
std::string version_event(double wall_time);
std::string scalars_event(double wall_time, int64_t step,
                          const std::vector<std::pair<std::string, double>>& scalars);

// One events file in `folder`, named as TensorBoard expects it
// (events.out.tfevents.<seconds>.<host>.<pid>.0).
class EventWriter {
 public:
  explicit EventWriter(const std::filesystem::path& folder);  // makes the folder; throws Error
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  // All scalars of one step, as fp32 (TensorBoard's own precision); flushed. Throws Error when it
  // could not be written.
  void add_scalars(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);
  const std::filesystem::path& path() const { return path_; }

 private:
  void write(const std::string& record);

  std::filesystem::path path_;
  std::FILE* file_ = nullptr;
};

}  // namespace muoncore::io
