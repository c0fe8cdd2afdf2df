// JSON lines files, strictly: one object per line, none empty.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "muoncore/data/json_node.h"

namespace muoncore::data {

struct JsonLine {
  std::string where;  // "FILE:LINE", lines counted from 1
  nlohmann::json value;
  JsonNode node() const { return JsonNode(value, where); }
};

// The lines of all files in order, at most `max_lines` of them (-1: all). Throws `Error` with
// FILE:LINE on an empty line, a byte-order mark, invalid UTF-8, a line that is no JSON object, a
// key that is there twice; with FILE on a file without lines. Lines may end in CR LF.
std::vector<JsonLine> read_jsonl(const std::vector<std::filesystem::path>& files,
                                 int64_t max_lines);

}  // namespace muoncore::data
