#include "muoncore/core/rng.h"

#include <cmath>
#include <numbers>

namespace muoncore {
namespace {

uint64_t mix(uint64_t x) {  // finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

uint64_t hash_name(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (unsigned char ch : name) h = (h ^ ch) * 0x100000001b3ull;
  return mix(h);
}

CounterRng::CounterRng(std::initializer_list<uint64_t> key_words) : key_(0), high_(0) {
  uint64_t position = 0;
  for (uint64_t word : key_words) {
    key_ = mix(key_ ^ mix(word + (++position)));
    high_ = mix(high_ + key_ + word);
  }
}

uint64_t CounterRng::bits(uint64_t index) const {
  auto r = philox4x32_10({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                          static_cast<uint32_t>(high_), static_cast<uint32_t>(high_ >> 32)},
                         {static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32)});
  return r[0] | (uint64_t{r[1]} << 32);
}

double CounterRng::uniform(uint64_t index) const {
  return static_cast<double>(bits(index) >> 11) * 0x1.0p-53;
}

double CounterRng::normal(uint64_t index) const {
  auto r = philox4x32_10({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                          static_cast<uint32_t>(high_), static_cast<uint32_t>(high_ >> 32)},
                         {static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32)});
  double u = (r[0] + 0.5) * 0x1.0p-32;
  double v = r[1] * 0x1.0p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

uint64_t CounterRng::below(uint64_t index, uint64_t n) const {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits(index)) * n) >> 64);
}

}  // namespace muoncore
