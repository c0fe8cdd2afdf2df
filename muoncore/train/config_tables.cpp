#include "muoncore/train/config_tables.h"

namespace muoncore::train {
namespace {

// What every kind of tree refuses.
Refusals general_refusals() {
  Refusals all = {{"*._target_", "it names a Python class of verl; leave it out"}};
  return all;
}

OptionTable make_grpo() {
  const ConfigKind kind = ConfigKind::kGrpo;
  Options options = model_options(model_prefix(kind));
  append(options, actor_options());
  append(options, optim_options(optim_prefix(kind), 1e-6));
  append(options, engine_options(engine_prefix(kind)));
  append(options, checkpoint_options(checkpoint_prefix(kind)));
  append(options, algorithm_options());
  append(options, data_options(kind));
  append(options, trainer_options(kind));
  Refusals refusals = model_refusals(model_prefix(kind));
  append(refusals, actor_refusals());
  append(refusals, optim_refusals(optim_prefix(kind)));
  append(refusals, engine_refusals(engine_prefix(kind)));
  append(refusals, checkpoint_refusals(checkpoint_prefix(kind)));
  append(refusals, algorithm_refusals());
  append(refusals, data_refusals(kind));
  append(refusals, trainer_refusals(kind));
  append(refusals, general_refusals());
  return {std::move(options), std::move(refusals)};
}

OptionTable make_sft() {
  const ConfigKind kind = ConfigKind::kSft;
  Options options = model_options(model_prefix(kind));
  append(options, engine_options(engine_prefix(kind)));
  append(options, optim_options(optim_prefix(kind), 1e-3));
  append(options, data_options(kind));
  append(options, checkpoint_options(checkpoint_prefix(kind)));
  append(options, trainer_options(kind));
  Refusals refusals = model_refusals(model_prefix(kind));
  append(refusals, engine_refusals(engine_prefix(kind)));
  append(refusals, optim_refusals(optim_prefix(kind)));
  append(refusals, data_refusals(kind));
  append(refusals, checkpoint_refusals(checkpoint_prefix(kind)));
  append(refusals, trainer_refusals(kind));
  append(refusals, refuse("", {"profiler"}, "the timers are always on (timing_s/...)"));
  append(refusals,
         refuse("", {"defaults", "hydra"}, "the file is one whole tree; nothing is composed"));
  append(refusals, general_refusals());
  return {std::move(options), std::move(refusals)};
}

OptionTable make_compare() { return {compare_options(), general_refusals()}; }

}  // namespace

const OptionTable& option_table(ConfigKind kind) {
  static const OptionTable grpo = make_grpo();
  static const OptionTable sft = make_sft();
  static const OptionTable compare = make_compare();
  return kind == ConfigKind::kGrpo ? grpo : kind == ConfigKind::kSft ? sft : compare;
}

std::string optim_prefix(ConfigKind kind) {
  return kind == ConfigKind::kGrpo ? "actor_rollout_ref.actor.optim" : "optim";
}

std::string model_prefix(ConfigKind kind) {
  return kind == ConfigKind::kGrpo ? "actor_rollout_ref.model" : "model";
}

std::string engine_prefix(ConfigKind kind) {
  return kind == ConfigKind::kGrpo ? "actor_rollout_ref.actor.megatron" : "engine";
}

std::string checkpoint_prefix(ConfigKind kind) {
  return kind == ConfigKind::kGrpo ? "actor_rollout_ref.actor.checkpoint" : "checkpoint";
}

}  // namespace muoncore::train
