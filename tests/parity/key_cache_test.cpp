// A text is continued with a cache of keys and values as without one: every family of Hugging Face with a golden model, on
// one rank and on tensor ranks, in f64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "models/folders/open_model.h"
#include "nn/context/attention_core.h"
#include "parity/hugging_face_golden.h"
#include "train/sampling/continuation.h"
#include "train/start/checkpoint_model.h"

namespace trifold::test {
namespace {

using Logits = std::vector<double>;

constexpr int64_t kWindow = 12;
constexpr size_t kTokens = 16;  // more than the window

std::vector<int32_t> random_tokens(int64_t vocab) {
  std::vector<int32_t> tokens;
  const PhiloxKey key = philox_key(3, "tokens");
  for (size_t i = 0; i < kTokens; ++i)
    tokens.push_back(static_cast<int32_t>(philox_word(key, i) % static_cast<uint64_t>(vocab)));
  return tokens;
}

double difference(const Logits& a, const Logits& b) {
  double most = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
    size = std::max(size, std::abs(b[i]));
  }
  return most / size;
}

CheckpointModel causal_model(const std::string& name) {
  CheckpointModel found = describe_checkpoint(open_model(golden_model(name)));
  found.model.seq_length = std::min(found.model.seq_length, kWindow);
  return found;
}

// Calls body(sampler) on the first of `ranks` tensor ranks, in f64.
void sample(const CheckpointModel& from, int ranks, Caching caching, FunctionRef<void(Sampler&)> body) {
  MeshConfig mesh;
  mesh.ranks = mesh.tensor_model_parallel_size = ranks;
  mesh.data_parallel_size = mesh.threads_per_rank = 1;
  run_on_ranks(mesh, [&](Communicator& world) {
    Replica replica(world, mesh, from.model, DType::F64, 0);
    load_weights(replica, from.directory);
    Sampler sampler(replica, from.model, *from.model.vocab_size, caching);
    if (world.rank() > 0) return sampler.follow();
    body(sampler);
    sampler.dismiss();
  });
}

// The logits after a prompt of five tokens, then after each further token, also beyond the window; after another
// continuation of the first three; and after the whole text again.
std::vector<Logits> walk(Sampler& sampler, const std::vector<int32_t>& tokens) {
  std::vector<Logits> all;
  const std::span<const int32_t> text(tokens);
  for (size_t size = 5; size <= text.size(); ++size) all.push_back(sampler.logits(text.first(size)));
  std::vector<int32_t> other(tokens.begin(), tokens.begin() + 8);
  other[3] = other[3] == 0 ? 1 : other[3] - 1;
  all.push_back(sampler.logits(other));
  all.push_back(sampler.logits(text.first(10)));
  all.push_back(sampler.logits(text.first(10)));
  return all;
}

class CachedSampling : public testing::TestWithParam<std::string> {};

TEST_P(CachedSampling, GivesTheLogitsOfRecomputation) {
  const CheckpointModel found = causal_model(GetParam());
  const std::vector<int32_t> tokens = random_tokens(*found.model.vocab_size);
  std::vector<Logits> plain, cached;
  std::vector<TokenScore> scores;
  sample(found, 1, Caching::None, [&](Sampler& sampler) {
    EXPECT_EQ(sampler.cache_bytes(), 0U);
    plain = walk(sampler, tokens);
    scores = sampler.score(std::span(tokens).first(10), 1);
  });
  sample(found, 1, Caching::KeysAndValues, [&](Sampler& sampler) {
    EXPECT_EQ(sampler.obstacle(), "");
    EXPECT_GT(sampler.cache_bytes(), 0U);
    cached = walk(sampler, tokens);
    // Scores leave the cache as it is.
    const std::vector<TokenScore> again = sampler.score(std::span(tokens).first(10), 1);
    for (size_t i = 0; i < scores.size(); ++i)
      EXPECT_NEAR(again[i].log_probability, scores[i].log_probability, 1e-12);
    EXPECT_EQ(sampler.logits(std::span(tokens).first(10)), cached.back());
    // A new sampler's bits after the cache is forgotten.
    sampler.forget();
    EXPECT_EQ(walk(sampler, tokens), cached);
  });
  ASSERT_EQ(cached.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_LT(difference(cached[i], plain[i]), 1e-12) << i;
}

TEST_P(CachedSampling, IsCutOverTensorRanks) {
  const CheckpointModel found = causal_model(GetParam());
  const ModelConfig& model = found.model;
  if (model.num_experts || model.num_attention_heads % 2 != 0)
    GTEST_SKIP() << "not possible on two tensor ranks";
  const std::vector<int32_t> tokens = random_tokens(*model.vocab_size);
  std::vector<Logits> one, two;
  sample(found, 1, Caching::None, [&](Sampler& sampler) { one = walk(sampler, tokens); });
  sample(found, 2, Caching::KeysAndValues, [&](Sampler& sampler) { two = walk(sampler, tokens); });
  for (size_t i = 0; i < one.size(); ++i) EXPECT_LT(difference(two[i], one[i]), 1e-11) << i;
}

std::vector<std::string> causal_models() {
  std::vector<std::string> names;
  for (const std::string& name : golden_models("logits.json")) try {
      expect_text_model(describe_checkpoint(open_model(golden_model(name))));
      names.push_back(name);
    } catch (const Error&) {  // an encoder
    }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Golden, CachedSampling, testing::ValuesIn(causal_models()), [](const auto& name) {
  std::string word = name.param;
  std::replace(word.begin(), word.end(), '-', '_');
  return word;
});

// Keys and values of every layer: 2 x key heads x width of a head numbers a position.
TEST(KeyCacheOfModel, IsKnown) {
  const CheckpointModel found = causal_model("hf_llama");
  const ModelConfig& model = found.model;
  sample(found, 1, Caching::KeysAndValues, [&](Sampler& sampler) {
    EXPECT_EQ(sampler.cache_bytes(), static_cast<size_t>(model.num_layers * 2 * key_heads(model) *
                                                         head_width(model) * model.seq_length * 8));
  });
}

// Attention that sees later positions cannot continue a text, and says so.
TEST(KeyCacheOfModel, AttentionToBothSidesHasAnObstacle) {
  run_on_ranks({}, [&](Communicator& world) {
    const Mesh mesh(world, {});
    ParamList params;
    ReportList reports;
    BlockBuilder builder(params, reports, mesh, 0, 1);
    const AttentionCore core(builder, "attention", {mesh, "attention", 2, 2, 4}, 0,
                             {.sight = AttentionSight::Both});
    EXPECT_NE(builder.cached().obstacle.find("later positions"), std::string::npos);
    EXPECT_TRUE(builder.cached().columns.empty());
  });
}

}  // namespace
}  // namespace trifold::test
