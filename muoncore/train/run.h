// A whole training run in its folder: start-up report, steps, validation, metrics, saved models,
// gates.
#pragma once

#include <memory>

#include "muoncore/comm/world.h"
#include "muoncore/train/config.h"
#include "muoncore/train/trainer.h"

namespace muoncore::train {

// The trainer of config.kind() (grpo or sft), set up. Collective. Throws Error.
std::unique_ptr<Trainer> make_trainer(const Config& config, const Ranks& ranks);

// Runs `muoncore grpo` or `muoncore sft`. The folder is made before anything is loaded, so that a
// folder in the way costs no time; it stays empty (and may be used again) when the set-up fails,
// and gets config.yaml and resolved.json before the first step. Validates before the first step
// (trainer.val_before_train, logged as step 0), every trainer.test_freq steps and after the last;
// saves the model every trainer.save_freq steps and after the last, keeping as many as
// trainer.max_(actor_)ckpt_to_keep. A step's metrics are logged before the gates judge them. Throws
// Error, GateStop among them.
//
// On every rank of the world (of one or many), inside World::run. All ranks must have the same
// config, and those of one machine one folder. Rank 0 writes the folder and judges the gates; each
// of several ranks has a log of its own, logs/rank_<r>.log.
void run_training(const Config& config, comm::World& world);
void run_training(const Config& config);  // one process, whoever launched it

}  // namespace muoncore::train
