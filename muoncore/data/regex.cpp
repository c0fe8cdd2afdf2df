#include "muoncore/data/regex.h"

#include "muoncore/core/check.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace muoncore::data {
namespace {

constexpr const char* kWhiteSpace =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr size_t kJitStackStart = 32 << 10;
constexpr size_t kJitStackLimit = 64 << 20;

bool is_punctuation(char c) {
  return c > ' ' && c < 127 && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') &&
         !(c >= 'A' && c <= 'Z');
}

// Translates one pattern, left to right.
class Translator {
 public:
  Translator(std::string_view pattern, std::string_view where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      char c = in_[at_];
      if (c == '\\')
        escape(/*in_class=*/false);
      else if (c == '[')
        character_class();
      else if (c == '(')
        group();
      else if (c == '{')
        interval();
      else if (c == '^' || c == '$' || c == '.')
        refuse(std::string(1, c));
      else
        copy(1);
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(const std::string& construct) const {
    fail("{}: the pattern {} uses '{}' at position {}, which is not supported", where_, in_,
         construct, at_);
  }
  char peek(size_t offset) const { return at_ + offset < in_.size() ? in_[at_ + offset] : '\0'; }
  void copy(size_t count) {
    out_.append(in_.substr(at_, count));
    at_ += count;
  }

  void escape(bool in_class) {
    char e = peek(1);
    if (e == 's') {
      out_ += in_class ? kWhiteSpace : fmt::format("[{}]", kWhiteSpace);
      at_ += 2;
    } else if (e == 'S' && !in_class) {
      out_ += fmt::format("[^{}]", kWhiteSpace);
      at_ += 2;
    } else if (e == 'p' || e == 'P') {
      size_t close = in_.find('}', at_);
      if (peek(2) != '{' || close == std::string_view::npos) refuse(fmt::format("\\{}", e));
      copy(close + 1 - at_);
    } else if (e == 'd' || e == 'r' || e == 'n' || e == 't' || is_punctuation(e)) {
      copy(2);
    } else {
      refuse(e ? fmt::format("\\{}", e) : std::string("\\"));
    }
  }

  void character_class() {
    copy(1);
    if (peek(0) == '^') copy(1);
    if (peek(0) == ']') refuse("[]");
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '[') refuse("[ within [");
      if (in_[at_] == '&' && peek(1) == '&') refuse("&&");
      if (in_[at_] == '\\')
        escape(/*in_class=*/true);
      else
        copy(1);
    }
    if (at_ == in_.size()) refuse("[ without ]");
    copy(1);
  }

  void group() {
    if (peek(1) != '?') return copy(1);
    for (std::string_view opening : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"})
      if (in_.substr(at_, opening.size()) == opening) return copy(opening.size());
    refuse(std::string(in_.substr(at_, 3)));
  }

  // {m}, {m,} and {m,n}; a `+` or `?` behind it means one thing to Oniguruma and another to PCRE2.
  void interval() {
    size_t close = in_.find('}', at_);
    std::string_view inside =
        close == std::string_view::npos ? "" : in_.substr(at_ + 1, close - at_ - 1);
    bool fits = !inside.empty() && inside[0] != ',' &&
                inside.find_first_not_of("0123456789,") == std::string_view::npos;
    if (!fits) refuse("{");
    char behind = close + 1 < in_.size() ? in_[close + 1] : '\0';
    if (behind == '+' || behind == '?') refuse(fmt::format("{{{}}}{}", inside, behind));
    copy(close + 1 - at_);
  }

  std::string_view in_;
  std::string_view where_;
  size_t at_ = 0;
  std::string out_;
};

// What a match needs to write to; one for each thread.
struct Scratch {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackLimit, nullptr);
  Scratch() {
    if (!match || !context || !stack) throw std::bad_alloc();
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

std::string to_pcre2(std::string_view pattern, std::string_view where) {
  return Translator(pattern, where).run();
}

Regex::Regex(std::string_view pattern, std::string_view where) {
  std::string translated = to_pcre2(pattern, where);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  check(code != nullptr, "{}: the pattern {} is faulty: {}", where, pattern, pcre2_message(error));
  code_ = std::shared_ptr<pcre2_real_code_8>(code, &pcre2_code_free);
  int jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  // A PCRE2 that was built without JIT matches the same, slower.
  check(jit == 0 || jit == PCRE2_ERROR_JIT_BADOPTION, "{}: the pattern {} cannot be compiled: {}",
        where, pattern, pcre2_message(jit));
}

std::vector<Regex::Piece> Regex::cut(std::string_view text) const {
  thread_local Scratch scratch;
  std::vector<Piece> pieces;
  size_t previous = 0;  // end of the last match
  size_t from = 0;
  while (from < text.size()) {
    int rc = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                         PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, scratch.match, scratch.context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    check(rc >= 0, "a pre-tokenizer's pattern failed on a text of {} bytes: {}", text.size(),
          pcre2_message(rc));
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(scratch.match);
    if (span[0] > previous) pieces.push_back({previous, span[0], false});
    pieces.push_back({span[0], span[1], true});
    previous = from = span[1];
  }
  if (previous < text.size()) pieces.push_back({previous, text.size(), false});
  return pieces;
}

}  // namespace muoncore::data
