// The rotary part of config.json. Key names: transformers' modeling_rope_utils, old (rope_theta,
// rope_scaling) and new (rope_parameters).
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "muoncore/models/config.h"
#include "muoncore/models/json_fields.h"

namespace muoncore::models {

// Throws Error on another rope_type, a partial rotary factor, parameters per layer type, or a
// missing key.
void read_rope(const JsonFields& fields, ModelConfig& config);
void write_rope(const ModelConfig& config, nlohmann::json& out);
void validate_rope(const ModelConfig& config, std::string_view label);

}  // namespace muoncore::models
