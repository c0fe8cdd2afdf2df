#include "muoncore/optim/routing.h"

#include <gmock/gmock.h>

#include "muoncore/core/check.h"

namespace muoncore::optim {
namespace {

using ::testing::HasSubstr;

ParamSpec spec(ParamRole role, std::vector<int64_t> shape, std::string name = "w") {
  return {.name = std::move(name), .role = role, .shape = std::move(shape), .blocks = {}};
}

TEST(Routing, TheTable) {
  struct Row {
    ParamRole role;
    std::vector<int64_t> shape;
    std::string optimizer, why;
  };
  const std::vector<Row> rows{
      {ParamRole::kMatrix, {4, 8}, "muon", "matrix of the transformer body"},
      {ParamRole::kMatrix, {3, 4, 8}, "muon", "matrix of the transformer body"},
      {ParamRole::kMatrix, {2, 2}, "muon", "matrix of the transformer body"},
      {ParamRole::kMatrix, {1, 8}, "adam", "one row"},
      {ParamRole::kMatrix, {8, 1}, "adam", "one column"},
      {ParamRole::kMatrix, {1, 1}, "adam", "one row"},
      {ParamRole::kMatrix, {3, 1, 8}, "adam", "one row"},
      {ParamRole::kMatrix, {3, 8, 1}, "adam", "one column"},
      {ParamRole::kMatrix, {1, 4, 8}, "muon", "matrix of the transformer body"},
      {ParamRole::kMatrix, {8}, "adam", "fewer than two dimensions"},
      {ParamRole::kMatrix, {}, "adam", "fewer than two dimensions"},
      {ParamRole::kMatrix, {2, 3, 4, 5}, "adam", "more than three dimensions"},
      {ParamRole::kEmbedding, {32, 8}, "adam", "embedding"},
      {ParamRole::kOutput, {32, 8}, "adam", "output layer"},
      {ParamRole::kPositionEmbedding, {16, 8}, "adam", "position embedding"},
      {ParamRole::kRouter, {4, 8}, "adam", "router"},
      {ParamRole::kNorm, {8}, "adam", "norm"},
      {ParamRole::kBias, {8}, "adam", "bias"},
  };
  for (const auto& row : rows)
    EXPECT_EQ(route(spec(row.role, row.shape)), (Route{"w", row.optimizer, row.why}));
}

// A kernel is a matrix by declaration alone; its matrix' shape decides.
TEST(Routing, KernelsGoByTheMatrixTheyDeclare) {
  const auto kernel = [](std::vector<int64_t> shape) {
    ParamSpec out = spec(ParamRole::kMatrix, std::move(shape));
    out.flatten = true;
    return route(out);
  };
  EXPECT_EQ(kernel({8, 3, 3, 3}).optimizer, "muon");
  EXPECT_EQ(kernel({8, 3, 5}).optimizer, "muon");
  EXPECT_EQ(kernel({1, 3, 3, 3}).why, "one row");
  EXPECT_EQ(kernel({8, 1, 1, 1}).why, "one column");
  ParamSpec declared = spec(ParamRole::kMatrix, {8, 3, 3, 3});
  EXPECT_THROW(route_all({declared}, {{"w", "muon"}}), Error);
  declared.flatten = true;
  EXPECT_EQ(route_all({declared}, {{"w", "muon"}})[0].layout, "[8, 27] of [8, 3, 3, 3]");
}

// Nothing is guessed from a name.
TEST(Routing, NamesDecideNothing) {
  EXPECT_EQ(route(spec(ParamRole::kMatrix, {4, 8}, "lm_head.weight")).optimizer, "muon");
  EXPECT_EQ(route(spec(ParamRole::kEmbedding, {4, 8}, "layers.0.mlp.weight")).optimizer, "adam");
}

std::vector<ParamSpec> small_model() {
  return {spec(ParamRole::kEmbedding, {32, 8}, "embed.weight"),
          spec(ParamRole::kMatrix, {8, 8}, "layers.0.q.weight"),
          spec(ParamRole::kMatrix, {8, 8}, "layers.0.o.weight"),
          spec(ParamRole::kNorm, {8}, "norm.weight")};
}

TEST(Routing, FirstRuleThatMatchesTheWholeNameDecides) {
  const auto routes =
      route_all(small_model(), {{"layers\\.0\\.q\\.weight", "adam"}, {".*\\.weight", "adam"}});
  EXPECT_EQ(routes[1], (Route{"layers.0.q.weight", "adam", "rule 'layers\\.0\\.q\\.weight'"}));
  EXPECT_EQ(routes[2].why, "rule '.*\\.weight'");
  const auto partial = route_all(small_model(), {{"embed.weight", "muon"}});
  EXPECT_EQ(partial[0].optimizer, "muon");
  EXPECT_EQ(partial[1].why, "matrix of the transformer body");
}

std::string refusal(const std::vector<RoutingRule>& rules) {
  try {
    route_all(small_model(), rules);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Routing, RefusesBadRules) {
  EXPECT_THAT(refusal({{"layers", "adam"}}), HasSubstr("'layers' decides nothing: it matches"));
  EXPECT_THAT(refusal({{".*", "adam"}, {"embed.*", "adam"}}),
              HasSubstr("'embed.*' decides nothing: earlier rules"));
  EXPECT_THAT(refusal({{"(", "adam"}}), HasSubstr("'(' is no regular expression"));
  EXPECT_THAT(refusal({{".*", "muonn"}}), HasSubstr("did you mean 'muon'?"));
  EXPECT_THAT(refusal({{"norm.*", "muon"}}), HasSubstr("sends norm.weight to muon"));
}

TEST(Routing, HashSeesNamesOrderAndOptimizersAndTextShowsAll) {
  const auto routes = route_all(small_model());
  EXPECT_EQ(hash_routes(routes), hash_routes(route_all(small_model())));
  EXPECT_NE(hash_routes(routes), hash_routes(route_all(small_model(), {{"embed.*", "muon"}})));
  auto swapped = routes;
  std::swap(swapped[0], swapped[3]);
  EXPECT_NE(hash_routes(routes), hash_routes(swapped));
  auto laid_out = routes;
  laid_out[1].layout = "split into rows 4 + 4";
  EXPECT_NE(hash_routes(routes), hash_routes(laid_out));
  EXPECT_THAT(to_string(routes), HasSubstr("norm.weight        adam  norm\n"));
  EXPECT_EQ(to_string({}), "");
}

}  // namespace
}  // namespace muoncore::optim
