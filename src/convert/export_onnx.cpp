#include "convert/export_onnx.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/tensor_kind.h"
#include "config/fields/recommend_choices.h"
#include "convert/onnx_file.h"
#include "core/suffix.h"
#include "embedding/table_part.h"
#include "files/output_files.h"
#include "recommend/trained_recommender.h"
#include "recommend/weights/other_rows.h"

namespace trifold {

namespace {

// Fills `into` with rows of a stored weight.
void read_rows(CheckpointReader& from, const std::string& name, const Shape& shape, int64_t first,
               int64_t count, float* into) {
  Rect rect = Rect::whole(shape);
  rect.offset[0] = first;
  rect.extent[0] = count;
  ShardSpec spec;
  spec.name = name;
  spec.global = shape;
  spec.local = rect;
  const NamedTensor box{spec, {into, DType::F32, rect.extent}};
  from.load({&box, 1}, FloatConversion::Allow);
}

// The graph of a model of the family of models/dlrm.h, part by part.
class RecommenderGraph {
 public:
  RecommenderGraph(CheckpointReader& from, const StoredRecommender& stored, OnnxFile& file)
      : from_(from),
        stored_(stored),
        shape_(stored.setup.model),
        file_(file),
        other_rows_(other_rows(from, stored.setup)) {}

  void build() {
    if (shape_.has_bottom()) take_dense();
    const ClickSchema& schema = stored_.setup.schema;
    const TableUses uses = stored_.setup.uses();
    const size_t first = vectors_.size();
    vectors_.resize(first + schema.tables.size());
    std::vector<std::string> bags;
    for (size_t c = 0; c < schema.tables.size(); ++c) {
      const EmbeddingTable& table = uses.tables[static_cast<size_t>(uses.columns[c].table)];
      bags.push_back(rows_of_bag(schema.tables[c], table));
      if (!uses.columns[c].one_by_one) vectors_[first + c] = pooled(bags[c], schema.tables[c].name);
    }
    for (const AttendedBag& bag : shape_.attended)
      vectors_[first + static_cast<size_t>(bag.column)] =
          attended(bags[static_cast<size_t>(bag.column)],
                   vectors_[first + static_cast<size_t>(bag.candidate)], bag.name);
    const std::string flat = side_by_side(vectors_);
    std::string logits = head(interaction(flat));
    if (shape_.interaction == InteractionKind::Fm)
      terms_.push_back(file_.add("ReduceSum", {pairs(flat), file_.integers({1})}, {{"keepdims", 1}}));
    if (stored_.setup.logit_offset != 0)
      terms_.push_back(file_.number(static_cast<float>(stored_.setup.logit_offset)));
    for (const std::string& term : terms_) logits = file_.add("Add", {logits, term});
    if (shape_.labels.empty()) return give(logits, "");
    for (size_t l = 0; l < shape_.labels.size(); ++l) {
      const auto column = static_cast<int64_t>(l);
      give(columns(logits, column, column + 1), "_" + shape_.labels[l]);
    }
  }

 private:
  // Adds the outputs of a label, computed from its logits [batch, 1].
  void give(const std::string& logits, const std::string& ending) {
    const std::string logit = file_.add("Reshape", {logits, file_.integers({-1})});
    file_.output("logit" + ending);
    file_.output("probability" + ending);
    file_.name_as("logit" + ending, logit);
    file_.name_as("probability" + ending, file_.add("Sigmoid", {logit}));
  }

  // The layers above the interaction (nn/clicks/label_towers.h): [batch, labels].
  std::string head(const std::string& x) {
    if (shape_.labels.empty()) return mlp("top", x, shape_.top.size(), true);
    const size_t hidden = shape_.top.size() - 1;
    const std::string axis = shape_.experts > 0 ? file_.integers({1}) : "";
    std::vector<std::string> experts;
    for (int e = 0; e < shape_.experts; ++e)
      experts.push_back(file_.add("Unsqueeze", {mlp(fmt::format("expert.{}", e), x, hidden, false), axis}));
    const std::string all = experts.empty() ? "" : side_by_side(experts);
    const std::string shared = experts.empty() ? mlp("top", x, hidden, false) : "";
    std::vector<std::string> logits;
    for (const std::string& label : shape_.labels) {
      std::string h = shared;
      if (!experts.empty()) {
        const std::string gate =
            file_.add("Softmax", {product(x, fmt::format("gate.{}.weight", label))}, {{"axis", 1}});
        const std::string mixed =
            file_.add("Mul", {all, file_.add("Unsqueeze", {gate, file_.integers({2})})});
        h = file_.add("ReduceSum", {mixed, axis}, {{"keepdims", 0}});
      }
      logits.push_back(mlp(fmt::format("tower.{}", label), h, shape_.tower.size(), true));
    }
    return side_by_side(logits);
  }
  std::string side_by_side(const std::vector<std::string>& parts) {
    return parts.size() == 1 ? parts[0] : file_.add("Concat", parts, {{"axis", 1}});
  }

  // The name in the file of a weight of the checkpoint.
  std::string weight(const std::string& name, std::string_view kind = kWeightKind) {
    const std::string stored = fmt::format("{}/{}", kind, name);
    if (const auto there = there_.find(stored); there != there_.end()) return there->second;
    return there_[stored] = add_weight(kind == kWeightKind ? name : stored, stored);
  }
  std::string add_weight(const std::string& name, const std::string& stored,
                         const std::vector<float>& other_row = {}) {
    const Shape shape = from_.find(stored)->global;
    return file_.weight(name, shape,
                        [&from = from_, stored, shape, other_row](int64_t first, int64_t count, float* into) {
                          read_rows(from, stored, shape, first, count, into);
                          const int64_t at = ClickTable::kOtherRow - first;
                          if (at >= 0 && at < count)
                            std::copy(other_row.begin(), other_row.end(), into + at * shape[1]);
                        });
  }
  // The weight of a table; its row of unknown values may be a mean (recommend/weights/other_rows.h).
  std::string table_weight(const EmbeddingTable& table) {
    const std::string name = weight_name(table), stored = fmt::format("{}/{}", kWeightKind, name);
    if (const auto there = there_.find(stored); there != there_.end()) return there->second;
    std::vector<float> other_row;
    if (const auto mean = other_rows_.find(table.name); mean != other_rows_.end())
      dispatch_wide_float(from_.find(stored)->dtype, [&]<class T>(T) {
        const std::vector<std::byte>& bytes = mean->second;
        for (size_t at = 0; at < bytes.size(); at += sizeof(T)) {
          T value;
          std::memcpy(&value, bytes.data() + at, sizeof(T));
          other_row.push_back(static_cast<float>(value));
        }
      });
    return there_[stored] = add_weight(name, stored, other_row);
  }

  // x w^T, with a bias if there is one.
  std::string product(const std::string& x, const std::string& w,
                      const std::optional<std::string>& bias = {}) {
    std::vector<std::string> inputs{x, weight(w)};
    if (bias) inputs.push_back(weight(*bias));
    return file_.add("Gemm", inputs, {{"transB", 1}});
  }

  std::string mlp(const std::string& name, std::string x, size_t layers, bool linear_end) {
    for (size_t i = 0; i < layers; ++i) {
      const std::string layer = fmt::format("{}.{}", name, i);
      if (shape_.batch_norm && i + 1 < layers)
        x = normalised(product(x, fmt::format("{}.weight", layer)), fmt::format("{}.norm", layer));
      else
        x = product(x, fmt::format("{}.weight", layer), fmt::format("{}.bias", layer));
      if (!linear_end || i + 1 < layers) x = file_.add("Relu", {x});
    }
    return x;
  }

  // Batch normalisation with the running statistics.
  std::string normalised(const std::string& x, const std::string& name) {
    const std::string mean = file_.add("Mul", {weight(name, kNormKinds[0]), file_.number(-1.0F)});
    const std::string variance =
        file_.add("Add", {weight(name, kNormKinds[1]), file_.number(static_cast<float>(BatchNorm::kEps))});
    const std::string normal = file_.add("Div", {file_.add("Add", {x, mean}), file_.add("Sqrt", {variance})});
    return file_.add("Add", {file_.add("Mul", {normal, weight(name + ".weight")}), weight(name + ".bias")});
  }

  void take_dense() {
    file_.input("dense", false, shape_.dense);
    const std::string x = transformed("dense");
    vectors_.push_back(mlp("bottom", x, shape_.bottom.size(), false));
    if (shape_.wide) terms_.push_back(product(x, "wide.weight"));
  }

  // As transform_dense (clicks/click_transform.h), with 0 for a missing value.
  std::string transformed(const std::string& raw) {
    const std::string zero = file_.number(0.0F);
    std::string x = file_.add("Where", {file_.add("IsNaN", {raw}), zero, raw});
    const auto [transform, least] = applied_transform();
    switch (transform) {
      case DenseTransform::None:
        return x;
      case DenseTransform::Log1p:
        return logarithm(file_.add("Max", {x, zero}), 1);
      case DenseTransform::Log3: {
        const std::string inside = file_.add("Greater", {x, file_.number(-3.0F)});
        const std::string known = file_.add("Where", {inside, x, file_.number(-2.0F)});
        const std::string there = file_.add("Not", {file_.add("IsNaN", {raw})});
        return file_.add("Where", {file_.add("And", {inside, there}), logarithm(known, 3), zero});
      }
      case DenseTransform::LogMin: {
        const std::string above = file_.add("Add", {x, file_.number(-least)});
        return logarithm(file_.add("Max", {above, zero}), 2);
      }
    }
    return x;
  }
  AppliedTransform applied_transform() const {
    if (stored_.transform) return *stored_.transform;
    bad_input(
        "{}: the checkpoint does not say how its {} dense features were transformed, so the file cannot transform them "
        "likewise: continue the run for one step with the same --dense-transform, and convert the "
        "checkpoint that it saves",
        from_.directory().string(), shape_.dense);
  }
  std::string logarithm(const std::string& x, float more) {
    return file_.add("Log", {file_.add("Add", {x, file_.number(more)})});
  }

  // The rows of ids of at least 0. Ids outside the table are treated as in the training data.
  std::string rows_of(const std::string& wanted, const EmbeddingTable& table, const std::string& mapping) {
    if (mapping == name_of(IdPolicy::Modulo)) return file_.add("Mod", {wanted, file_.integers({table.rows})});
    if (mapping == name_of(IdPolicy::Clip))
      return file_.add("Min", {wanted, file_.integers({table.rows - 1})});
    return wanted;
  }

  // The rows that training assigned to keys.
  std::string rows_of_keys(const std::string& keys, const EmbeddingTable& table) {
    std::vector<KeyTable::Entry> owners(static_cast<size_t>(table.rows - KeyTable::kFirstRow));
    ShardSpec spec;
    spec.name = fmt::format("{}/{}", kKeysKind, weight_name(table));
    spec.global = {std::ssize(owners), sizeof(KeyTable::Entry) / sizeof(int64_t)};
    spec.local = Rect::whole(spec.global);
    const NamedTensor box{spec, {owners.data(), DType::I64, spec.global}};
    from_.load({&box, 1}, FloatConversion::Allow);
    std::vector<int64_t> known{0}, rows{KeyTable::kMissingRow};
    for (size_t i = 0; i < owners.size(); ++i) {
      if (owners[i].key == 0) continue;
      known.push_back(static_cast<int64_t>(owners[i].key));
      rows.push_back(static_cast<int64_t>(i) + KeyTable::kFirstRow);
    }
    return file_.lookup(keys, known, rows, KeyTable::kOtherRow);
  }

  // [batch, any, E]: the rows of a bag. Rows of negative ids, or of the key -1, are multiplied by 0.
  std::string rows_of_bag(const ClickTable& column, const EmbeddingTable& table) {
    const std::string ids = (column.keyed() ? "keys." : "ids.") + column.name;
    file_.input(ids, true, -1);
    const std::string two = file_.integers({2});
    const std::string zero = column.keyed() ? "" : file_.integers({0});
    constexpr int64_t kFloat = 1;
    const std::string known = column.keyed()
                                  ? file_.add("Not", {file_.add("Equal", {ids, file_.integers({-1})})})
                                  : file_.add("GreaterOrEqual", {ids, zero});
    const std::string is_id = is_id_[column.name] = file_.add("Cast", {known}, {{"to", kFloat}});
    std::string factor = is_id;
    if (stored_.setup.schema.weighted) {
      const std::string weights = "weights." + column.name;
      file_.input(weights, false, -1, ids);
      factor = file_.add("Where", {known, weights, file_.number(0.0F)});
    }
    const std::string row = column.keyed() ? rows_of_keys(ids, table)
                                           : rows_of(file_.add("Max", {ids, zero}), table, column.mapping);
    const std::string rows = file_.add("Gather", {table_weight(table), row}, {{"axis", 0}});
    return file_.add("Mul", {rows, file_.add("Unsqueeze", {factor, two})});
  }

  std::string pooled(const std::string& rows, const std::string& column) {
    const std::string one = file_.integers({1});
    std::string bag = file_.add("ReduceSum", {rows, one}, {{"keepdims", 0}});
    if (stored_.setup.mean) {
      const std::string count = file_.add("ReduceSum", {is_id_.at(column), one}, {{"keepdims", 1}});
      bag = file_.add("Div", {bag, file_.add("Max", {count, file_.number(1.0F)})});
    }
    if (shape_.wide) {
      terms_.push_back(columns(bag, shape_.width, shape_.row()));
      bag = columns(bag, 0, shape_.width);
    }
    return bag;
  }

  // Pools a bag as BagAttention does (nn/clicks/bag_attention.h).
  std::string attended(const std::string& rows, const std::string& candidate, const std::string& name) {
    const std::string one = file_.integers({1});
    std::string h = rows;
    if (shape_.wide) {
      const std::string all = file_.add("ReduceSum", {rows, one}, {{"keepdims", 0}});
      terms_.push_back(columns(all, shape_.width, shape_.row()));
      h = columns(rows, 0, shape_.width, 2);
    }
    const std::string alone = file_.add("Unsqueeze", {candidate, one});
    const std::string c = file_.add("Add", {alone, file_.add("Mul", {h, file_.number(0.0F)})});
    const std::string difference = file_.add("Add", {c, file_.add("Mul", {h, file_.number(-1.0F)})});
    std::string a = file_.add("Concat", {c, h, difference, file_.add("Mul", {c, h})}, {{"axis", 2}});
    for (size_t i = 0; i < shape_.attention.size(); ++i) {
      const std::string layer = fmt::format("attention.{}.{}", name, i);
      const std::string turned =
          file_.add("Transpose", {weight(fmt::format("{}.weight", layer))}, {}, {{"perm", {1, 0}}});
      a = file_.add("Add", {file_.add("MatMul", {a, turned}), weight(fmt::format("{}.bias", layer))});
      if (i + 1 < shape_.attention.size()) a = file_.add("Relu", {a});
    }
    return file_.add("ReduceSum", {file_.add("Mul", {a, h}), one}, {{"keepdims", 0}});
  }

  std::string columns(const std::string& x, int64_t begin, int64_t end, int64_t axis = 1) {
    return file_.add("Slice", {x, file_.integers({begin}), file_.integers({end}), file_.integers({axis})});
  }

  // Products of pairs, in the order of dot_interaction (ops/ops.h).
  std::string pairs(const std::string& flat) {
    const int64_t count = shape_.vectors();
    const std::string stack = file_.add("Reshape", {flat, file_.integers({-1, count, shape_.width})});
    const std::string turned = file_.add("Transpose", {stack}, {}, {{"perm", {0, 2, 1}}});
    const std::string all = file_.add("MatMul", {stack, turned});
    std::vector<int64_t> places;
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = 0; j < i + (shape_.self ? 1 : 0); ++j) places.push_back(i * count + j);
    const std::string square = file_.add("Reshape", {all, file_.integers({-1, count * count})});
    return file_.add("Gather", {square, file_.integers(places)}, {{"axis", 1}});
  }

  std::string interaction(const std::string& flat) {
    if (shape_.interaction == InteractionKind::Dot) {
      if (!shape_.has_bottom()) return pairs(flat);
      return file_.add("Concat", {vectors_[0], pairs(flat)}, {{"axis", 1}});
    }
    if (shape_.interaction != InteractionKind::Cross) return flat;
    std::string x = flat;
    for (int l = 0; l < shape_.cross_layers; ++l) {
      const std::string layer = fmt::format("cross.{}", l);
      const std::string u = product(product(x, layer + ".v"), layer + ".w", layer + ".bias");
      x = file_.add("Add", {file_.add("Mul", {flat, u}), x});
    }
    return x;
  }

  CheckpointReader& from_;
  const StoredRecommender& stored_;
  const DlrmShape& shape_;
  OnnxFile& file_;
  std::map<std::string, std::vector<std::byte>> other_rows_;
  std::vector<std::string> vectors_;          // [batch, D], the bottom MLP's first
  std::vector<std::string> terms_;            // [batch, 1] or [batch, labels], summands of the logits
  std::map<std::string, std::string> there_;  // [name in the checkpoint] a weight already in the file
  std::map<std::string, std::string> is_id_;  // [table] a tensor: 1 for each id of a bag, 0 for padding
};

}  // namespace

ExportedOnnx export_onnx(CheckpointReader& from, const ConvertConfig& config) {
  const std::string name = from.directory().string();
  if (!has_suffix(config.save, ".onnx"))
    bad_input(
        "{} is a checkpoint of a recommender, which becomes one file: "
        "--save {} ends neither in .onnx nor in .safetensors",
        name, config.save);
  check_writable_file("--save", config.save);
  if (config.dtype || config.seq_length)
    bad_input("--{} has no effect on a recommender, whose file has values in f32: leave it out",
              config.dtype ? "dtype" : "seq-length");
  const ConvertConfig plain;
  const std::pair<const char*, bool> tensors[] = {{"names", config.names != plain.names},
                                                  {"changed-since", config.changed_since.has_value()}};
  for (const auto& [option, changed] : tensors)
    if (changed)
      bad_input(
          "--{} has no effect on a file in the ONNX format: leave it out, or --save a .safetensors file",
          option);
  const std::pair<const char*, bool> unused[] = {
      {"max-file-size", config.max_file_size != plain.max_file_size},
      {"max-memory", config.max_memory != plain.max_memory}};
  for (const auto& [option, changed] : unused)
    if (changed)
      bad_input("--{} has no effect on a recommender, which becomes one file: leave it out", option);
  const StoredRecommender stored = stored_recommender(from);
  OnnxFile onnx;
  RecommenderGraph(from, stored, onnx).build();
  onnx.note("checkpoint", from.directory().filename().string());
  onnx.note("dense_transform", stored.transform.value_or(AppliedTransform{}).text());
  ExportedOnnx done{name, config.save, stored.setup.schema.table_count(), 0};
  OutputFile file("--save", config.save);
  onnx.write([&](std::string_view bytes) {
    file.write(bytes);
    done.bytes += std::ssize(bytes);
  });
  file.finish();
  return done;
}

}  // namespace trifold
