// Layouts against those recorded from Megatron-Core 0.19.2 (tests/data/golden/layouts.json): exact
// integers.
#include "muoncore/parallel/param_layout.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "muoncore/core/check.h"

namespace muoncore::parallel {
namespace {

nlohmann::json golden() {
  std::ifstream file(MUONCORE_TEST_DATA "/golden/layouts.json");
  return nlohmann::json::parse(file);
}

bool is_matrix(const nlohmann::json& p) {
  return p["shape"].size() == 2 && !p["is_embedding_or_output"];
}

std::vector<LayoutParam> params_of(const nlohmann::json& model, bool layer_wise,
                                   bool shared_embedding) {
  std::vector<LayoutParam> params;
  for (auto& p : model["params"]) {
    std::string name = p["name"];
    bool shared = shared_embedding && name.find("word_embeddings") != std::string::npos;
    params.push_back({name, p["shape"], layer_wise && is_matrix(p), shared});
  }
  return params;
}

void expect_equal(const BufferLayout& got, const nlohmann::json& want) {
  std::map<int64_t, std::vector<int64_t>> index, want_index;
  std::map<int64_t, int64_t> owner;
  for (auto& p : got.placements) {
    index[p.param] = {p.start, p.end, p.bucket};
    owner[p.param] = p.owner;
  }
  for (auto& row : want["index"]) want_index[row[0]] = {row[1], row[2], row[3]};
  EXPECT_EQ(index, want_index);
  std::vector<std::vector<int64_t>> buckets;
  std::vector<int64_t> unpadded;
  for (auto& b : got.buckets) {
    buckets.push_back({b.start, b.end});
    unpadded.push_back(b.numel_unpadded);
  }
  EXPECT_EQ(buckets, want["buckets"].get<decltype(buckets)>());
  EXPECT_EQ(unpadded, want["unpadded"].get<decltype(unpadded)>());
  if (!want.contains("owner") || !want["owner"].is_array()) return;
  for (size_t i = 0; i < want["owner"].size(); ++i)
    EXPECT_EQ(owner[want["index"][i][0]], want["owner"][i]);
}

TEST(MegatronLayout, EqualsTheRecordedLayouts) {
  auto g = golden();
  int buffers = 0;
  for (auto& l : g["layouts"]) {
    SCOPED_TRACE(l["model"].get<std::string>() + " dp " + l["dp"].dump() + " bucket_size " +
                 l["bucket_size"].dump() + " " + l["optimizer"].get<std::string>());
    bool layer_wise = l["optimizer"] == "layerwise";
    auto params =
        params_of(g["models"][l["model"].get<std::string>()], layer_wise, l["shared_embedding"]);
    LayoutOptions options{l["dp"], std::nullopt, l["pad_high_busbw"]};
    if (!l["bucket_size"].is_null()) options.bucket_size = l["bucket_size"].get<int64_t>();
    ParamLayout layout = megatron_layout(params, options);
    check_layout(layout, params, options.dp);
    for (auto& buffer : l["buffers"]) {
      expect_equal(buffer["key"]["layerwise"] ? layout.whole : layout.cut, buffer);
      ++buffers;
    }
  }
  EXPECT_GT(buffers, 80);
}

TEST(PingPong, EqualsTheRecordedOwners) {
  auto g = golden();
  for (auto& q : g["ping_pong"]) {
    auto& model = g["models"][q["model"].get<std::string>()];
    auto params = params_of(model, true, false);
    std::vector<int64_t> order;
    for (int kind = 0; kind < 3;
         ++kind)  // Megatron's groups: matrices, embeddings and output, vectors
      for (size_t i = 0; i < params.size(); ++i) {
        auto& p = model["params"][i];
        int its = is_matrix(p) ? 0 : p["shape"].size() > 1 ? 1 : 2;
        if (its == kind) order.push_back(static_cast<int64_t>(i));
      }
    std::vector<std::vector<std::string>> names;
    for (auto& rank : ping_pong_owners(params, order, q["dp"])) {
      names.emplace_back();
      for (int64_t index : rank) names.back().push_back(params[index].name);
    }
    EXPECT_EQ(names, q["rank_lists"].get<decltype(names)>());
  }
}

TEST(MegatronLayout, RefusesWhatHasNoLayout) {
  std::vector<LayoutParam> params{{"w", {4, 4}, true}};
  EXPECT_THROW(megatron_layout(params, {0}), Error);
  EXPECT_THROW(megatron_layout(params, {1, 0}), Error);
  params[0].shape = {0, 4};
  EXPECT_THROW(megatron_layout(params, {1}), Error);
}

TEST(CheckLayout, FindsEveryKindOfFault) {
  std::vector<LayoutParam> params{{"w", {64, 4}, true}, {"v", {64, 4}, true}, {"b", {100}, false}};
  const ParamLayout good = megatron_layout(params, {2});
  EXPECT_NO_THROW(check_layout(good, params, 2));
  auto broken = [&](auto change) {
    ParamLayout layout = good;
    change(layout);
    EXPECT_THROW(check_layout(layout, params, 2), Error);
  };
  broken([](auto& l) { l.whole.placements.pop_back(); });
  broken([](auto& l) { l.whole.placements.push_back(l.whole.placements[0]); });
  broken([](auto& l) { l.whole.placements[0].owner = 1 - l.whole.placements[0].owner; });
  broken([](auto& l) { l.whole.placements[0].start += 1, l.whole.placements[0].end += 1; });
  broken([](auto& l) { l.whole.buckets[0].shards[1] -= 64; });
  broken([](auto& l) { l.whole.buckets[0].start = 64; });
  broken([](auto& l) { l.cut.placements[0].end += 1; });
  broken([](auto& l) { std::swap(l.cut, l.whole); });
}

}  // namespace
}  // namespace muoncore::parallel
