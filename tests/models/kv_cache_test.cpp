// Generation through the cache against whole forwards: same logits, however rows come, grow, repeat
// and go.
#include "muoncore/models/kv_cache.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "muoncore/core/check.h"
#include "tests/models/toy_models.h"

namespace muoncore::models {
namespace {

using testing::ElementsAre;

double greatest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// Logits of the last token of one sequence, without a cache.
at::Tensor last_logits(CausalLM& model, const at::Tensor& sequence) {
  return model.logits(model.forward_hidden(sequence.view({1, -1}))).select(1, -1)[0];
}

class KvCacheTest : public testing::TestWithParam<std::string> {
 protected:
  KvCacheTest() : config_(toy_config(GetParam())), model_(toy_model(config_)) {}

  // `sequences` grow by one token each, through the cache; each row's logits are held against a
  // whole forward.
  void decode_and_compare(std::vector<at::Tensor>& sequences, KvCache& cache, int64_t seed) {
    at::Tensor next = toy_ids(config_, static_cast<int64_t>(sequences.size()), 1, seed);
    at::Tensor logits = model_->logits(model_->forward_hidden(next, &cache)).select(1, 0);
    for (size_t i = 0; i < sequences.size(); ++i) {
      auto row = static_cast<int64_t>(i);
      sequences[i] = at::cat({sequences[i], next[row]});
      EXPECT_EQ(cache.lengths()[i], sequences[i].size(0));
      EXPECT_LT(greatest_difference(logits[row], last_logits(*model_, sequences[i])), 1e-5)
          << "row " << i;
    }
  }

  c10::NoGradGuard no_grad_;
  ModelConfig config_;
  std::shared_ptr<CausalLM> model_;
};

TEST_P(KvCacheTest, EvenRowsDecodeAsAWholeForward) {
  at::Tensor prompts = toy_ids(config_, 3, 5);
  KvCache cache(config_, 3, 12);
  at::Tensor hidden = model_->forward_hidden(prompts, &cache);
  EXPECT_LT(greatest_difference(hidden, model_->forward_hidden(prompts)), 1e-5);
  std::vector<at::Tensor> sequences{prompts[0], prompts[1], prompts[2]};
  for (int64_t step = 0; step < 7; ++step) decode_and_compare(sequences, cache, step);
  EXPECT_THAT(cache.lengths(), ElementsAre(12, 12, 12));
  EXPECT_THROW(model_->forward_hidden(toy_ids(config_, 3, 1), &cache), Error);  // full
}

TEST_P(KvCacheTest, RaggedRowsRepeatedAndDropped) {
  at::Tensor prompts = toy_ids(config_, 3, 8);
  std::vector<int64_t> lengths{8, 1, 5};
  for (int64_t i = 0; i < 3; ++i)
    prompts[i].narrow(0, lengths[i], 8 - lengths[i]).fill_(36);  // padding
  KvCache cache(config_, 3, 20);
  at::Tensor hidden = model_->forward_hidden(prompts, &cache);
  cache.set_lengths(lengths);
  std::vector<at::Tensor> sequences;
  for (int64_t i = 0; i < 3; ++i) {
    at::Tensor prompt = prompts[i].narrow(0, 0, lengths[i]);
    EXPECT_LT(greatest_difference(model_->logits(hidden[i][lengths[i] - 1]),
                                  last_logits(*model_, prompt)),
              1e-5);
    for (int copy = 0; copy < 2; ++copy) sequences.push_back(prompt.clone());
  }
  cache.repeat_interleave(2);
  EXPECT_THAT(cache.lengths(), ElementsAre(8, 8, 1, 1, 5, 5));
  for (int64_t step = 0; step < 4; ++step) decode_and_compare(sequences, cache, step);
  cache.select({5, 2, 3});
  sequences = {sequences[5], sequences[2], sequences[3]};
  for (int64_t step = 4; step < 8; ++step) decode_and_compare(sequences, cache, step);
  cache.select({1});  // one row alone is even again
  sequences = {sequences[1]};
  for (int64_t step = 8; step < 10; ++step) decode_and_compare(sequences, cache, step);
}

TEST_P(KvCacheTest, SeveralTokensBehindFilledRows) {
  at::Tensor ids = toy_ids(config_, 2, 9);
  at::Tensor whole = model_->forward_hidden(ids);
  KvCache even(config_, 2, 9);
  model_->forward_hidden(ids.narrow(1, 0, 4), &even);
  EXPECT_LT(greatest_difference(model_->forward_hidden(ids.narrow(1, 4, 5), &even),
                                whole.narrow(1, 4, 5)),
            1e-5);

  KvCache ragged(config_, 2, 9);
  model_->forward_hidden(ids.narrow(1, 0, 4), &ragged);
  ragged.set_lengths({4, 2});
  at::Tensor more = at::stack({ids[0].narrow(0, 4, 3), ids[1].narrow(0, 2, 3)});
  at::Tensor hidden = model_->forward_hidden(more, &ragged);
  EXPECT_LT(greatest_difference(hidden[0], whole[0].narrow(0, 4, 3)), 1e-5);
  EXPECT_LT(greatest_difference(hidden[1], whole[1].narrow(0, 2, 3)), 1e-5);
  EXPECT_THAT(ragged.lengths(), ElementsAre(7, 5));
}

INSTANTIATE_TEST_SUITE_P(Families, KvCacheTest, testing::Values("llama", "qwen2", "qwen3"));

TEST(KvCache, StaleContentIsNeverSeen) {
  ModelConfig config = toy_config();
  auto model = toy_model(config);
  c10::NoGradGuard no_grad;
  at::Tensor ids = toy_ids(config, 2, 6);
  KvCache clean(config, 2, 10), dirty(config, 2, 10);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    dirty.keys(layer, 10).fill_(1e4);
    dirty.values(layer, 10).fill_(1e4);
  }
  for (KvCache* cache : {&clean, &dirty}) {
    model->forward_hidden(ids, cache);
    cache->set_lengths({3, 6});
  }
  at::Tensor next = toy_ids(config, 2, 1, 9);
  EXPECT_TRUE(model->forward_hidden(next, &clean).equal(model->forward_hidden(next, &dirty)));
}

TEST(KvCache, Bf16DecodesNearItsWholeForward) {
  ModelConfig config = toy_config();
  auto model = toy_model(config, 1, at::kBFloat16);
  c10::NoGradGuard no_grad;
  at::Tensor ids = toy_ids(config, 2, 9);
  at::Tensor whole = model->forward_hidden(ids).to(at::kFloat);
  KvCache cache(config, 2, 9, at::kBFloat16);
  model->forward_hidden(ids.narrow(1, 0, 8), &cache);
  at::Tensor last = model->forward_hidden(ids.narrow(1, 8, 1), &cache).to(at::kFloat);
  EXPECT_LT(greatest_difference(last, whole.narrow(1, 8, 1)), 0.05);
}

TEST(KvCache, CountsItsBytesAndRefusesMisuse) {
  ModelConfig config = toy_config();
  KvCache cache(config, 4, 10);
  EXPECT_EQ(cache.bytes(), 2 * 3 * 4 * 2 * 10 * 8 * 4);
  EXPECT_EQ(KvCache(config, 4, 10, at::kBFloat16).bytes(), cache.bytes() / 2);
  CausalLM model(config);
  model.init_weights(1);
  EXPECT_THROW(model.forward_hidden(toy_ids(config, 3, 1), &cache), Error);
  EXPECT_THROW(model.forward_hidden(toy_ids(config, 4, 11), &cache), Error);
  EXPECT_THROW(cache.set_lengths({1, 0, 0, 0}), Error);
  EXPECT_THROW(cache.set_lengths({0, 0, 0}), Error);
  EXPECT_THROW(cache.select({4}), Error);
  EXPECT_THROW(cache.select({}), Error);
  EXPECT_THROW(cache.repeat_interleave(0), Error);
  EXPECT_THROW(KvCache(config, 0, 4), Error);
  EXPECT_FALSE(model.forward_hidden(toy_ids(config, 4, 1), &cache).requires_grad());
}

}  // namespace
}  // namespace muoncore::models
