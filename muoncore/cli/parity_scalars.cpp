// Groups of plain numbers: scale factors and the learning-rate and weight-decay schedule.
#include <fmt/format.h>

#include "muoncore/cli/parity_groups.h"
#include "muoncore/muon/scale_mode.h"
#include "muoncore/optim/param_scheduler.h"

namespace muoncore::cli {
namespace {

optim::SchedulerOptions options_of(const nlohmann::json& a) {
  optim::SchedulerOptions o;
  o.lr_warmup_init = a.at("init_lr");
  o.lr_warmup_steps = a.at("lr_warmup_steps");
  o.lr_decay_steps = a.at("lr_decay_steps");
  o.lr_decay_style = a.at("lr_decay_style");
  if (!a.at("lr_wsd_decay_style").is_null()) o.lr_wsd_decay_style = a.at("lr_wsd_decay_style");
  if (!a.at("wsd_decay_steps").is_null())
    o.lr_wsd_decay_steps = a.at("wsd_decay_steps").get<int64_t>();
  o.start_wd = a.at("start_wd");
  o.end_wd = a.at("end_wd");
  o.wd_incr_steps = a.at("wd_incr_steps");
  o.wd_incr_style = a.at("wd_incr_style");
  return o;
}

// A group's own start_wd is written as "0.02 (0.2 when style constant)".
optim::GroupSchedule schedule_of(const nlohmann::json& group, bool constant) {
  optim::GroupSchedule s{group.at("max_lr"), group.at("min_lr"), group.at("wd_mult"), {}, {}};
  if (group.contains("end_wd")) {
    s.end_wd = group.at("end_wd").get<double>();
    s.start_wd = constant ? *s.end_wd : std::stod(group.at("start_wd").get<std::string>());
  }
  return s;
}

}  // namespace

GroupReport replay_scale_factors(const GoldenFolder& golden, const UpstreamProfile&) {
  GroupReport report("scale_factors");
  const auto& group = golden.group("scale_factors");
  for (const auto& row : group.at("rows")) {
    const int64_t out = row.at("out"), in = row.at("inp");
    std::vector<Distance> distances;
    for (const auto& [mode, value] : row.items()) {
      if (mode == "out" || mode == "inp") continue;
      const std::string name = mode.starts_with("torch_") ? mode.substr(6) : mode;
      distances.push_back(number_distance(muon::scale_factor(muon::parse_scale_mode(name), out, in),
                                          value, 0, group.at("rtol")));
    }
    report.judge(fmt::format("{}x{}", out, in), distances);
  }
  return report;
}

GroupReport replay_scheduler(const GoldenFolder& golden, const UpstreamProfile&) {
  GroupReport report("param_scheduler");
  const auto& entry = golden.group("param_scheduler");
  const auto file = read_json(golden.path() / entry.at("file").get<std::string>());
  for (const auto& row : file.at("rows")) {
    const optim::SchedulerOptions options = options_of(row.at("args"));
    std::vector<Distance> distances;
    for (size_t g = 0; g < file.at("groups").size(); ++g) {
      const auto schedule = schedule_of(file.at("groups")[g], options.wd_incr_style == "constant");
      const auto& table = row.at("lr_wd_after_step");
      for (size_t k = 0; k < table.size(); ++k) {
        const auto step = static_cast<int64_t>(k);
        const double rtol = entry.at("rtol");
        distances.push_back(
            number_distance(optim::lr_at(options, schedule, step), table[k][g][0], 1e-18, rtol));
        distances.push_back(number_distance(optim::weight_decay_at(options, schedule, step),
                                            table[k][g][1], 1e-18, rtol));
      }
    }
    report.judge(options.lr_decay_style + "/" + options.wd_incr_style, distances);
  }
  return report;
}

}  // namespace muoncore::cli
