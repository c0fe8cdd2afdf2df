#include "muoncore/optim/param_scheduler.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "muoncore/core/check.h"
#include "muoncore/optim/chained.h"
#include "muoncore/optim/check_choice.h"

namespace muoncore::optim {
namespace {

// Half a cosine wave from 1 at ratio 0 to 0 at ratio 1.
double half_cosine(double ratio) { return 0.5 * (std::cos(std::numbers::pi * ratio) + 1.0); }

// Share of the way from min_lr to max_lr in WSD's last phase, ratio in [0, 1].
double wsd_share(const std::string& style, double ratio) {
  if (style == "linear") return 1.0 - ratio;
  if (style == "cosine") return half_cosine(ratio);
  if (style == "exponential") return 2.0 * std::pow(0.5, ratio) - 1.0;
  return 1.0 - std::sqrt(ratio);  // minus_sqrt
}

// Share of the way from min_lr to max_lr after the warm-up.
double decay_share(const SchedulerOptions& o, int64_t step) {
  if (o.lr_decay_style == "WSD") {
    const int64_t length = *o.lr_wsd_decay_steps, start = o.lr_decay_steps - length;
    if (step <= start) return 1.0;
    return wsd_share(o.lr_wsd_decay_style,
                     static_cast<double>(step - start) / static_cast<double>(length));
  }
  const double ratio = static_cast<double>(step - o.lr_warmup_steps) /
                       static_cast<double>(o.lr_decay_steps - o.lr_warmup_steps);
  return o.lr_decay_style == "linear" ? 1.0 - ratio : half_cosine(ratio);
}

void check_wsd(const SchedulerOptions& o, const std::string& prefix) {
  check_choice(prefix + "lr_wsd_decay_style", o.lr_wsd_decay_style,
               {"exponential", "linear", "cosine", "minus_sqrt"});
  if (o.lr_decay_style != "WSD") return;
  check(o.lr_wsd_decay_steps.has_value(),
        "{0}lr_decay_style: WSD needs {0}lr_wsd_decay_steps, the length of its last phase", prefix);
  const int64_t room = o.lr_decay_steps - o.lr_warmup_steps;
  check(
      *o.lr_wsd_decay_steps >= 1 && *o.lr_wsd_decay_steps <= room,
      "{0}lr_wsd_decay_steps: {1}: allowed are 1 to {2}, the steps between {0}lr_warmup_steps and "
      "{0}lr_decay_steps",
      prefix, *o.lr_wsd_decay_steps, room);
}

}  // namespace

void validate(const SchedulerOptions& o, const std::string& prefix) {
  check_choice(prefix + "lr_decay_style", o.lr_decay_style,
               {"constant", "linear", "cosine", "inverse-square-root", "WSD"});
  check_choice(prefix + "weight_decay_incr_style", o.wd_incr_style,
               {"constant", "linear", "cosine"});
  check(o.lr_warmup_init >= 0.0, "{}lr_warmup_init: {}: allowed are numbers from 0", prefix,
        o.lr_warmup_init);
  check(o.lr_warmup_steps >= 0, "{}lr_warmup_steps: {}: allowed are numbers from 0", prefix,
        o.lr_warmup_steps);
  check(o.lr_decay_steps >= 1, "{}lr_decay_steps: {}: allowed are numbers from 1", prefix,
        o.lr_decay_steps);
  check(o.lr_warmup_steps < o.lr_decay_steps,
        "{0}lr_warmup_steps: {1} is not below {0}lr_decay_steps: {2}: the warm-up must end before "
        "the "
        "decay does",
        prefix, o.lr_warmup_steps, o.lr_decay_steps);
  check_wsd(o, prefix);
  check(o.start_wd >= 0.0 && o.end_wd >= o.start_wd,
        "{0}start_weight_decay: {1}, {0}end_weight_decay: {2}: allowed are numbers from 0, the end "
        "not "
        "below the start",
        prefix, o.start_wd, o.end_wd);
  if (o.wd_incr_style == "constant")
    check(o.start_wd == o.end_wd,
          "{0}weight_decay_incr_style: constant contradicts {0}start_weight_decay: {1} and "
          "{0}end_weight_decay: {2}",
          prefix, o.start_wd, o.end_wd);
  else
    check(o.wd_incr_steps >= 1, "{}weight_decay_incr_style: {} needs at least one step, not {}",
          prefix, o.wd_incr_style, o.wd_incr_steps);
}

double lr_at(const SchedulerOptions& o, const GroupSchedule& group, int64_t step) {
  const double warmup = static_cast<double>(o.lr_warmup_steps);
  if (o.lr_warmup_steps > 0 && step <= o.lr_warmup_steps)
    return o.lr_warmup_init +
           (group.max_lr - o.lr_warmup_init) * static_cast<double>(step) / warmup;
  if (o.lr_decay_style == "constant") return group.max_lr;
  if (step > o.lr_decay_steps) return group.min_lr;
  if (o.lr_decay_style == "inverse-square-root") {
    const double from = std::sqrt(std::max(warmup, 1.0));
    const double now = std::sqrt(static_cast<double>(std::max<int64_t>(step, 1)));
    return std::max(group.min_lr, group.max_lr * from / now);
  }
  return group.min_lr + decay_share(o, step) * (group.max_lr - group.min_lr);
}

double weight_decay_at(const SchedulerOptions& o, const GroupSchedule& group, int64_t step) {
  const double start = group.start_wd.value_or(o.start_wd), end = group.end_wd.value_or(o.end_wd);
  double value = end;
  if (o.wd_incr_style != "constant" && step <= o.wd_incr_steps) {
    const double ratio = static_cast<double>(step) / static_cast<double>(o.wd_incr_steps);
    const double share = o.wd_incr_style == "linear" ? ratio : half_cosine(1.0 - ratio);
    value = start + share * (end - start);
  }
  return value * group.wd_mult;
}

OptimizerParamScheduler::OptimizerParamScheduler(ChainedOptimizer& optimizer,
                                                 SchedulerOptions options)
    : optimizer_(optimizer), options_(std::move(options)) {
  validate(options_);
  for (const auto& group : optimizer_.param_groups()) {
    const GroupSchedule& s = group.schedule;
    check(s.min_lr >= 0.0 && s.min_lr <= s.max_lr,
          "group {}: min_lr {} and lr {}: min_lr must lie between 0 and lr", group.name, s.min_lr,
          s.max_lr);
    check(options_.lr_warmup_steps == 0 || options_.lr_warmup_init <= s.max_lr,
          "group {}: lr_warmup_init {} is above lr {}", group.name, options_.lr_warmup_init,
          s.max_lr);
  }
  apply();
}

void OptimizerParamScheduler::apply() {
  for (auto& group : optimizer_.param_groups()) {
    group.set_lr(lr_at(options_, group.schedule, num_steps_));
    group.set_weight_decay(weight_decay_at(options_, group.schedule, num_steps_));
  }
}

void OptimizerParamScheduler::step(int64_t increment) { restore(num_steps_ + increment); }

void OptimizerParamScheduler::restore(int64_t num_steps) {
  check(num_steps >= 0, "the scheduler cannot be at step {}", num_steps);
  num_steps_ = num_steps;
  apply();
}

double OptimizerParamScheduler::lr() const { return optimizer_.param_groups().front().lr(); }

double OptimizerParamScheduler::weight_decay() const {
  return weight_decay_at(options_, {}, num_steps_);
}

}  // namespace muoncore::optim
