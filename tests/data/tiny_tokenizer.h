// A byte-level tokenizer.json made here: the 256 bytes (ids 0 to 255 in byte order), what the
// merges build (from 256 on), then the added tokens. And small helpers that the tests of this room
// share.
#pragma once

#include <gtest/gtest.h>

#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include <utility>
#include <vector>

#include "muoncore/core/check.h"
#include "muoncore/data/bpe_model.h"
#include "muoncore/data/bpe_tokenizer.h"

namespace muoncore::data {

// Left and right raw bytes of each merge, by rank; added tokens are special and not normalized.
inline nlohmann::json tiny_tokenizer_json(
    const std::vector<std::pair<std::string, std::string>>& merges,
    const std::vector<std::string>& added = {}) {
  nlohmann::json vocab = nlohmann::json::object(), list = nlohmann::json::array(),
                 tokens = nlohmann::json::array();
  for (int byte = 0; byte < 256; ++byte)
    vocab[to_byte_level(std::string(1, static_cast<char>(byte)))] = byte;
  for (const auto& [left, right] : merges) {
    list.push_back({to_byte_level(left), to_byte_level(right)});
    std::string both = to_byte_level(left + right);
    if (!vocab.contains(both)) vocab.emplace(both, static_cast<int>(vocab.size()));
  }
  for (const std::string& content : added)
    tokens.push_back({{"id", vocab.size() + tokens.size()},
                      {"content", content},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", true}});
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", tokens},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "ByteLevel"},
            {"add_prefix_space", false},
            {"trim_offsets", true},
            {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder",
           {{"type", "ByteLevel"},
            {"add_prefix_space", true},
            {"trim_offsets", true},
            {"use_regex", true}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", list}}}};
}

// A folder of its own for each test, gone afterwards.
class TemporaryFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("muoncore_{}_{}_{}", info->test_suite_name(), info->name(), ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path write(const std::string& name, std::string_view bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  std::filesystem::path folder_;
};

// The message of the Error that `action` throws; a failure when it throws none.
template <typename Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

}  // namespace muoncore::data
