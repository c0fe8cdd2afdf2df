// Learning rate and weight decay as functions of the step, per parameter group. Everything is a
// pure function of (options, group, step): a resumed scheduler needs the step alone.
//
// Source of the formulas: Megatron-Core, optimizer_param_scheduler.py (OptimizerParamScheduler).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace muoncore::optim {

class ChainedOptimizer;

// What a parameter group has of its own.
struct GroupSchedule {
  double max_lr = 0.0;
  double min_lr = 0.0;
  double wd_mult = 1.0;  // the scheduled weight decay times this; 0 for biases and 1-D parameters
  std::optional<double> start_wd;  // none: the scheduler's
  std::optional<double> end_wd;
  bool operator==(const GroupSchedule&) const = default;
};

// Keys as in verl's and Megatron's config.
struct SchedulerOptions {
  double lr_warmup_init = 0.0;  // learning rate at step 0 of a warm-up
  int64_t lr_warmup_steps = 0;  // linear from lr_warmup_init to max_lr
  // from here on min_lr (but for "constant"); must exceed lr_warmup_steps
  int64_t lr_decay_steps = 1;
  std::string lr_decay_style = "constant";  // constant, linear, cosine, inverse-square-root, WSD
  std::string lr_wsd_decay_style = "exponential";  // exponential, linear, cosine, minus_sqrt
  std::optional<int64_t> lr_wsd_decay_steps;       // required by WSD: length of its last phase
  double start_wd = 0.0;
  double end_wd = 0.0;
  int64_t wd_incr_steps = 0;  // length of the way from start_wd to end_wd; unused by "constant"
  std::string wd_incr_style = "constant";  // constant (start_wd == end_wd), linear, cosine
  bool operator==(const SchedulerOptions&) const = default;
};

// Throws on an unknown style, a negative number, a warm-up not shorter than the decay, WSD without
// lr_wsd_decay_steps.
void validate(const SchedulerOptions& options, const std::string& prefix = "");

double lr_at(const SchedulerOptions& options, const GroupSchedule& group, int64_t step);
double weight_decay_at(const SchedulerOptions& options, const GroupSchedule& group, int64_t step);

// Drives the groups of one ChainedOptimizer, which must outlive it. Construction sets the values of
// step 0.
class OptimizerParamScheduler {
 public:
  OptimizerParamScheduler(ChainedOptimizer& optimizer, SchedulerOptions options);

  void step(
      int64_t increment = 1);  // advances and sets learning rate and weight decay of every group
  int64_t num_steps() const { return num_steps_; }
  void restore(int64_t num_steps);  // of a checkpoint; sets every group as if it had stepped so far

  // Learning rate now set in the first group (Muon's in a Muon run), and the decay before
  // multipliers.
  double lr() const;
  double weight_decay() const;
  const SchedulerOptions& options() const { return options_; }

 private:
  void apply();
  ChainedOptimizer& optimizer_;
  SchedulerOptions options_;
  int64_t num_steps_ = 0;
};

}  // namespace muoncore::optim
