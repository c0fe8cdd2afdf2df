#include "muoncore/data/char_tokenizer.h"

#include "muoncore/core/check.h"
#include "muoncore/data/json_node.h"
#include "muoncore/io/atomic_file.h"

namespace muoncore::data {
namespace {

constexpr const char* kType = "characters";
constexpr const char* kSpecialNames[] = {"<pad>", "<bos>", "<eos>"};

}  // namespace

CharTokenizer::CharTokenizer(std::string alphabet) : alphabet_(std::move(alphabet)) {
  check(!alphabet_.empty(), "the alphabet of a character tokenizer is empty");
  id_of_.fill(-1);
  for (size_t i = 0; i < alphabet_.size(); ++i) {
    auto character = static_cast<unsigned char>(alphabet_[i]);
    bool allowed = (character >= ' ' && character < 127) || character == '\n';
    check(allowed,
          "the alphabet of a character tokenizer has the byte 0x{:02X} at position {}; allowed: "
          "printable ASCII and newline",
          character, i);
    check(id_of_[character] < 0, "the alphabet of a character tokenizer has '{}' twice",
          alphabet_[i]);
    id_of_[character] = kFirstCharacter + static_cast<int64_t>(i);
  }
  special_ = {kBos, kEos, kPad, {kEos}};
}

std::vector<int64_t> CharTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  std::vector<int64_t> ids;
  ids.reserve(text.size() + 1);
  if (add_special_tokens) ids.push_back(kBos);
  for (size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    int64_t id = byte < id_of_.size() ? id_of_[byte] : -1;
    check(id >= 0,
          "the byte 0x{:02X} at position {} of the text is not in the character tokenizer's "
          "alphabet '{}'",
          byte, i, alphabet_);
    ids.push_back(id);
  }
  return ids;
}

std::string CharTokenizer::token_bytes(int64_t id, bool skip_special_tokens) const {
  check(id >= 0, "the token id {} is negative", id);
  if (id >= vocab_size()) return "";
  if (id >= kFirstCharacter)
    return std::string(1, alphabet_[static_cast<size_t>(id - kFirstCharacter)]);
  return skip_special_tokens ? "" : kSpecialNames[id];
}

std::optional<int64_t> CharTokenizer::token_id(std::string_view token) const {
  for (int64_t id = 0; id < vocab_size(); ++id)
    if (token_bytes(id, /*skip_special_tokens=*/false) == token) return id;
  return std::nullopt;
}

void CharTokenizer::save(const std::filesystem::path& folder) const {
  nlohmann::ordered_json json = {{"type", kType}, {"alphabet", alphabet_}};
  io::AtomicFile file(folder / kFileName);
  file.write(std::string_view(json.dump() + "\n"));
  file.commit();
}

std::unique_ptr<CharTokenizer> CharTokenizer::load(const std::filesystem::path& folder) {
  std::filesystem::path path = folder / kFileName;
  nlohmann::json json = parse_json(read_file(path), path.string());
  JsonNode root(json, path.string());
  root.only({"type", "alphabet"});
  if (root.at("type").text() != kType) root.at("type").refuse(fmt::format("supported: {}", kType));
  try {
    return std::make_unique<CharTokenizer>(root.at("alphabet").text());
  } catch (const Error& e) {
    fail("{}: {}", path.string(), e.what());
  }
}

}  // namespace muoncore::data
