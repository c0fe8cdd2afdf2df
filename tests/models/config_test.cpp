// config.json: old and new spellings, defaults, round trips, and every refusal by name.
#include "muoncore/models/config.h"

#include <gmock/gmock.h>

#include "muoncore/core/check.h"
#include "muoncore/models/rope.h"
#include "tests/models/toy_models.h"

namespace muoncore::models {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

json smollm2() {  // the keys of HuggingFaceTB/SmolLM2-135M-Instruct
  return json::parse(
      R"({"architectures":["LlamaForCausalLM"],"attention_bias":false,"attention_dropout":0.0,
    "bos_token_id":1,"eos_token_id":2,"hidden_act":"silu","hidden_size":576,"initializer_range":0.041666666666666664,
    "intermediate_size":1536,"is_llama_config":true,"max_position_embeddings":8192,"mlp_bias":false,
    "model_type":"llama","num_attention_heads":9,"num_hidden_layers":30,"num_key_value_heads":3,"pad_token_id":2,
    "pretraining_tp":1,"rms_norm_eps":1e-05,"rope_interleaved":false,"rope_scaling":null,"rope_theta":100000,
    "tie_word_embeddings":true,"torch_dtype":"bfloat16","use_cache":true,"vocab_size":49152})");
}

std::string error_of(const json& object) {
  try {
    config_from_json(object, "m/config.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

std::string error_with(const char* key, const json& value) {
  json object = smollm2();
  object[key] = value;
  return error_of(object);
}

std::string error_without(const char* key) {
  json object = smollm2();
  object.erase(key);
  return error_of(object);
}

TEST(ModelConfig, ReadsSmolLm2) {
  ModelConfig c = config_from_json(smollm2(), "x");
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.rope_theta, 100000);
  EXPECT_EQ(c.dtype, "bfloat16");
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_FALSE(c.qkv_bias || c.output_bias || c.mlp_bias || c.qk_norm);
  EXPECT_THAT(c.eos_token_ids, ElementsAre(2));
  EXPECT_EQ(c.pad_token_id, 2);
  EXPECT_EQ(c.parameter_count(), 134515008);  // reference/rl.md 1.4
}

TEST(ModelConfig, ReadsBothSpellings) {
  json object = smollm2();
  object.erase("rope_scaling");
  object.erase("rope_theta");
  object.erase("torch_dtype");
  object["dtype"] = "bfloat16";
  object["rope_parameters"] = {{"rope_theta", 100000}, {"rope_type", "default"}};
  EXPECT_EQ(config_from_json(object, "x"), config_from_json(smollm2(), "x"));
  object["torch_dtype"] = "torch.float16";
  object.erase("dtype");
  EXPECT_EQ(config_from_json(object, "x").dtype, "float16");
}

TEST(ModelConfig, FillsWhatIsMissing) {
  json object = smollm2();
  for (const char* key :
       {"num_key_value_heads", "rope_theta", "rms_norm_eps", "max_position_embeddings",
        "torch_dtype", "tie_word_embeddings", "hidden_act", "eos_token_id", "initializer_range"})
    object.erase(key);
  object["bos_token_id"] = nullptr;
  ModelConfig c = config_from_json(object, "x");
  EXPECT_EQ(c.num_key_value_heads, 9);
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_EQ(c.rms_norm_eps, 1e-6);
  EXPECT_EQ(c.max_position_embeddings, 2048);
  EXPECT_EQ(c.dtype, "float32");
  EXPECT_FALSE(c.tie_word_embeddings || c.bos_token_id);
  EXPECT_TRUE(c.eos_token_ids.empty());
  object["model_type"] = "qwen3";  // whose heads do not follow from the hidden size
  EXPECT_EQ(config_from_json(object, "x").head_dim, 128);
  EXPECT_TRUE(config_from_json(object, "x").qk_norm);
  object["eos_token_id"] = {2, 7};
  EXPECT_THAT(config_from_json(object, "x").eos_token_ids, ElementsAre(2, 7));
}

TEST(ModelConfig, KnowsEachFamilysBiases) {
  json object = smollm2();
  object["attention_bias"] = true;
  ModelConfig llama = config_from_json(object, "x");
  EXPECT_TRUE(llama.qkv_bias && llama.output_bias);
  object["model_type"] = "qwen2";
  object["attention_bias"] = false;
  ModelConfig qwen2 = config_from_json(object, "x");
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.output_bias);
}

TEST(ModelConfig, RefusesByName) {
  EXPECT_THAT(error_with("model_type", "qwen3_moe"),
              AllOf(HasSubstr("m/config.json: model_type \"qwen3_moe\" is not supported"),
                    HasSubstr("llama, qwen2, qwen3")));
  EXPECT_THAT(error_without("model_type"), HasSubstr("model_type is missing"));
  EXPECT_THAT(error_without("hidden_size"), HasSubstr("m/config.json: hidden_size is missing"));
  EXPECT_THAT(error_with("hidden_size", "576"),
              HasSubstr("hidden_size must be a whole number, found \"576\""));
  EXPECT_THAT(error_with("hidden_size", 576.5),
              HasSubstr("hidden_size must be a whole number, found 576.5"));
  EXPECT_THAT(error_with("hidden_size", 0), HasSubstr("hidden_size must be between 1 and"));
  EXPECT_THAT(error_with("vocab_size", -5), HasSubstr("vocab_size must be between 1 and"));
  EXPECT_THAT(error_with("hidden_size", uint64_t{1} << 63), HasSubstr("must be a whole number"));
  EXPECT_THAT(error_with("num_attention_heads", 0),
              HasSubstr("num_attention_heads must be at least 1"));
  EXPECT_THAT(error_with("num_attention_heads", 7),
              HasSubstr("hidden_size 576 is not a multiple of num_attention_heads 7"));
  EXPECT_THAT(error_with("num_key_value_heads", 2),
              HasSubstr("9 is not a multiple of num_key_value_heads 2"));
  EXPECT_THAT(error_with("head_dim", 63), HasSubstr("head_dim 63 must be even"));
  EXPECT_THAT(error_with("rms_norm_eps", 0), HasSubstr("rms_norm_eps"));
  EXPECT_THAT(error_with("hidden_act", "gelu"), HasSubstr("hidden_act \"gelu\" is not supported"));
  EXPECT_THAT(error_with("attention_bias", "false"),
              HasSubstr("attention_bias must be true or false, found \"false\""));
  EXPECT_THAT(error_with("use_sliding_window", true),
              HasSubstr("use_sliding_window true is not supported"));
  EXPECT_THAT(error_with("layer_types", {"full_attention", "sliding_attention"}),
              HasSubstr("sliding_attention"));
  EXPECT_THAT(error_with("quantization_config", {{"quant_method", "fp8"}}),
              HasSubstr("quantized weights"));
  EXPECT_THAT(error_with("rope_interleaved", true), HasSubstr("rope_interleaved"));
  EXPECT_THAT(error_with("attention_dropout", 0.1),
              HasSubstr("attention_dropout 0.1 is not supported"));
  EXPECT_THAT(error_with("eos_token_id", "2"),
              HasSubstr("eos_token_id must be a whole number or a list"));
  EXPECT_THAT(error_of(json::array()), HasSubstr("must be a JSON object, found array"));
}

TEST(ModelConfig, RefusesRopeItDoesNotKnow) {
  EXPECT_THAT(error_with("rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}),
              HasSubstr("rope_scaling: rope_type \"dynamic\" is not supported; supported: default, "
                        "linear, llama3, yarn"));
  EXPECT_THAT(error_with("rope_scaling", {{"rope_type", "longrope"}}), HasSubstr("\"longrope\""));
  EXPECT_THAT(error_with("rope_scaling", {{"rope_type", "linear"}}),
              HasSubstr("rope_scaling: factor is missing"));
  EXPECT_THAT(error_with("rope_scaling", {{"rope_type", "linear"}, {"factor", 0.5}}),
              HasSubstr("factor must be at least 1"));
  EXPECT_THAT(error_with("rope_scaling", {{"rope_type", "llama3"},
                                          {"factor", 8.0},
                                          {"low_freq_factor", 4.0},
                                          {"high_freq_factor", 4.0}}),
              HasSubstr("0 < low_freq_factor < high_freq_factor, found 4 and 4"));
  EXPECT_THAT(error_with("rope_parameters", {{"full_attention", {{"rope_type", "default"}}}}),
              HasSubstr("per layer type"));
  EXPECT_THAT(error_with("partial_rotary_factor", 0.5),
              HasSubstr("partial_rotary_factor 0.5 is not supported"));
  EXPECT_THAT(error_with("rope_theta", 0), HasSubstr("rope_theta must be above 1"));
}

TEST(ModelConfig, RefusesTwoSpellingsOfRopeThatDiffer) {
  json object = smollm2();
  object["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2.0}};
  object["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 100000.0}};
  EXPECT_THAT(error_of(object), HasSubstr("rope_parameters and rope_scaling differ"));
  object["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 100000.0}};
  EXPECT_EQ(config_from_json(object, "x").rope_scaling.factor, 2.0);
}

TEST(ModelConfig, SurvivesItsOwnJson) {
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    ModelConfig c = toy_config(type);
    c.eos_token_ids = {3, 4};
    c.bos_token_id = 1;
    c.dtype = "bfloat16";
    EXPECT_EQ(config_from_json(config_to_json(c), "x"), c) << type;
    c.rope_scaling = {.type = RopeType::kYarn,
                      .factor = 4,
                      .original_max_position_embeddings = 32,
                      .attention_factor = 1.5,
                      .truncate = false};
    EXPECT_EQ(config_from_json(config_to_json(c), "x"), c) << type;
  }
  ModelConfig c = toy_config("llama");
  c.qkv_bias = c.output_bias = c.mlp_bias = true;
  c.rope_scaling = {.type = RopeType::kLlama3,
                    .factor = 8,
                    .high_freq_factor = 5,
                    .original_max_position_embeddings = 16};
  EXPECT_EQ(config_from_json(config_to_json(c), "x"), c);
}

TEST(ModelConfig, RefusesValuesThatAreNoModelOfTheirType) {
  ModelConfig c = toy_config("llama");
  c.qk_norm = true;
  EXPECT_THROW(CausalLM{c}, Error);
  c = toy_config("qwen2");
  c.qkv_bias = false;
  EXPECT_THROW(CausalLM{c}, Error);
  c = toy_config("qwen3");
  c.mlp_bias = true;
  EXPECT_THROW(CausalLM{c}, Error);
}

TEST(Rope, FrequenciesFollowTheFormulas) {
  ModelConfig c = toy_config();
  c.head_dim = 4;
  c.rope_theta = 100;
  EXPECT_THAT(rope_frequencies(c).inverse, ElementsAre(1.0, static_cast<float>(0.1)));
  c.rope_scaling = {.type = RopeType::kLinear, .factor = 4};
  EXPECT_THAT(rope_frequencies(c).inverse, ElementsAre(0.25, static_cast<float>(0.025)));
  // Waves of 6.28 and 62.8 in an original length of 64 with bounds 64/4 and 64/2: the short is
  // kept, the long stretched.
  c.rope_scaling = {.type = RopeType::kLlama3,
                    .factor = 4,
                    .low_freq_factor = 2,
                    .original_max_position_embeddings = 64};
  EXPECT_THAT(rope_frequencies(c).inverse, ElementsAre(1.0, static_cast<float>(0.025)));
  c.rope_scaling.low_freq_factor = 0.5;  // now the long one (62.8 of 16 .. 128) is blended
  double blend = (64 / (2 * M_PI / 0.1) - 0.5) / 3.5;
  EXPECT_NEAR(rope_frequencies(c).inverse[1], (1 - blend) * 0.025 + blend * 0.1, 1e-8);
}

}  // namespace
}  // namespace muoncore::models
