// The timed arms of a comparison, each built from its configuration.
#include <memory>
#include <string>
#include <utility>

#include "muoncore/core/log.h"
#include "muoncore/core/timer.h"
#include "muoncore/train/compare_timing.h"
#include "muoncore/train/config.h"
#include "muoncore/train/grpo_settings.h"
#include "muoncore/train/rollout_phase.h"
#include "muoncore/train/setup.h"
#include "muoncore/train/sft_trainer.h"

namespace muoncore::train {
namespace {

constexpr int64_t kWarmUp = 2;

// Sampled with the start's model. Advantages are made up, half of the rows up and half down: times
// do not depend on them, and so a start that never (or always) answers rightly can be timed too.
RolloutBatch record_batch(models::CausalLM& model, const data::Task& task,
                          const data::Tokenizer& tokenizer, const GrpoSettings& settings,
                          const Ranks& ranks) {
  RolloutBatch batch = sample_rollouts(model, task, tokenizer, 0, settings.prompts_per_step,
                                       settings.rollout, ranks);
  batch.scores.assign(batch.rows(), 0.0);
  batch.rewards = batch.scores;
  batch.advantages.resize(batch.rows());
  for (int64_t row = 0; row < batch.rows(); ++row)
    batch.advantages[row] = row % 2 == 0 ? 1.0 : -1.0;
  double temperature = settings.update.temperature;
  if (settings.recompute_old_log_probs)
    batch.old_log_probs =
        log_prob_pass(model, batch, temperature, settings.old_log_prob_rows, false, ranks)
            .log_probs;
  if (settings.use_reference)
    batch.ref_log_probs =
        log_prob_pass(model, batch, temperature, settings.ref_log_prob_rows, false, ranks)
            .log_probs;
  return batch;
}

// Model, optimizer, scheduler and recorded batch of a grpo arm.
class GrpoBench {
 public:
  GrpoBench(const Config& config, const Ranks& ranks)
      : ranks_(ranks),
        device_(resolve_device(config, ranks)),
        setup_(set_up_model(config, device_)),
        recorder_(device_) {
    std::shared_ptr<const data::Task> task = set_up_task(config, setup_.tokenizer);
    settings_ = grpo_settings(config, task->stop_ids(), setup_.tokenizer->padding_id());
    batch_ = record_batch(*setup_.model, *task, *setup_.tokenizer, settings_, ranks_);
    optimizer_ = set_up_optimizer(config, *setup_.model, total_steps(config, task->train_size()),
                                  ranks_, /*measure_update_rms=*/false);
  }

  StepTimes step() {
    recorder_.take();  // forgets the step before
    RolloutBatch batch =
        batch_;  // update_actor keeps the log-probabilities of its first pass in its batch
    Trainee trainee = trainee_of(*setup_.model, optimizer_, ranks_);
    update_actor(trainee, batch, settings_.update, /*step=*/1, recorder_);
    const std::vector<double> slowest = ranks_.max(
        {recorder_.seconds("optimizer_step"), recorder_.seconds("update_actor")}, "times");
    return {.optimizer_step = slowest[0], .update = slowest[1]};
  }

 private:
  const Ranks& ranks_;
  c10::Device device_;
  ModelSetup setup_;
  GrpoSettings settings_;
  RolloutBatch batch_;
  OptimizerSetup optimizer_;
  PhaseRecorder recorder_;
};

TimedArm timed_grpo_arm(const std::string& name, const Config& config, const Ranks& ranks) {
  auto bench = std::make_shared<GrpoBench>(config, ranks);
  return {.name = name, .step = [bench] { return bench->step(); }};
}

TimedArm timed_sft_arm(const std::string& name, const Config& config, const Ranks& ranks) {
  auto trainer = std::make_shared<SftTrainer>(config, ranks, /*measure_update_rms=*/false);
  auto step = [trainer] {
    Metrics metrics = trainer->step();
    return StepTimes{.optimizer_step = metrics["timing_s/optimizer_step"],
                     .update = metrics["timing_s/update"]};
  };
  return {.name = name, .step = step};
}

}  // namespace

std::vector<ArmTimes> time_arms(const ComparePlan& plan, const Ranks& ranks) {
  std::vector<TimedArm> arms;
  for (const CompareArm& arm : plan.arms) {
    std::vector<std::string> overrides = arm_overrides(plan, arm, plan.seeds.front());
    overrides.push_back(fmt::format("trainer.threads={}", plan.threads));
    Config config = load_config(plan.kind, plan.base, overrides);
    set_threads(config, ranks);
    arms.push_back(plan.kind == ConfigKind::kGrpo ? timed_grpo_arm(arm.name, config, ranks)
                                                  : timed_sft_arm(arm.name, config, ranks));
  }
  Stopwatch watch;
  ProgressBar bar("timing", plan.timing_steps);
  return time_in_turns(arms, kWarmUp, plan.timing_steps,
                       [&](int64_t round) { bar.update(round + 1, watch.seconds()); });
}

}  // namespace muoncore::train
