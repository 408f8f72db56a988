// Conversations packed into samples train as they would one by one, on every mesh, and after a restart.
#include <gtest/gtest.h>

#include <map>

#include "ops/host_copy.h"
#include "support/compare.h"
#include "support/training.h"
#include "tasks/chat/chat_samples.h"
#include "tasks/chat/packing.h"

namespace trifold::test {
namespace {

constexpr int64_t kChatLength = 24;  // tokens of a sample
constexpr int64_t kChatCount = 32;

uint32_t chat_word(uint64_t chat, uint64_t at) {
  static const PhiloxKey kKey = philox_key(9, "chats");
  return philox_word(kKey, chat * 64 + at);
}

// Conversations of 2 to 16 tokens, some of which are answers.
std::vector<EncodedChat> random_chats() {
  std::vector<EncodedChat> chats;
  for (uint64_t chat = 0; chat < kChatCount; ++chat) {
    EncodedChat one;
    for (uint64_t left = 2 + chat_word(chat, 0) % 15; left > 0; --left) {
      one.tokens.push_back(static_cast<int32_t>(1 + chat_word(chat, left) % 6));
      one.learned.push_back(chat_word(chat, 20 + left) % 3 != 0 ? 1 : 0);
    }
    one.learned.back() = 1;
    chats.push_back(one);
  }
  return chats;
}

// All conversations, as one sample each, or packed; their samples repeat in each step.
std::shared_ptr<PackedChats> chats_in_samples(bool pack) {
  auto packed = std::make_shared<PackedChats>();
  packed->chats = random_chats();
  packed->seq_length = kChatLength;
  packed->separate = pack;
  std::vector<int64_t> lengths;
  for (const EncodedChat& chat : packed->chats) lengths.push_back(std::ssize(chat.tokens));
  if (pack) {
    packed->samples = pack_best_fit(lengths, kChatLength, 5);
    while (packed->samples.size() % 8 != 0) {  // all meshes share the samples of a step evenly
      const auto fullest = std::max_element(packed->samples.begin(), packed->samples.end(),
                                            [](const auto& a, const auto& b) { return a.size() < b.size(); });
      const int64_t last = fullest->back();
      fullest->pop_back();
      packed->samples.push_back({last});
    }
  } else {
    for (int64_t i = 0; i < kChatCount; ++i) packed->samples.push_back({i});
  }
  return packed;
}

struct TrainedChats {
  Curve curve;
  std::map<std::string, std::vector<double>> gradients;  // sums of the first step, if one rank has them whole
};

TrainedChats train_chats(PretrainConfig config, bool pack, const TrainOptions& options = {}) {
  const auto samples = chats_in_samples(pack);
  const ChatSamples data(samples, 1000, false, 0);
  config = on_test_device(config);
  config.batch.global_batch_size = std::ssize(samples->samples);
  const auto places = static_cast<double>(*config.batch.global_batch_size * kChatLength);
  const int64_t last = options.stop_after == 0 ? config.batch.train_iters : options.stop_after;
  TrainedChats trained;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, nullptr);
    if (!options.load.empty()) trainer.load(options.load);
    while (trainer.steps_done() < last) {
      for (const StepReport& step : trainer.advance()) {
        if (world.rank() != 0) continue;
        trained.curve.losses.push_back(step.loss);
        trained.curve.grad_norms.push_back(step.grad_norm);
      }
      if (world.size() != 1 || trainer.steps_done() != 1) continue;
      const ParamList& params = trainer.replica().model().params;
      for (ParamId id : params.by_name()) {
        const Tensor gradient = trainer.grads().grad(id);
        const HostCopy copy(trainer.replica().ops(), trainer.replica().compute(), gradient);
        std::vector<double>& values = trained.gradients[params[id].shard.name];
        for (int64_t i = 0; i < gradient.elements(); ++i)
          values.push_back(places * copy.tensor().as<double>()[i]);
      }
    }
    if (!options.save.empty()) trainer.save(options.save);
  });
  return trained;
}

PretrainConfig chat_run(bool llama) {
  PretrainConfig config = small_run();
  if (llama) make_llama(config.model, 2);
  config.model.seq_length = config.model.max_position_embeddings.emplace(kChatLength);
  config.precision.f64 = true;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(6);
  config.batch.micro_batch_size = 1;
  config.data.reset_attention_mask = config.data.reset_position_ids = true;
  return config;
}

void expect_same_chats(const Curve& a, const Curve& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_LT(relative_error(a.losses[i], b.losses[i]), 1e-11) << "loss of step " << i + 1;
    EXPECT_LT(relative_error(a.grad_norms[i], b.grad_norms[i]), 1e-10) << "norm of step " << i + 1;
  }
}

class Chats : public ::testing::TestWithParam<bool> {};

TEST_P(Chats, PackedTrainAsOneByOne) {
  const PretrainConfig config = chat_run(GetParam());
  PretrainConfig alone = config;
  alone.data.reset_attention_mask = alone.data.reset_position_ids = false;
  const TrainedChats packed = train_chats(config, true), apart = train_chats(alone, false);
  expect_same_chats(packed.curve, apart.curve);
  ASSERT_FALSE(packed.gradients.empty());
  for (const auto& [name, gradient] : packed.gradients)
    EXPECT_LT(relative_error(gradient, apart.gradients.at(name)), 1e-11) << name;
  struct {
    int dp, tp, pp, cp, zero;
  } const meshes[] = {{2, 2, 2, 1, 1}, {8, 1, 1, 1, 3}, {1, 1, 2, 4, 0}, {2, 1, 1, 2, 2}};
  for (const auto& m : meshes) {
    SCOPED_TRACE(fmt::format("dp {} tp {} pp {} cp {} zero {}", m.dp, m.tp, m.pp, m.cp, m.zero));
    PretrainConfig mesh = on_mesh(config, m.dp, m.tp, m.pp, m.cp);
    mesh.mesh.sequence_parallel = m.tp > 1;
    mesh.zero.zero_stage = m.zero;
    expect_same_chats(train_chats(mesh, true).curve, apart.curve);
  }
}

TEST_P(Chats, ResumeIsBitwiseExact) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("trifold_chats_{}", GetParam());
  std::filesystem::remove_all(folder);
  PretrainConfig config = on_mesh(chat_run(GetParam()), 2);
  config.precision.f64 = false;
  config.model.attention_dropout = 0.1;
  const Curve whole = train_chats(config, true).curve;
  train_chats(config, true, {.stop_after = 2, .save = folder.string()});
  const Curve rest = train_chats(config, true, {.load = folder.string()}).curve;
  ASSERT_EQ(rest.losses.size(), 4U);
  EXPECT_EQ(first_difference(std::span(whole.losses).subspan(2), std::span<const double>(rest.losses)),
            kSame);
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Models, Chats, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Llama" : "Gpt"; });

}  // namespace
}  // namespace trifold::test
