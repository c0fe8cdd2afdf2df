// The state of a whole chain as named tensors, and back.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/ranges.h>

#include <string_view>

#include "muoncore/core/check.h"
#include "muoncore/optim/chained.h"
#include "muoncore/optim/check_choice.h"
#include "muoncore/optim/packed_state.h"

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

// The state of one piece out of that of its whole parameter, as copies.
ParamState part_of(const ParamState& whole, const OwnedPiece& piece, const at::Tensor& param) {
  ParamState part;
  for (const auto& [what, tensor] : whole) {
    if (tensor.dim() == 0 || piece.end - piece.begin == param.numel()) {
      part[what] = tensor.detach().clone();
      continue;
    }
    check(tensor.sizes() == param.sizes(), "\"{}\" has the shape [{}] where [{}] is needed", what,
          fmt::join(tensor.sizes(), ", "), fmt::join(param.sizes(), ", "));
    part[what] = tensor.detach().reshape(-1).slice(0, piece.begin, piece.end).clone();
  }
  return part;
}

}  // namespace

std::vector<ChainedOptimizer::StateEntry> ChainedOptimizer::local_state() const {
  std::vector<StateEntry> entries;
  for (const OwnedPiece& piece : parts_.pieces) {
    const OwnedPiece place{.param = piece.param, .begin = piece.begin, .end = piece.end};
    for (const auto& [what, tensor] : owner(piece.param).param_state(piece.master))
      entries.push_back({what, place, tensor});
    if (has_master(piece.param)) entries.push_back({kMaster, place, piece.master.detach()});
  }
  return entries;
}

std::vector<ChainedOptimizer::StateEntry> ChainedOptimizer::everyones_state() const {
  const auto& exchange = parts_.exchange;
  std::vector<StateEntry> own = local_state(), all;
  if (!exchange) return own;
  for (size_t set = 0; set < exchange->replica_sets(); ++set) {
    std::vector<StateEntry> members;
    for (const auto& entry : own)
      if (exchange->replica_set(entry.piece.param) == set) members.push_back(entry);
    for (const auto& bytes : exchange->all_gather_bytes(set, pack_state(members)))
      for (auto& entry : unpack_state(bytes)) all.push_back(std::move(entry));
  }
  return all;
}

std::map<std::string, at::Tensor> ChainedOptimizer::state() const {
  at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> state;
  for (const auto& [what, piece, tensor] : everyones_state()) {
    const at::Tensor& param = parts_.params[piece.param].tensor;
    at::Tensor& whole = state[kPrefix + what + "." + parts_.params[piece.param].spec.name];
    if (tensor.dim() == 0 || piece.end - piece.begin == param.numel()) {
      whole = tensor;
      continue;
    }
    if (!whole.defined()) whole = at::empty(param.sizes(), tensor.options());
    whole.view(-1).slice(0, piece.begin, piece.end).copy_(tensor);
  }
  state[kEntries] = at::scalar_tensor(static_cast<int64_t>(state.size()), at::kLong);
  return state;
}

// A parameter's master out of its state, checked; undefined when it has none.
at::Tensor ChainedOptimizer::take_master(size_t param, ParamState& state) const {
  const auto& [spec, tensor] = parts_.params[param];
  const auto found = state.find(kMaster);
  check(has_master(param) == (found != state.end()),
        "optimizer state: '{}' {} an fp32 master copy here", spec.name,
        has_master(param) ? "needs" : "has no place for");
  if (found == state.end()) return {};
  const at::Tensor master = found->second;
  check(master.sizes() == tensor.sizes() && master.scalar_type() == at::kFloat,
        "optimizer state: the master of '{}' is {} [{}] where Float [{}] is needed", spec.name,
        c10::toString(master.scalar_type()), fmt::join(master.sizes(), ", "),
        fmt::join(tensor.sizes(), ", "));
  state.erase(found);
  return master;
}

// An empty state is that of a parameter that was never stepped.
void ChainedOptimizer::put_state(const OwnedPiece& piece, const ParamState& state) {
  if (state.empty())
    owner(piece.param).drop_param_state(piece.master);
  else
    owner(piece.param).set_param_state(piece.master, state);
}

// What load_state has read and checked, and what was there before.
struct ChainedOptimizer::Loading {
  std::vector<ParamState> fresh;    // by parameter
  std::vector<at::Tensor> masters;  // likewise; undefined: none
  std::vector<ParamState> before;   // by piece
  size_t put = 0;                   // pieces that have their new state
};

void ChainedOptimizer::read_state(const std::map<std::string, at::Tensor>& state,
                                  Loading& loading) const {
  auto by_param = group_by_param(state);
  std::vector<std::string> names;
  for (size_t i = 0; i < parts_.params.size(); ++i) {
    names.push_back(parts_.params[i].spec.name);
    auto node = by_param.extract(names.back());
    loading.fresh.push_back(node ? std::move(node.mapped()) : ParamState{});
    loading.masters.push_back(take_master(i, loading.fresh.back()));
  }
  check(by_param.empty(), "optimizer state: '{}' is no parameter of this model{}",
        by_param.empty() ? "" : by_param.begin()->first,
        by_param.empty() ? "" : did_you_mean(by_param.begin()->first, names));
  for (const OwnedPiece& piece : parts_.pieces)
    loading.before.push_back(owner(piece.param).param_state(piece.master));
}

void ChainedOptimizer::put_states(Loading& loading) {
  for (; loading.put < parts_.pieces.size(); ++loading.put) {
    const OwnedPiece& piece = parts_.pieces[loading.put];
    const auto& [spec, tensor] = parts_.params[piece.param];
    try {
      put_state(piece, part_of(loading.fresh[piece.param], piece, tensor));
    } catch (const Error& error) {
      fail("optimizer state of '{}' ({}): {}", spec.name, parts_.routes[piece.param].optimizer,
           error.what());
    }
  }
}

void ChainedOptimizer::put_masters(const Loading& loading) {
  for (const OwnedPiece& piece : parts_.pieces)
    if (const at::Tensor& master = loading.masters[piece.param]; master.defined())
      piece.master.copy_(
          master.reshape(-1).slice(0, piece.begin, piece.end).view(piece.master.sizes()));
  for (size_t i = 0; i < parts_.params.size(); ++i)
    if (loading.masters[i].defined()) parts_.params[i].tensor.copy_(loading.masters[i]);
}

void ChainedOptimizer::load_state(const std::map<std::string, at::Tensor>& state) {
  at::NoGradGuard no_grad;
  Loading loading;
  std::string refusal;
  try {
    read_state(state, loading);
    put_states(loading);
  } catch (const Error& error) {
    refusal = error.what();
  }
  std::vector<int64_t> refusals{refusal.empty() ? 0 : 1};
  if (parts_.exchange) parts_.exchange->sum(refusals);
  if (refusals[0] > 0) {
    for (size_t k = 0; k < loading.put; ++k) put_state(parts_.pieces[k], loading.before[k]);
    fail("{}", refusal.empty() ? "optimizer state: another rank refused its part" : refusal);
  }
  if (parts_.exchange) parts_.exchange->wait_params();
  put_masters(loading);
}

}  // namespace muoncore::optim
