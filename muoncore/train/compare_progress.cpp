#include "muoncore/train/compare_progress.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "muoncore/core/log.h"

namespace muoncore::train {
namespace {

constexpr double kSecondsBetweenLines = 30.0;
constexpr std::array<std::pair<const char*, const char*>, 3> kShown = {
    {{"critic/rewards/mean", "reward"}, {"train/loss", "loss"}, {"val/loss", "held-out loss"}}};

}  // namespace

CompareProgress::CompareProgress(std::vector<ChildCommand> commands,
                                 std::vector<std::filesystem::path> folders)
    : commands_(std::move(commands)),
      folders_(std::move(folders)),
      states_(commands_.size(), ChildState::kWaiting) {}

CompareProgress::~CompareProgress() { set_status_line(""); }

void CompareProgress::say_change(size_t i, const ChildStatus& now) {
  const ChildCommand& command = commands_[i];
  std::string at = standing(folders_[i]);
  if (now.state == ChildState::kRunning)
    log_info("{} of {}: {} started, log {}", i + 1, commands_.size(), command.name,
             command.log.string());
  else
    log_info("{} of {}: {} done in {}{}{}", i + 1, commands_.size(), command.name,
             format_duration(now.seconds), at.empty() ? "" : ": ", at);
}

void CompareProgress::observe(const std::vector<ChildStatus>& now) {
  std::string status;
  for (size_t i = 0; i < now.size(); ++i) {
    if (now[i].state != states_[i]) say_change(i, now[i]);
    states_[i] = now[i].state;
    if (now[i].state != ChildState::kRunning) continue;
    std::string at = standing(folders_[i]);
    status += fmt::format("{}{}: {}", status.empty() ? "" : " | ", commands_[i].name,
                          at.empty() ? "starting" : at);
  }
  set_status_line(status);
  if (log_is_terminal() || since_line_.seconds() < kSecondsBetweenLines || status.empty()) return;
  since_line_ = Stopwatch();
  log_info("{}", status);
}

std::string standing(const std::filesystem::path& folder) {
  // A line that is being written is no whole object yet: then nothing is known this time.
  nlohmann::json line =
      nlohmann::json::parse(last_lines(folder / "metrics.jsonl", 1), nullptr, false);
  if (!line.is_object() || !line.contains("step") || !line.contains("data")) return "";
  std::string text = fmt::format("step {}", line["step"].dump());
  for (const auto& [metric, name] : kShown)
    if (line["data"].contains(metric) && line["data"][metric].is_number())
      text += fmt::format(", {} {:.3f}", name, line["data"][metric].get<double>());
  return text;
}

}  // namespace muoncore::train
