// Pieces of optimizer state as bytes, for ranks to exchange. The bytes are for the same program on
// the same machine kind at the same time: they are never written to a file.
#pragma once

#include <vector>

#include "muoncore/optim/chained.h"

namespace muoncore::optim {

std::vector<char> pack_state(const std::vector<ChainedOptimizer::StateEntry>& entries);
// Throws Error when the bytes are not what pack_state makes.
std::vector<ChainedOptimizer::StateEntry> unpack_state(const std::vector<char>& bytes);

}  // namespace muoncore::optim
