#include "models/model_walk.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "config/fields/layer_kinds.h"
#include "models/gpt.h"
#include "models/language_family.h"
#include "models/language_model.h"
#include "nn/shapes_only.h"
#include "ops/counting.h"

namespace trifold {

namespace {

// Walks the blocks in order; of blocks that are alike, only the first.
class Walker {
 public:
  Walker(const Model& model, const Mesh& mesh, const Batch& batch, LayerType type, const OpTable& ops,
         double load)
      : model_(model),
        log_(load),
        pool_(1),
        stream_(pool_, log_),
        side_(pool_, log_),
        params_(model.params, type.dtype),
        run_{stream_,  side_,  ops,        mesh, params_, &params_, &keep_, &flow_,
             scratch_, &batch, type.dtype, true, 1,       1.0,      kSum,   kSum} {
    run_.narrow = type.narrow;
  }

  WalkedModel walk() {
    std::vector<size_t> kind_of_block;
    for (size_t block = 0; block < model_.blocks.size(); ++block) {
      const int like = model_.blocks[block].like;
      if (like >= 0) {
        kind_of_block.push_back(kind_of_block[static_cast<size_t>(like)]);
        continue;
      }
      kind_of_block.push_back(distinct_.size());
      distinct_.push_back(block);
    }
    std::vector<WalkedBlock> kinds(distinct_.size());
    size_t kept = 0;
    forward([&](size_t kind) {
      kinds[kind].forward = log_.take();
      kinds[kind].kept = keep_.used() - std::exchange(kept, keep_.used());
    });
    backward([&](size_t kind, const Layer& layer, Tensor dy) -> Tensor {
      if (!begin_backward(kind)) return {};
      const Tensor dx = layer.backward_input(run_, dy, saved_[kind]);
      kinds[kind].input = log_.take();
      layer.backward_weight(run_, saved_[kind]);
      kinds[kind].weight = log_.take();
      return dx;
    });
    forward([&](size_t) { log_.take(); });
    backward([&](size_t kind, const Layer& layer, Tensor dy) -> Tensor {
      if (!begin_backward(kind)) return {};
      const Tensor dx = layer.backward(run_, dy, saved_[kind]);
      kinds[kind].backward = log_.take();
      return dx;
    });
    run_.grads = nullptr;
    forward([&](size_t kind) { kinds[kind].evaluation = log_.take(); });
    return {std::move(kinds), std::move(kind_of_block)};
  }

 private:
  static constexpr Tensor kSum{nullptr, DType::F64, {}};

  template <class Done>
  void forward(Done done) {
    saved_.clear();
    Tensor x;
    for (size_t kind = 0; kind < distinct_.size(); ++kind) {
      const Block& block = model_.blocks[distinct_[kind]];
      saved_.emplace_back(block.slots);
      x = block.layer->forward(run_, x, saved_[kind]);
      done(kind);
    }
  }

  // Whether blocks of this kind have a backward.
  bool begin_backward(size_t kind) {
    const BlockBackward backward = model_.blocks[distinct_[kind]].backward;
    run_.wants_dx = backward == BlockBackward::All;
    return backward != BlockBackward::None;
  }

  template <class Back>
  void backward(Back back) {
    Tensor dy;
    for (size_t kind = distinct_.size(); kind-- > 0;)
      dy = back(kind, *model_.blocks[distinct_[kind]].layer, dy);
  }

  const Model& model_;
  WorkLog log_;
  ThreadPool pool_;
  Stream stream_, side_;
  ShapesOnly params_;
  Arena keep_ = Arena::measuring(), flow_ = Arena::measuring(), scratch_ = Arena::measuring();
  Run run_;
  std::vector<size_t> distinct_;
  std::vector<Saved> saved_;
};

double in_step(const WalkedBlock& work) {
  return flops_of(work.forward) + flops_of(work.input) + flops_of(work.weight);
}

}  // namespace

WalkedModel walk_work(const Model& model, const Mesh& mesh, const Batch& batch, LayerType type,
                      const OpTable& ops, double load) {
  return Walker(model, mesh, batch, type, ops, load).walk();
}

double flops_of(std::span<const Work> work) {
  return std::accumulate(work.begin(), work.end(), 0.0,
                         [](double sum, const Work& each) { return sum + each.times * each.flops; });
}

double SampleFlops::all() const { return std::accumulate(layers.begin(), layers.end(), first + head); }

namespace {

// The flops of a model whose layers need not be alike.
SampleFlops whole_flops(ModelConfig config, int tensor_ranks) {
  const Mesh mesh({}, {});
  if (config.vocab_size) config.vocab_size = padded_vocab_size(config, tensor_ranks);
  const Model model = make_model(config, mesh, 0);
  const WalkedModel work =
      walk_work(model, mesh, batch_without_memory(1, config.seq_length, model.later_labels), DType::F32,
                counting_ops(FusedOps::All));
  SampleFlops flops;
  const Block& first = model.blocks.front();
  if (first.kind == BlockKind::Embedding) {
    flops.embedded = static_cast<double>(first.output.shape(1, config.seq_length, DType::F32).elements());
    flops.first = in_step(work.of_block(0));
  }
  for (size_t block = 0; block < model.blocks.size(); ++block) {
    if (model.blocks[block].kind == BlockKind::Layer) flops.layers.push_back(in_step(work.of_block(block)));
    if (model.blocks[block].kind == BlockKind::Head) flops.head += in_step(work.of_block(block));
  }
  return flops;
}

}  // namespace

SampleFlops sample_flops(const ModelConfig& config, int tensor_ranks) {
  // With adapters, layers of a kind may differ in what they train.
  if (language_family(config).make_whole != nullptr || config.adapters.lora_rank)
    return whole_flops(config, tensor_ranks);
  SampleFlops flops;
  flops.embedded = static_cast<double>(config.seq_length * config.hidden_size);
  const LayerKinds layers = layer_kinds(config);
  std::vector<double> of_kind;
  for (const LayerKind& kind : layers.kinds) {
    ModelConfig one = kind.model;
    one.num_layers = 1;
    one.vocab_size = padded_vocab_size(config, tensor_ranks);
    const Model model = make_model(one, Mesh({}, {}), 0);
    const WalkedModel work =
        walk_work(model, Mesh({}, {}), batch_without_memory(1, config.seq_length, model.later_labels),
                  DType::F32, counting_ops(FusedOps::All));
    double head = 0;
    for (size_t block = 0; block < model.blocks.size(); ++block) {
      if (model.blocks[block].kind == BlockKind::Layer) of_kind.push_back(in_step(work.of_block(block)));
      if (model.blocks[block].kind == BlockKind::Head) head += in_step(work.of_block(block));
    }
    if (&kind == &layers.kinds[last_layer_kind(layers)]) flops.head = head;
  }
  for (const size_t kind : layers.of_layer) flops.layers.push_back(of_kind[kind]);
  return flops;
}

double SampleFlops::moving() const {
  constexpr double kFlopsPerMoved = 64;
  return kFlopsPerMoved * embedded;
}

std::vector<double> block_costs(const Model& model, const SampleFlops& flops) {
  const auto heads =
      static_cast<double>(std::count_if(model.blocks.begin(), model.blocks.end(),
                                        [](const Block& block) { return block.kind == BlockKind::Head; }));
  std::vector<double> costs;
  size_t layer = 0;
  for (const Block& block : model.blocks) {
    if (block.kind == BlockKind::Embedding) costs.push_back(flops.moving() + flops.first / 3);
    if (block.kind == BlockKind::Layer) costs.push_back(flops.layers.at(layer++) / 3);
    if (block.kind == BlockKind::Head) costs.push_back(flops.head / 3 / heads);
  }
  return costs;
}

}  // namespace trifold
