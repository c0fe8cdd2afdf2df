// Megatron's buffer layouts and its ping-pong owners: exact integers, computed by a planner that
// needs no ranks.
#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "muoncore/cli/parity_groups.h"
#include "muoncore/parallel/param_layout.h"

namespace muoncore::cli {
namespace {

bool is_matrix(const nlohmann::json& p) {
  return p.at("shape").size() == 2 && !p.at("is_embedding_or_output").get<bool>();
}

std::vector<parallel::LayoutParam> params_of(const nlohmann::json& model, bool layer_wise,
                                             bool shared_embedding) {
  std::vector<parallel::LayoutParam> params;
  for (const auto& p : model.at("params")) {
    const std::string name = p.at("name");
    const bool shared = shared_embedding && name.find("word_embeddings") != std::string::npos;
    params.push_back(
        {name, p.at("shape").get<std::vector<int64_t>>(), layer_wise && is_matrix(p), shared});
  }
  return params;
}

// [param, start, end, bucket] of each placement, by parameter, and the owners by the golden's own
// order.
bool equals(const parallel::BufferLayout& got, const nlohmann::json& want) {
  std::map<int64_t, parallel::Placement> placed;
  for (const auto& p : got.placements) placed[p.param] = p;
  const auto& index = want.at("index");
  if (placed.size() != index.size() || got.buckets.size() != want.at("buckets").size())
    return false;
  for (size_t i = 0; i < index.size(); ++i) {
    auto it = placed.find(index[i][0].get<int64_t>());
    if (it == placed.end()) return false;
    const parallel::Placement& p = it->second;
    if (index[i] != nlohmann::json({p.param, p.start, p.end, p.bucket})) return false;
    if (want.contains("owner") && want.at("owner").is_array() && want.at("owner")[i] != p.owner)
      return false;
  }
  for (size_t b = 0; b < got.buckets.size(); ++b) {
    const parallel::Bucket& bucket = got.buckets[b];
    if (want.at("buckets")[b] != nlohmann::json({bucket.start, bucket.end})) return false;
    if (want.at("unpadded")[b] != bucket.numel_unpadded) return false;
  }
  return true;
}

bool same_layout(const nlohmann::json& models, const nlohmann::json& c) {
  const auto params = params_of(models.at(c.at("model").get<std::string>()),
                                c.at("optimizer") == "layerwise", c.at("shared_embedding"));
  parallel::LayoutOptions options;
  options.dp = c.at("dp");
  options.pad_buckets_for_high_nccl_busbw = c.at("pad_high_busbw");
  if (!c.at("bucket_size").is_null()) options.bucket_size = c.at("bucket_size").get<int64_t>();
  const parallel::ParamLayout layout = parallel::megatron_layout(params, options);
  for (const auto& buffer : c.at("buffers"))
    if (!equals(buffer.at("key").at("layerwise").get<bool>() ? layout.whole : layout.cut, buffer))
      return false;
  return true;
}

// Upstream deals its groups one after another: matrices, embeddings and output layer, vectors.
bool same_owners(const nlohmann::json& models, const nlohmann::json& c) {
  const auto& model = models.at(c.at("model").get<std::string>());
  const auto params = params_of(model, true, false);
  std::vector<int64_t> order;
  for (int group = 0; group < 3; ++group)
    for (size_t i = 0; i < params.size(); ++i) {
      const auto& p = model.at("params")[i];
      const int its = is_matrix(p) ? 0 : p.at("shape").size() > 1 ? 1 : 2;
      if (its == group) order.push_back(static_cast<int64_t>(i));
    }
  std::vector<std::vector<std::string>> names;
  for (const auto& rank : parallel::ping_pong_owners(params, order, c.at("dp"))) {
    names.emplace_back();
    for (int64_t index : rank) names.back().push_back(params[static_cast<size_t>(index)].name);
  }
  return nlohmann::json(names) == c.at("rank_lists");
}

}  // namespace

GroupReport replay_layouts(const GoldenFolder& golden, const UpstreamProfile&) {
  GroupReport report("layouts");
  const auto file =
      read_json(golden.path() / golden.group("layouts").at("file").get<std::string>());
  for (const auto& c : file.at("layouts"))
    report.add(same_layout(file.at("models"), c) ? Verdict::kPassed : Verdict::kFailed,
               fmt::format("{} {} dp {} bucket {}", c.at("model").get<std::string>(),
                           c.at("optimizer").get<std::string>(), c.at("dp").dump(),
                           c.at("bucket_size").dump()),
               "");
  for (const auto& c : file.at("ping_pong"))
    report.add(
        same_owners(file.at("models"), c) ? Verdict::kPassed : Verdict::kFailed,
        fmt::format("ping-pong {} dp {}", c.at("model").get<std::string>(), c.at("dp").dump()), "");
  return report;
}

}  // namespace muoncore::cli
