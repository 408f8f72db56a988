// Small models of every family in Hugging Face's format, which PyTorch made (tools/reference/hugging_face_torch.py and
// hugging_face_families.py), give PyTorch's logits here.
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "models/gpt.h"
#include "parity/convert_folders.h"
#include "parity/hugging_face_golden.h"
#include "train/start/checkpoint_model.h"

namespace trifold::test {
namespace {

using nlohmann::json;

// The rows of the logits that the heads of a BERT show, without padding of the vocabulary; of the words
// first.
class LogitsShown final : public TensorWatch {
 public:
  explicit LogitsShown(int64_t vocab) : vocab_(vocab) {}
  void see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) override {
    if (what != "logits") return;
    stream.synchronize();
    std::vector<double>& to = layer == "pair" ? pair_ : words_;
    for (int64_t row = 0; row < tensor.row_count(); ++row)
      for (int64_t i = 0; i < std::min(tensor.last_dim(), vocab_); ++i)
        to.push_back(tensor.as<float>()[row * tensor.last_dim() + i]);
  }
  std::vector<double> all() const {
    std::vector<double> all = words_;
    all.insert(all.end(), pair_.begin(), pair_.end());
    return all;
  }

 private:
  int64_t vocab_;
  std::vector<double> words_, pair_;
};

// A forward pass in f32 without dropout; a loss, where a batch has labels, goes into the arena.
Run forward_run(Replica& replica, const Batch& batch, Arena& arena, TensorWatch* watch) {
  return {replica.compute(),
          replica.compute(),
          replica.ops(),
          replica.mesh(),
          replica.weights(),
          nullptr,
          &arena,
          &arena,
          arena,
          &batch,
          DType::F32,
          false,
          0,
          1,
          arena.take(DType::F64, {1}),
          arena.take(DType::F64, {1}),
          watch};
}

// The output of blocks [0, end).
Tensor forward(Run& run, const std::vector<Block>& blocks, size_t end) {
  Tensor x;
  for (size_t i = 0; i < end; ++i) {
    Saved saved(blocks[i].slots);
    x = blocks[i].layer->forward(run, x, saved);
  }
  return x;
}

// One pair, as hugging_face_torch.py reads the ids: the second half is the second sentence, two are padding.
std::vector<double> logits_of_pair(Replica& replica, const ModelConfig& model, std::vector<int32_t> ids) {
  BatchBuffer buffer(1, static_cast<int64_t>(ids.size()));
  Batch& batch = buffer.batch();
  std::iota(batch.positions.as<int32_t>(), batch.positions.as<int32_t>() + ids.size(), 0);
  std::copy(ids.begin(), ids.end(), batch.tokens.as<int32_t>());
  for (size_t i = 0; i < ids.size(); ++i) {
    batch.token_types.as<int32_t>()[i] = i >= ids.size() / 2 ? 1 : 0;
    batch.labels.as<int32_t>()[i] = 0;
    batch.loss_weight.as<float>()[i] = 0;
  }
  *batch.lengths.as<int32_t>() = static_cast<int32_t>(ids.size()) - 2;
  *batch.pair_labels.as<int32_t>() = 0;
  *batch.pair_weight.as<float>() = 1;
  Arena arena(size_t{1} << 24);
  LogitsShown shown(*model.vocab_size);
  const std::vector<Block>& blocks = replica.model().blocks;
  Run run = forward_run(replica, batch, arena, &shown);
  forward(run, blocks, blocks.size());
  return shown.all();
}

// Logits of all positions, without the padding of the vocabulary.
std::vector<double> logits_of_text(Replica& replica, const ModelConfig& model, std::vector<int32_t> ids) {
  const auto length = static_cast<int64_t>(ids.size());
  std::vector<int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  Batch batch;
  batch.tokens = {ids.data(), DType::I32, {1, length}};
  batch.positions = {positions.data(), DType::I32, {1, length}};
  Arena arena(size_t{1} << 24);
  Run run = forward_run(replica, batch, arena, nullptr);
  const std::vector<Block>& blocks = replica.model().blocks;
  const Tensor x = forward(run, blocks, blocks.size() - 1);
  Saved saved(blocks.back().slots);
  const Tensor logits = dynamic_cast<const GptHead&>(*blocks.back().layer).logits(run, x, 0, length, saved);
  replica.compute().synchronize();
  std::vector<double> result;
  for (int64_t row = 0; row < length; ++row)
    for (int64_t id = 0; id < *model.vocab_size; ++id)
      result.push_back(logits.as<float>()[row * logits.last_dim() + id]);
  return result;
}

std::vector<double> logits_of(const std::string& checkpoint, const std::vector<int32_t>& ids) {
  const CheckpointModel found = describe_checkpoint(CheckpointReader(checkpoint));
  MeshConfig mesh;
  mesh.data_parallel_size = mesh.threads_per_rank = 1;
  std::vector<double> result;
  run_on_ranks(mesh, [&](Communicator& world) {
    Replica replica(world, mesh, found.model, DType::F32, 0);
    load_weights(replica, checkpoint);
    result = found.model.model_type == ModelType::Bert ? logits_of_pair(replica, found.model, ids)
                                                       : logits_of_text(replica, found.model, ids);
  });
  return result;
}

class ConvertLogits : public ConvertTest {};

TEST_F(ConvertLogits, GivesTheLogitsOfPyTorch) {
  for (const std::string& name : golden_models("logits.json")) {
    SCOPED_TRACE(name);
    const Converted done = import(golden(name), at(name));
    const json expected = json::parse(std::ifstream(golden(name) / "logits.json"));
    std::vector<double> flat;
    for (const json& row : expected.at("logits"))
      for (const json& logit : row) flat.push_back(logit.get<double>());
    const std::vector<double> found = logits_of(done.to, expected.at("ids").get<std::vector<int32_t>>());
    ASSERT_EQ(found.size(), flat.size());
    for (size_t i = 0; i < flat.size(); ++i) ASSERT_NEAR(found[i], flat[i], 1e-5) << i;
  }
}

}  // namespace
}  // namespace trifold::test
