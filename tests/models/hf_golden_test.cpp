// Against transformers. tests/python/test_models.py writes one folder per case: model/ (a
// checkpoint), case.safetensors (ids, and transformers' logits in fp32). Each model is also saved
// again as saved/, for transformers to read.
#include <ATen/ops/cat.h>
#include <gmock/gmock.h>

#include <cstdlib>

#include "muoncore/models/hf.h"
#include "muoncore/models/tensor_io.h"

namespace muoncore::models {
namespace {

namespace fs = std::filesystem;

at::Tensor named(const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                 const std::string& name) {
  for (const auto& [n, t] : tensors)
    if (n == name) return t;
  throw std::runtime_error("no tensor " + name);
}

// Prompt of three tokens, then one at a time.
at::Tensor logits_through_cache(CausalLM& model, const at::Tensor& ids) {
  KvCache cache(model.config(), ids.size(0), ids.size(1));
  std::vector<at::Tensor> parts{model.forward_hidden(ids.narrow(1, 0, 3), &cache)};
  for (int64_t t = 3; t < ids.size(1); ++t)
    parts.push_back(model.forward_hidden(ids.narrow(1, t, 1), &cache));
  return model.logits(at::cat(parts, 1));
}

TEST(HfGolden, LogitsEqualTransformers) {
  const char* folder = std::getenv("MUONCORE_HF_CASES");
  if (!folder) GTEST_SKIP() << "MUONCORE_HF_CASES is not set (tests/python/test_models.py sets it)";
  c10::NoGradGuard no_grad;
  int cases = 0;
  for (const auto& item : fs::directory_iterator(folder)) {
    SCOPED_TRACE(item.path().filename().string());
    auto tensors = load_tensors(item.path() / "case.safetensors");
    at::Tensor ids = named(tensors, "ids"), expected = named(tensors, "logits");
    LoadedModel loaded = load_hf(item.path() / "model");
    at::Tensor logits = loaded.model->logits(loaded.model->forward_hidden(ids));
    EXPECT_LT((logits - expected).abs().max().item<double>(), 1e-4);
    EXPECT_LT((logits_through_cache(*loaded.model, ids) - logits).abs().max().item<double>(), 1e-4);
    EXPECT_GT(expected.std().item<double>(), 0.1);  // a comparison of zeros shows nothing
    save_hf(*loaded.model, item.path() / "saved");
    ++cases;
  }
  EXPECT_GT(cases, 0);
}

}  // namespace
}  // namespace muoncore::models
