// Folders: what is saved is loaded, and every fault of a folder is one Error that names it.
#include "muoncore/models/hf.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <fstream>

#include "muoncore/core/check.h"
#include "muoncore/models/tensor_io.h"
#include "tests/io/safetensors_fixture.h"
#include "tests/models/toy_models.h"
#include "tests/support/error_of.h"

namespace muoncore::models {
namespace {

using io::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;

class HfFolder : public testing::Test {
 protected:
  void SetUp() override {
    config_ = toy_config();
    config_.num_hidden_layers = 1;
    model_ = toy_model(config_);
    folder_ = temporary_.path() / "m";
    save_hf(*model_, folder_);
    tensors_ = load_tensors(weights());
  }
  std::filesystem::path weights() const { return folder_ / "model.safetensors"; }
  std::string load_error() {
    return error_of([&] { load_hf(folder_); });
  }
  at::Tensor& tensor(const std::string& name) {
    for (auto& [n, t] : tensors_)
      if (n == name) return t;
    throw std::runtime_error(name);
  }

  TemporaryFolder temporary_;
  std::filesystem::path folder_;
  ModelConfig config_;
  std::shared_ptr<CausalLM> model_;
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
};

void expect_equal(const CausalLM& a, const CausalLM& b) {
  auto pa = a.named_params(), pb = b.named_params();
  ASSERT_EQ(pa.size(), pb.size());
  for (size_t i = 0; i < pa.size(); ++i)
    EXPECT_TRUE(pa[i].second.equal(pb[i].second)) << pa[i].first;
}

TEST_F(HfFolder, RoundTripIsExact) {
  LoadedModel loaded = load_hf(folder_);
  EXPECT_EQ(loaded.config, config_);
  expect_equal(*loaded.model, *model_);
  EXPECT_TRUE(loaded.model->named_params()[0].second.requires_grad());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(temporary_.path()), {}),
            1);  // no temporary left
}

TEST_F(HfFolder, Bf16IsSavedAsBf16AndReadAsEither) {
  auto narrow = toy_model(config_, 1, at::kBFloat16);
  save_hf(*narrow, temporary_.path() / "b");
  LoadedModel same = load_hf(temporary_.path() / "b", at::kBFloat16),
              wide = load_hf(temporary_.path() / "b");
  EXPECT_EQ(same.config.dtype, "bfloat16");
  expect_equal(*same.model, *narrow);
  EXPECT_TRUE(
      wide.model->named_params()[3].second.equal(narrow->named_params()[3].second.to(at::kFloat)));
}

TEST_F(HfFolder, ExtraFilesComeAlongAndAFullFolderIsRefused) {
  std::ofstream(temporary_.path() / "tokenizer.json") << "{}";
  auto target = temporary_.path() / "deep" / "er" / "";
  save_hf(*model_, target, {temporary_.path() / "tokenizer.json"});
  EXPECT_EQ(io::read_whole(target / "tokenizer.json"), "{}");
  EXPECT_THAT(error_of([&] { save_hf(*model_, target); }),
              HasSubstr("it exists and is not an empty folder"));
  auto empty = temporary_.path() / "empty";
  std::filesystem::create_directory(empty);
  EXPECT_THAT(error_of([&] { save_hf(*model_, empty, {temporary_.path() / "no.json"}); }),
              HasSubstr("cannot read"));
  EXPECT_TRUE(std::filesystem::is_empty(empty));
  save_hf(*model_, empty);
  expect_equal(*load_hf(empty).model, *model_);
}

TEST_F(HfFolder, MissingUnexpectedMisshapenAndMistypedTensors) {
  auto all = tensors_;
  tensors_.erase(tensors_.begin() + 2);
  save_tensors(weights(), tensors_);
  EXPECT_THAT(load_error(), HasSubstr(all[2].first + "\" is missing"));
  tensors_ = all;
  tensors_.emplace_back("model.layers.1.mlp.up_proj.weight", at::zeros({2}));
  save_tensors(weights(), tensors_);
  EXPECT_THAT(load_error(),
              AllOf(HasSubstr("tensor \"model.layers.1.mlp.up_proj.weight\" is not part of"),
                    HasSubstr("model.safetensors")));
  tensors_ = all;
  tensor("model.layers.0.self_attn.q_proj.weight") = at::zeros({24, 48});
  save_tensors(weights(), tensors_);
  EXPECT_THAT(load_error(), HasSubstr("\"model.layers.0.self_attn.q_proj.weight\" has shape [24, "
                                      "48], the config asks for [48, 24]"));
  tensors_ = all;
  tensor("model.norm.weight") = at::zeros({24}, at::kInt);
  save_tensors(weights(), tensors_);
  EXPECT_THAT(load_error(), HasSubstr("\"model.norm.weight\" is I32; weights must be"));
}

TEST_F(HfFolder, MissingAndTruncatedFiles) {
  EXPECT_THAT(error_of([&] { load_hf(temporary_.path() / "none"); }), HasSubstr("no such folder"));
  EXPECT_THAT(error_of([&] { load_hf(temporary_.path()); }), HasSubstr("no config.json"));
  std::filesystem::resize_file(weights(), std::filesystem::file_size(weights()) - 1);
  EXPECT_THAT(load_error(), AllOf(HasSubstr("model.safetensors"), HasSubstr("truncated?")));
  std::filesystem::remove(weights());
  EXPECT_THAT(load_error(), HasSubstr("no weights"));
  std::ofstream(folder_ / "config.json") << "{\"model_type\":";
  EXPECT_THAT(load_error(), HasSubstr("config.json: not valid JSON"));
}

TEST_F(HfFolder, ATiedHeadMayBePresentIfItIsTheEmbedding) {
  config_.tie_word_embeddings = true;
  auto tied = toy_model(config_);
  save_hf(*tied, temporary_.path() / "t");
  auto file = temporary_.path() / "t" / "model.safetensors";
  auto tensors = load_tensors(file);
  for (const auto& [name, t] : tensors) EXPECT_NE(name, "lm_head.weight");
  tensors.emplace_back("lm_head.weight", tied->named_params()[0].second.detach().clone());
  save_tensors(file, tensors);
  expect_equal(*load_hf(temporary_.path() / "t").model, *tied);
  tensors.back().second[0][0] += 1;
  save_tensors(file, tensors);
  EXPECT_THAT(error_of([&] { load_hf(temporary_.path() / "t"); }),
              HasSubstr("lm_head.weight differs"));
}

class HfShards : public HfFolder {
 protected:
  void SetUp() override {
    HfFolder::SetUp();
    std::filesystem::remove(weights());
    std::vector<std::pair<std::string, at::Tensor>> first(tensors_.begin(), tensors_.begin() + 5);
    std::vector<std::pair<std::string, at::Tensor>> second(tensors_.begin() + 5, tensors_.end());
    save_tensors(folder_ / "model-00001-of-00002.safetensors", first);
    save_tensors(folder_ / "model-00002-of-00002.safetensors", second);
    int64_t total = 0;
    for (const auto& [name, t] : first)
      map_[name] = "model-00001-of-00002.safetensors", total += t.nbytes();
    for (const auto& [name, t] : second)
      map_[name] = "model-00002-of-00002.safetensors", total += t.nbytes();
    write_index(total);
  }
  void write_index(int64_t total) {
    total_ = total;
    nlohmann::json index{{"metadata", {{"total_size", total}}}, {"weight_map", map_}};
    std::ofstream(folder_ / "model.safetensors.index.json") << index;
  }
  nlohmann::json map_;
  int64_t total_ = 0;
};

TEST_F(HfShards, AreReadAsOne) { expect_equal(*load_hf(folder_).model, *model_); }

TEST_F(HfShards, MustBeWhatTheIndexSays) {
  write_index(total_ + 4);
  EXPECT_THAT(load_error(), HasSubstr("total_size is"));
  write_index(total_ - 4);
  std::string name = tensors_[7].first;
  map_[name] = "model-00001-of-00002.safetensors";
  write_index(total_);
  EXPECT_THAT(load_error(), HasSubstr(name + "\" is not in model-00001-of-00002.safetensors"));
  map_.erase(name);
  write_index(total_);
  EXPECT_THAT(load_error(),
              HasSubstr(name + "\" of model-00002-of-00002.safetensors is not in the index"));
  map_[name] = "../secret.safetensors";
  write_index(total_);
  EXPECT_THAT(load_error(), HasSubstr("not to a file name"));
  map_[name] = "model-00003-of-00002.safetensors";
  write_index(total_);
  EXPECT_THAT(load_error(), HasSubstr("shard model-00003-of-00002.safetensors is missing"));
  save_tensors(weights(), tensors_);
  EXPECT_THAT(load_error(), HasSubstr("both model.safetensors and"));
}

TEST(TensorIo, EveryTypeSurvives) {
  TemporaryFolder folder;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (auto type : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf,
                    at::kBFloat16, at::kFloat, at::kDouble, at::kComplexFloat, at::kUInt16,
                    at::kUInt32, at::kUInt64, at::kFloat8_e5m2, at::kFloat8_e4m3fn})
    tensors.emplace_back(c10::toString(type), at::arange(6, at::kFloat).view({2, 3}).to(type));
  tensors.emplace_back("strided", at::arange(6, at::kFloat).view({2, 3}).t());
  tensors.emplace_back("scalar", at::zeros({}));
  tensors.emplace_back("empty", at::zeros({0, 3}));
  save_tensors(folder.path() / "t", tensors);
  auto loaded = load_tensors(folder.path() / "t");
  ASSERT_EQ(loaded.size(), tensors.size());
  for (const auto& [name, tensor] : loaded) {
    auto original = std::find_if(tensors.begin(), tensors.end(), [&](auto& t) {
                      return t.first == name;
                    })->second;
    EXPECT_EQ(tensor.scalar_type(), original.scalar_type()) << name;
    EXPECT_TRUE(tensor.to(at::kComplexDouble).equal(original.to(at::kComplexDouble))) << name;
  }
}

}  // namespace
}  // namespace muoncore::models
