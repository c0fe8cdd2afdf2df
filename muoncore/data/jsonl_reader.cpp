#include "muoncore/data/jsonl_reader.h"

#include <algorithm>

#include "muoncore/core/check.h"
#include "muoncore/data/utf8.h"

namespace muoncore::data {
namespace {

JsonLine read_line(std::string_view line, std::string where) {
  check(!line.starts_with("\xEF\xBB\xBF"),
        "{} begins with a byte-order mark; save the file as UTF-8 without one", where);
  bool blank = line.find_first_not_of(" \t\r") == std::string_view::npos;
  check(!blank, "{} is empty; each line must hold one JSON object", where);
  check_utf8(line, where);
  nlohmann::json value = parse_json(line, where, RepeatedKeys::kRefused);
  check(value.is_object(), "{} must be a JSON object ({{...}})", where);
  return {std::move(where), std::move(value)};
}

}  // namespace

std::vector<JsonLine> read_jsonl(const std::vector<std::filesystem::path>& files,
                                 int64_t max_lines) {
  std::vector<JsonLine> lines;
  for (const std::filesystem::path& path : files) {
    std::string bytes = read_file(path);
    std::string_view rest = bytes;
    check(!rest.empty(), "{} is empty: it has no lines", path.string());
    for (int64_t number = 1; !rest.empty(); ++number) {
      if (max_lines >= 0 && static_cast<int64_t>(lines.size()) >= max_lines) return lines;
      size_t end = std::min(rest.find('\n'), rest.size());
      lines.push_back(read_line(rest.substr(0, end), fmt::format("{}:{}", path.string(), number)));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return lines;
}

}  // namespace muoncore::data
