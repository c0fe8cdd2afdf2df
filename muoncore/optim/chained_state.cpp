// The state of a whole chain as named tensors, and back.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/ranges.h>

#include <string_view>

#include "muoncore/core/check.h"
#include "muoncore/optim/chained.h"
#include "muoncore/optim/check_choice.h"

namespace muoncore::optim {
namespace {

const std::string kPrefix = "optimizer.state.";
const std::string kEntries = "optimizer.entries";
const std::string kMaster = "fp32_param";

// "optimizer.state.exp_avg.model.norm.weight" -> {"exp_avg", "model.norm.weight"}
std::pair<std::string, std::string> parse_key(const std::string& key) {
  const size_t dot = key.starts_with(kPrefix) ? key.find('.', kPrefix.size()) : std::string::npos;
  check(dot != std::string::npos, "optimizer state: '{}' is no key of an optimizer's state", key);
  return {key.substr(kPrefix.size(), dot - kPrefix.size()), key.substr(dot + 1)};
}

// The state by parameter, checked for completeness.
std::map<std::string, ParamState> group_by_param(const std::map<std::string, at::Tensor>& state) {
  const auto entries = state.find(kEntries);
  check(entries != state.end(), "optimizer state: '{}' is missing", kEntries);
  const auto& count = entries->second;
  check(count.scalar_type() == at::kLong && count.numel() == 1,
        "optimizer state: '{}' must be one int64", kEntries);
  const int64_t due = count.item<int64_t>(), found = static_cast<int64_t>(state.size()) - 1;
  check(due == found, "optimizer state: {} of {} entries are there", found, due);
  std::map<std::string, ParamState> by_param;
  for (const auto& [key, tensor] : state) {
    if (key == kEntries) continue;
    const auto [what, param] = parse_key(key);
    by_param[param][what] = tensor;
  }
  return by_param;
}

}  // namespace

std::map<std::string, at::Tensor> ChainedOptimizer::state() const {
  std::map<std::string, at::Tensor> state;
  for (size_t i = 0; i < parts_.params.size(); ++i) {
    const std::string& name = parts_.params[i].spec.name;
    for (const auto& [what, tensor] : owner(i).param_state(parts_.masters[i]))
      state[kPrefix + what + "." + name] = tensor;
    if (has_master(i)) state[kPrefix + kMaster + "." + name] = parts_.masters[i].detach();
  }
  state[kEntries] = at::scalar_tensor(static_cast<int64_t>(state.size()), at::kLong);
  return state;
}

// A parameter's master out of its state, checked; undefined when it has none.
at::Tensor ChainedOptimizer::take_master(size_t i, ParamState& state) const {
  const std::string& name = parts_.params[i].spec.name;
  const auto found = state.find(kMaster);
  check(has_master(i) == (found != state.end()),
        "optimizer state: '{}' {} an fp32 master copy here", name,
        has_master(i) ? "needs" : "has no place for");
  if (found == state.end()) return {};
  const at::Tensor master = found->second;
  check(master.sizes() == parts_.masters[i].sizes() && master.scalar_type() == at::kFloat,
        "optimizer state: the master of '{}' is {} [{}] where Float [{}] is needed", name,
        c10::toString(master.scalar_type()), fmt::join(master.sizes(), ", "),
        fmt::join(parts_.masters[i].sizes(), ", "));
  state.erase(found);
  return master;
}

// An empty state is that of a parameter that was never stepped.
void ChainedOptimizer::put_state(size_t i, const ParamState& state) {
  const at::Tensor& param = parts_.masters[i];
  if (state.empty())
    owner(i).drop_param_state(param);
  else
    owner(i).set_param_state(param, state);
}

void ChainedOptimizer::load_state(const std::map<std::string, at::Tensor>& state) {
  at::NoGradGuard no_grad;
  auto by_param = group_by_param(state);
  std::vector<at::Tensor> masters;
  std::vector<ParamState> fresh, before;
  std::vector<std::string> names;
  for (size_t i = 0; i < parts_.params.size(); ++i) {
    names.push_back(parts_.params[i].spec.name);
    auto node = by_param.extract(names.back());
    fresh.push_back(node ? std::move(node.mapped()) : ParamState{});
    masters.push_back(take_master(i, fresh.back()));
    for (auto& [what, tensor] : fresh.back()) tensor = tensor.detach().clone();
    before.push_back(owner(i).param_state(parts_.masters[i]));
  }
  check(by_param.empty(), "optimizer state: '{}' is no parameter of this model{}",
        by_param.empty() ? "" : by_param.begin()->first,
        by_param.empty() ? "" : did_you_mean(by_param.begin()->first, names));
  size_t i = 0;
  try {
    for (; i < names.size(); ++i) put_state(i, fresh[i]);
  } catch (const Error& error) {
    for (size_t k = 0; k < i; ++k) put_state(k, before[k]);
    fail("optimizer state of '{}' ({}): {}", names[i], parts_.routes[i].optimizer, error.what());
  }
  for (size_t k = 0; k < names.size(); ++k) {
    if (!masters[k].defined()) continue;
    parts_.masters[k].copy_(masters[k]);
    parts_.params[k].tensor.copy_(masters[k]);
  }
}

}  // namespace muoncore::optim
