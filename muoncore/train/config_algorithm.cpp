// Options of `algorithm`, and verl's trees that have no counterpart here.
#include "muoncore/rl/kl_penalty.h"
#include "muoncore/train/config_tables.h"

namespace muoncore::train {

Options algorithm_options() {
  return under(
      "algorithm",
      {
          text("adv_estimator", "grpo", "advantages: the group's mean is the baseline")
              .one_of({"grpo"})
              .why("there is no critic, and verl's other estimators are not built")
              .verl("gae"),
          real("gamma", 1.0, "discount").at_least(1).at_most(1).why("grpo does not discount"),
          real("lam", 1.0, "of the GAE estimator").at_least(1).at_most(1).why("grpo has no lambda"),
          flag("norm_adv_by_std_in_grpo", true,
               "divide by the group's standard deviation; False: Dr.GRPO"),
          flag("use_kl_in_reward", false, "subtract the KL divergence from the reward"),
          text("kl_penalty", "kl", "its estimator").one_of(rl::kl_penalty_names()),
          text("kl_ctrl.type", "fixed", "how its weight moves").one_of({"fixed", "adaptive"}),
          real("kl_ctrl.kl_coef", 0.001, "its weight at the start").at_least(0),
          real("kl_ctrl.horizon", 10000, "of the adaptive weight").above(0),
          real("kl_ctrl.target_kl", 0.1, "of the adaptive weight").above(0),
          only_flag("filter_groups.enable", false, "dynamic sampling is not built yet"),
          only_flag("use_pf_ppo", false, "preference feedback PPO is not built"),
      });
}

Refusals algorithm_refusals() {
  Refusals all = refuse("algorithm.filter_groups",
                        {"metric", "max_num_gen_batches", "max_inflight_gen_batches"},
                        "dynamic sampling is not built yet");
  append(all, refuse("algorithm", {"pf_ppo"}, "preference feedback PPO is not built"));
  append(all, refuse("algorithm", {"rollout_correction"},
                     "rollouts come from the weights that are trained"));
  append(all, refuse("", {"critic"}, "grpo has no critic"));
  append(all, refuse("",
                     {"reward", "reward_model", "reward_manager", "custom_reward_function",
                      "sandbox_fusion"},
                     "the reward comes from data.task (data.reward_fn for jsonl)"));
  append(all,
         refuse("", {"global_profiler", "profiler"}, "the timers are always on (timing_s/...)"));
  append(all, refuse("", {"distillation"}, "distillation is not built"));
  append(all, refuse("", {"transfer_queue", "ray_kwargs"}, "ranks talk through collectives alone"));
  append(all, refuse("", {"skip"}, "every step generates its own rollouts"));
  append(all, refuse("", {"defaults", "hydra", "model_engine"},
                     "the file is one whole tree; nothing is composed"));
  return all;
}

}  // namespace muoncore::train
