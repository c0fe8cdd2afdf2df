// Right-padded batches. Causal attention never looks right, so padding needs no attention mask.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "muoncore/data/sft_data.h"

namespace muoncore::data {

// B sequences, T the longest. On the CPU.
struct Batch {
  at::Tensor ids;        // [B, T] int64, right-padded
  at::Tensor loss_mask;  // [B, T] bool: token t is a target (its log-probability comes from the
                         // logits at t - 1); false at t = 0 and on padding
  at::Tensor lengths;    // [B] int64
  // sum of loss_mask: the denominator of the mean loss over all micro-batches
  int64_t target_tokens = 0;
};

// Throws when there is no example, an example is empty, or ids and mask differ in length.
Batch collate(const std::vector<SftExample>& examples, int64_t padding_id);

// The batch of examples [first, first + count) of `data`.
Batch sft_batch(const SftData& data, int64_t first, int64_t count, int64_t padding_id);

}  // namespace muoncore::data
