// Models from files: their blocks, data and names.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "graph/data/array_text.h"
#include "graph/lower/graph_block.h"
#include "graph/model_file.h"
#include "models/language_family.h"
#include "nn/recompute.h"

namespace trifold {

namespace {

std::shared_ptr<const graph::ModelFile> file_of(const ModelConfig& config) {
  check(config.model.has_value(), "a model of a file has no file");
  return graph::open_model_file(*config.model, config.model_digest, config.freeze);
}

// A batch's size may be limited by the file, as where export saw a condition on it.
void check_micro_batch(const ModelConfig& config, int64_t samples) {
  const graph::Graph& model = file_of(config)->lowered().graph;
  // A least number of 2 stands for any: torch.export names it for every dynamic dimension.
  const int64_t least = model.least_batch <= 2 ? 1 : model.least_batch;
  const int64_t most = model.most_batch.value_or(samples);
  if (samples >= least && samples <= most) return;
  bad_input(
      "--micro-batch-size {} is not possible with --model {}, which was exported for {}: give {}", samples,
      *config.model,
      samples < least ? fmt::format("{} samples or more", least) : fmt::format("at most {} samples", most),
      samples < least ? least : most);
}

// The block's output, packed in rows of the elements to which parts are aligned.
Boundary output_of(const graph::LoweredGraph& lowered, size_t block) {
  const graph::Size elements = graph::boundary_elements(lowered, lowered.blocks[block]);
  Boundary output;
  output.width = graph::kBoundaryAlignment;
  output.rows = Boundary::Rows{elements.per_sample / output.width, elements.fixed / output.width};
  return output;
}

Model make_graph(const ModelConfig& config, const Mesh& mesh, uint64_t seed, const MeshConfig& layout) {
  const std::shared_ptr<const graph::ModelFile> file = file_of(config);
  const std::shared_ptr<const graph::LoweredGraph> lowered(file, &file->lowered());
  graph::ModelParameters parameters(*lowered, {Init::Kind::Given, 0, file.get()});
  Model model;
  const size_t count = lowered->blocks.size();
  for (size_t block = 0; block < count; ++block) {
    BlockBuilder builder(model.params, model.reports, mesh, static_cast<int>(block), seed);
    std::unique_ptr<Layer> layer = std::make_unique<graph::GraphBlock>(builder, lowered, block, parameters);
    const BlockKind kind = block + 1 == count ? BlockKind::Head
                           : block == 0       ? BlockKind::Embedding
                                              : BlockKind::Layer;
    if (layout.recompute_granularity == RecomputeGranularity::Full && kind == BlockKind::Layer)
      layer = std::make_unique<Recompute>(builder, std::move(layer));
    builder.needs_whole_samples("a model from a file, which computes whole samples");
    model.blocks.push_back({.layer = std::move(layer),
                            .kind = kind,
                            .slots = builder.slots(),
                            .output = output_of(*lowered, block),
                            .cached = builder.cached()});
  }
  model.set_backward();
  return model;
}

[[noreturn]] void has_no(const char* what) { bad_input("a model from a file has no {}", what); }

}  // namespace

extern const LanguageFamily kGraphParts;
constexpr LanguageFamily kGraphParts{
    .type = ModelType::Graph,
    .make_whole = make_graph,
    .make_embedding = nullptr,
    .make_layer = nullptr,
    .make_head = nullptr,
    .make_lookup = nullptr,
    .make_head_part = nullptr,
    .head_rows = nullptr,
    .read_sizes =
        [](ModelConfig& model) {
          // As make_graph: all blocks but the first and the last are layers.
          const std::shared_ptr<const graph::ModelFile> file = file_of(model);
          model.model = std::filesystem::absolute(*model.model).string();  // checkpoints store it
          model.model_digest = file->digest();
          model.freeze = file->frozen();
          const auto blocks = static_cast<int64_t>(file->lowered().blocks.size());
          model.num_layers = std::max<int64_t>(blocks - 2, 0);
        },
    .check_micro_batch = check_micro_batch,
    .vocabulary = [](const Tokenizer&) -> int64_t { return 1; },
    .own_tokens = "",
    .pad_token = [](const Tokenizer&) { return std::optional<int32_t>(); },
    .open_text = [](const ModelConfig& model, const DataConfig& data,
                    DType sums) { return graph::open_arrays(file_of(model), data, sums); },
    .synthetic = [](const ModelConfig&, uint64_t) -> std::unique_ptr<DataSource> {
      has_no("synthetic data");
    }};

}  // namespace trifold
