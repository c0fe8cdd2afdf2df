// Groups of the manifest that this build does not compute.
#include "muoncore/cli/parity_groups.h"

namespace muoncore::cli {

GroupReport replay_layouts(const GoldenFolder& golden, const UpstreamProfile&) {
  GroupReport report("layouts");
  const auto& group = golden.group("layouts");
  const int64_t cases =
      group.at("cases").get<int64_t>() + group.at("ping_pong_cases").get<int64_t>();
  for (int64_t i = 0; i < cases; ++i) report.skip("layout", "needs several ranks");
  return report;
}

}  // namespace muoncore::cli
