#include "recommend/weights/weight_names.h"

#include <numeric>

#include "embedding/table_part.h"

namespace trifold {

namespace {

// BadInput unless TorchRec has such a model.
void check_torchrec(const DlrmShape& shape, const std::string& what) {
  const bool meets = shape.interaction == InteractionKind::Dot || shape.interaction == InteractionKind::Cross;
  const char* lacks = !meets                    ? "its interaction"
                      : shape.wide              ? "the first-order term of --wide"
                      : !shape.labels.empty()   ? "several labels"
                      : !shape.attended.empty() ? "attention"
                      : shape.self              ? "products of vectors with themselves"
                      : shape.batch_norm        ? "batch normalisation"
                      : !shape.has_bottom()     ? "a model without dense features"
                      : shape.top.size() < 2    ? "a top MLP without a hidden layer"
                                                : nullptr;
  if (lacks != nullptr)
    bad_input("{}: TorchRec's DLRM has no counterpart of {}: use --names trifold", what, lacks);
}

// For each of TorchRec's columns, the index of ours: the bottom MLP's vector, then the pairs (i, j), i < j, by i.
std::vector<int64_t> torchrec_columns(const DlrmShape& shape) {
  std::vector<int64_t> columns(static_cast<size_t>(shape.width));
  std::iota(columns.begin(), columns.end(), 0);
  const int64_t vectors = shape.vectors();
  for (int64_t i = 0; i < vectors; ++i)
    for (int64_t j = i + 1; j < vectors; ++j)
      columns.push_back(shape.width + j * (j - 1) / 2 + i);  // here (j, i), i < j, by j
  return columns;
}

}  // namespace

std::vector<FileWeight> own_weights(const RecommenderSetup& setup) {
  std::vector<FileWeight> weights;
  for (const EmbeddingTable& table : setup.uses().tables)
    weights.push_back({weight_name(table), weight_name(table), {table.rows, table.width}, true});
  const Mesh alone({{Axis::Dp, 1}}, {});
  const Model model = make_dlrm(setup.model, alone, 0);
  for (const ParamSpec& param : model.params.specs())
    weights.push_back({param.shard.name, param.shard.name, param.shard.global});
  for (const NormedLayer& layer : setup.model.normed())
    for (const std::string_view kind : kNormKinds)
      weights.push_back({fmt::format("{}.{}", layer.name, kind.substr(kind.find('_') + 1)),
                         layer.name,
                         {layer.columns},
                         false,
                         kind});
  return weights;
}

std::vector<FileWeight> torchrec_weights(const RecommenderSetup& setup, const std::string& what) {
  const DlrmShape& shape = setup.model;
  check_torchrec(shape, what);
  std::vector<FileWeight> weights = own_weights(setup);
  const auto last = shape.top.size() - 1;
  for (FileWeight& weight : weights) {
    if (weight.is_table) {
      weight.name = "sparse_arch.embedding_bag_collection.embedding_bags." +
                    weight.weight.substr(std::string_view("embedding.").size());
      continue;
    }
    const size_t dot = weight.weight.find('.'), end = weight.weight.find('.', dot + 1);
    const std::string part = weight.weight.substr(0, dot),
                      layer = weight.weight.substr(dot + 1, end - dot - 1),
                      kind = weight.weight.substr(end + 1);
    if (part == "bottom") {
      weight.name = fmt::format("dense_arch.model._mlp.{}._linear.{}", layer, kind);
    } else if (part == "cross") {
      weight.name = fmt::format("inter_arch.crossnet.{}.{}",
                                kind == "v"   ? "V_kernels"
                                : kind == "w" ? "W_kernels"
                                              : "bias",
                                layer);
    } else {
      weight.name = layer == std::to_string(last)
                        ? "over_arch.model.1." + kind
                        : fmt::format("over_arch.model.0._mlp.{}._linear.{}", layer, kind);
      if (layer == "0" && kind == "weight" && shape.interaction == InteractionKind::Dot)
        weight.columns = torchrec_columns(shape);
    }
  }
  return weights;
}

}  // namespace trifold
