// The same mathematics once more, naively, in fp64 and plain loops: what the tests and `muoncore
// parity` judge against. Shares no code with the fast forms but the coefficient tables.
#pragma once

#include <ATen/core/Tensor.h>

#include "muoncore/muon/newton_schulz.h"
#include "muoncore/muon/post_transform.h"
#include "muoncore/muon/pre_transform.h"

namespace muoncore::muon::reference {

// x: [rows, cols] or [batch, rows, cols], any dtype. Returns fp64 of x's shape. Honours every
// option but the precision.
at::Tensor newton_schulz(const at::Tensor& x, const NewtonSchulzOptions& options);

// As apply_pre_transform and apply_post_transform_, fp64 of x's shape.
at::Tensor pre_transform(const at::Tensor& x, PreTransform transform);
at::Tensor post_transform(const at::Tensor& x, PostTransform transform);

// The exact polar factor U V^T of x = U S V^T, over the singular values above rcond times the
// largest. fp64.
at::Tensor polar_factor(const at::Tensor& x, double rcond = 1e-12);

}  // namespace muoncore::muon::reference
