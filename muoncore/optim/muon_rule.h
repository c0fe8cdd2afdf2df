// A group's MuonOptions with its words looked up and its numbers checked, for one step. For
// muon*.cpp alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "muoncore/muon/orthogonalize.h"
#include "muoncore/muon/scale_mode.h"
#include "muoncore/muon/second_moment.h"
#include "muoncore/muon/update_rule.h"
#include "muoncore/optim/muon.h"
#include "muoncore/optim/rms_match.h"

namespace muoncore::optim {

struct MuonRule {
  double lr = 0, momentum = 0, weight_decay = 0, extra_scale_factor = 1;
  bool nesterov = false, hyperball = false, align_update_rms = false;
  bool stochastic_rounding = false;
  uint64_t seed = 0;
  muon::MomentumKind momentum_kind = muon::MomentumKind::kEma;
  muon::WeightDecayMethod decay = muon::WeightDecayMethod::kNone;
  muon::OrthogonalizeOptions orthogonalize;
  muon::ScaleMode scale = muon::ScaleMode::kSpectral;
  muon::SecondMoment moment2 = muon::SecondMoment::kNone;
  double beta2 = 0, moment2_eps = 0;
  AdamWMatch match = AdamWMatch::kNone;
  ShadowOptions shadow;

  bool counts_steps() const { return match != AdamWMatch::kNone || stochastic_rounding; }
  // What a stepped parameter's state holds.
  std::vector<std::string> state_names() const;
};

// Throws for a value that Muon cannot work with, and for two that contradict each other.
MuonRule resolve_rule(const MuonOptions& options);

}  // namespace muoncore::optim
