#include "convert/export_tensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_kind.h"
#include "files/output_files.h"
#include "files/scratch_folder.h"
#include "recommend/trained_recommender.h"
#include "recommend/weights/other_rows.h"
#include "recommend/weights/weight_names.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceBytes = int64_t{4} << 20;

// Rows [first, first + count) of a stored matrix, or elements of a vector, unconverted.
void read_stored(CheckpointReader& from, const TensorInfo& tensor, int64_t first, int64_t count,
                 std::vector<std::byte>& into) {
  ShardSpec spec;
  spec.name = tensor.name;
  spec.global = tensor.global;
  spec.local = Rect::whole(tensor.global);
  spec.local.offset[0] = first;
  spec.local.extent[0] = count;
  into.resize(static_cast<size_t>(spec.local.elements()) * size_of(tensor.dtype));
  const NamedTensor box{spec, {into.data(), tensor.dtype, spec.local.extent}};
  from.load({&box, 1});
}

size_t row_bytes(const TensorInfo& tensor) {
  return static_cast<size_t>(tensor.bytes() / std::max<int64_t>(1, tensor.global[0]));
}

// Calls body(first, count) for pieces of a tensor's rows.
void for_each_piece(const TensorInfo& tensor, int64_t rows,
                    const std::function<void(int64_t, int64_t)>& body) {
  const auto bytes = std::max<int64_t>(1, static_cast<int64_t>(row_bytes(tensor)));
  const int64_t most = std::max<int64_t>(1, kPieceBytes / bytes);
  for (int64_t first = 0; first < rows; first += most) body(first, std::min(most, rows - first));
}

class TensorExport {
 public:
  TensorExport(CheckpointReader& from, const StoredRecommender& stored, const ConvertConfig& config)
      : from_(from), config_(config), name_(from.directory().string()) {
    other_rows_ = other_rows(from, stored.setup);
    if (config.changed_since) open_older(*config.changed_since, stored);
    const bool torchrec = config.names == WeightNames::Torchrec;
    weights_ = torchrec ? torchrec_weights(stored.setup, name_) : own_weights(stored.setup);
    if (torchrec && stored.setup.schema.keyed())
      bad_input(
          "{}: the rows of its tables belong to keys, for which TorchRec's names have no place: use --names trifold",
          name_);
    for (const FileWeight& weight : weights_) plan(weight);
    if (older_) {
      plan_step("step", from.meta().step);
      plan_step("since_step", older_->meta().step);
    }
  }

  ExportedTensors write() {
    ExportedTensors done{name_, config_.save, std::ssize(parts_), 0, rows_, all_rows_};
    const fs::path target = end_of_links(config_.save);
    const ScratchFolder scratch(target);
    std::vector<SafeTensor> tensors;
    for (const Part& part : parts_) tensors.push_back(part.tensor);
    SafetensorsWriter file(scratch.file("new"), std::move(tensors), "trifold convert");
    for (size_t i = 0; i < parts_.size(); ++i) {
      int64_t at = 0;
      parts_[i].write([&](const void* data, size_t bytes) {
        file.write(i, at, data, bytes);
        at += static_cast<int64_t>(bytes);
      });
      done.bytes += at;
    }
    file.finish();
    ScratchFolder::protect([&] { fs::rename(scratch.file("new"), target); });
    return done;
  }

 private:
  using Sink = std::function<void(const void* data, size_t bytes)>;
  using Rows = std::shared_ptr<const std::vector<int64_t>>;  // rows of a table, ascending
  struct Part {
    SafeTensor tensor;
    std::function<void(const Sink&)> write;
  };

  void open_older(const std::string& path, const StoredRecommender& stored) {
    older_.emplace(path);
    if (!is_recommender(*older_)) bad_input("--changed-since {} is not a checkpoint of a recommender", path);
    // Its tensors belong to a model and have the right shapes.
    older_other_rows_ = other_rows(*older_, stored_recommender(*older_).setup);
    nlohmann::json then = older_->meta().model, now = from_.meta().model;
    for (nlohmann::json* model : {&then, &now})
      for (nlohmann::json& table : (*model)["tables"]) table.erase("rows");
    if (!differing_fields(then, now, "", "").empty())
      bad_input("--changed-since {} holds another model than {}: {}", path, name_,
                differing_fields(then, now, "there", "here").front());
    for (const EmbeddingTable& table : stored.setup.uses().tables)
      if (stored_of(*older_, weight_name(table)).global[0] > table.rows)
        bad_input("--changed-since {} has more rows in table {} than {}: name the older one there", path,
                  table.name, name_);
    // A run with --finetune begins at step 1 again.
    const int64_t there = updates_before(*older_) + older_->meta().step;
    const int64_t here = updates_before(from_) + from_.meta().step;
    if (there > here)
      bad_input(
          "--changed-since {}: its weights have seen {} steps, those of {} {}: name the older one there",
          path, there, name_, here);
  }

  static const TensorInfo& stored_of(const CheckpointReader& reader, const std::string& weight,
                                     std::string_view kind = kWeightKind) {
    const TensorInfo* found = reader.find(fmt::format("{}/{}", kind, weight));
    if (found == nullptr) bad_input("{} has no weight {}", reader.directory().string(), weight);
    return *found;
  }
  // The owners of the rows of a table; null if its ids are not keys.
  static const TensorInfo* keys_of(const CheckpointReader& reader, const std::string& weight) {
    const TensorInfo* keys = reader.find(fmt::format("{}/{}", kKeysKind, weight));
    if (keys == nullptr) return nullptr;
    const int64_t rows = stored_of(reader, weight).global[0] - KeyTable::kFirstRow;
    if (keys->global.rank() != 2 || keys->global[0] != rows || keys->dtype != DType::I64 ||
        row_bytes(*keys) != sizeof(KeyTable::Entry))
      bad_input("{}: its tensor {} is {} {}, not {} words of {} rows", reader.directory().string(),
                keys->name, name_of(keys->dtype), to_string(keys->global),
                sizeof(KeyTable::Entry) / sizeof(int64_t), rows);
    return keys;
  }

  void add(std::string name, DType dtype, std::vector<int64_t> shape,
           std::function<void(const Sink&)> write) {
    parts_.push_back(
        {{std::move(name), std::string(safetensors_name(dtype)), std::move(shape)}, std::move(write)});
  }

  void plan_step(const std::string& name, int64_t step) {
    add(name, DType::I64, {1}, [step](const Sink& sink) { sink(&step, sizeof(step)); });
  }

  void plan(const FileWeight& weight) {
    const TensorInfo& tensor = stored_of(from_, weight.weight, weight.kind);
    const int64_t rows = tensor.global[0];
    if (weight.is_table) all_rows_ += rows;
    if (weight.is_table && older_) return plan_changed(weight, tensor);
    if (weight.is_table) rows_ += rows;
    std::vector<int64_t> shape;
    for (int d = 0; d < tensor.global.rank(); ++d) shape.push_back(tensor.global[d]);
    add(weight.name, tensor.dtype, shape, [this, &tensor, &weight, rows](const Sink& sink) {
      for_each_piece(tensor, rows, [&](int64_t first, int64_t count) {
        read_stored(from_, tensor, first, count, piece_);
        if (weight.is_table) put_other_row(other_rows_, weight, first, count, piece_);
        if (!weight.columns.empty()) turn_columns(weight, size_of(tensor.dtype));
        sink(piece_.data(), piece_.size());
      });
    });
    if (const TensorInfo* keys = weight.is_table ? keys_of(from_, weight.weight) : nullptr)
      plan_keys(weight, *keys, nullptr);
  }

  using Means = std::map<std::string, std::vector<std::byte>>;
  // Puts the mean into the row of unknown values (recommend/weights/other_rows.h), if it is among the rows that were
  // read.
  static void put_other_row(const Means& means, const FileWeight& weight, int64_t first, int64_t count,
                            std::vector<std::byte>& rows) {
    const int64_t at = ClickTable::kOtherRow - first;
    const auto mean = std::find_if(means.begin(), means.end(), [&](const auto& of) {
      return weight_name({.name = of.first}) == weight.weight;
    });
    if (at < 0 || at >= count || mean == means.end()) return;
    std::copy(mean->second.begin(), mean->second.end(), rows.begin() + at * std::ssize(mean->second));
  }

  // Reorders the columns of the rows that were read into the file's order.
  void turn_columns(const FileWeight& weight, size_t size) {
    const std::vector<std::byte> ours = piece_;
    const size_t width = weight.columns.size();
    for (size_t at = 0; at < ours.size() / size; ++at)
      std::memcpy(piece_.data() + at * size,
                  ours.data() + (at / width * width + static_cast<size_t>(weight.columns[at % width])) * size,
                  size);
  }

  // The key of row r is in entry r - KeyTable::kFirstRow.
  static int64_t key_of(const std::vector<std::byte>& entries, int64_t index) {
    int64_t key = 0;
    std::memcpy(&key, entries.data() + static_cast<size_t>(index) * sizeof(KeyTable::Entry), sizeof(key));
    return key;
  }

  // Adds the keys of all rows, or of `rows`.
  void plan_keys(const FileWeight& weight, const TensorInfo& keys, const Rows& rows) {
    const int64_t all = keys.global[0] + KeyTable::kFirstRow;
    const std::string name = weight.name.substr(0, weight.name.rfind('.')) + ".keys";
    const int64_t count = rows ? std::ssize(*rows) : all;
    add(name, DType::I64, {count}, [this, &keys, rows, count](const Sink& sink) {
      const auto row_at = [&](int64_t i) { return rows ? (*rows)[static_cast<size_t>(i)] : i; };
      std::vector<int64_t> given;
      int64_t next = 0;
      for (; next < count && row_at(next) < KeyTable::kFirstRow; ++next) given.push_back(0);
      sink(given.data(), given.size() * sizeof(int64_t));
      for_each_piece(keys, keys.global[0], [&](int64_t first, int64_t some) {
        const int64_t begin = first + KeyTable::kFirstRow;
        if (next == count || row_at(next) >= begin + some) return;
        read_stored(from_, keys, first, some, piece_);
        given.clear();
        for (; next < count && row_at(next) < begin + some; ++next)
          given.push_back(key_of(piece_, row_at(next) - begin));
        sink(given.data(), given.size() * sizeof(int64_t));
      });
    });
  }

  void plan_changed(const FileWeight& weight, const TensorInfo& tensor) {
    const Rows rows = std::make_shared<const std::vector<int64_t>>(changed_rows(weight, tensor));
    const int64_t count = std::ssize(*rows);
    rows_ += count;
    const std::string base = weight.name.substr(0, weight.name.rfind('.'));
    add(base + ".rows", DType::I64, {count},
        [rows](const Sink& sink) { sink(rows->data(), rows->size() * sizeof(int64_t)); });
    if (const TensorInfo* keys = keys_of(from_, weight.weight)) plan_keys(weight, *keys, rows);
    add(weight.name, tensor.dtype, {count, tensor.global[1]},
        [this, &tensor, &weight, rows](const Sink& sink) {
          const size_t bytes = row_bytes(tensor);
          size_t next = 0;
          for_each_piece(tensor, tensor.global[0], [&](int64_t first, int64_t some) {
            if (next == rows->size() || (*rows)[next] >= first + some) return;
            read_stored(from_, tensor, first, some, piece_);
            put_other_row(other_rows_, weight, first, some, piece_);
            size_t rows_kept = 0;  // rows of the piece, moved to its front
            for (; next < rows->size() && (*rows)[next] < first + some; ++next)
              std::memmove(piece_.data() + rows_kept++ * bytes,
                           piece_.data() + static_cast<size_t>((*rows)[next] - first) * bytes, bytes);
            sink(piece_.data(), rows_kept * bytes);
          });
        });
  }

  std::vector<int64_t> changed_rows(const FileWeight& weight, const TensorInfo& tensor) {
    const TensorInfo& then = stored_of(*older_, weight.weight);
    if (then.dtype != tensor.dtype)
      bad_input("--changed-since {} has tables in {}, {} in {}", *config_.changed_since, name_of(then.dtype),
                name_, name_of(tensor.dtype));
    std::vector<bool> changed(static_cast<size_t>(tensor.global[0]), false);
    std::fill(changed.begin() + then.global[0], changed.end(), true);
    compare(then, tensor, then.global[0], 0, row_bytes(tensor), changed, &weight);
    const TensorInfo *keys = keys_of(from_, weight.weight), *older_keys = keys_of(*older_, weight.weight);
    if (keys != nullptr && older_keys != nullptr)
      compare(*older_keys, *keys, older_keys->global[0], KeyTable::kFirstRow, sizeof(uint64_t), changed);
    std::vector<int64_t> rows;
    for (size_t r = 0; r < changed.size(); ++r)
      if (changed[r]) rows.push_back(static_cast<int64_t>(r));
    return rows;
  }

  // Marks rows whose first `bytes` differ; row i of the tensors is row i + offset of the table. `table`: the tensors
  // are its rows.
  void compare(const TensorInfo& then, const TensorInfo& now, int64_t rows, int64_t offset, size_t bytes,
               std::vector<bool>& changed, const FileWeight* table = nullptr) {
    std::vector<std::byte> old;
    const size_t stride = row_bytes(now);
    for_each_piece(now, rows, [&](int64_t first, int64_t count) {
      read_stored(from_, now, first, count, piece_);
      read_stored(*older_, then, first, count, old);
      if (table != nullptr) {
        put_other_row(other_rows_, *table, first, count, piece_);
        put_other_row(older_other_rows_, *table, first, count, old);
      }
      for (int64_t r = 0; r < count; ++r)
        if (std::memcmp(piece_.data() + static_cast<size_t>(r) * stride,
                        old.data() + static_cast<size_t>(r) * stride, bytes) != 0)
          changed[static_cast<size_t>(first + r + offset)] = true;
    });
  }

  CheckpointReader& from_;
  const ConvertConfig& config_;
  std::string name_;
  std::optional<CheckpointReader> older_;
  Means other_rows_, older_other_rows_;
  std::vector<FileWeight> weights_;
  std::vector<Part> parts_;
  std::vector<std::byte> piece_;
  int64_t rows_ = 0, all_rows_ = 0;
};

}  // namespace

ExportedTensors export_tensors(CheckpointReader& from, const ConvertConfig& config) {
  check_writable_file("--save", config.save);
  if (config.dtype || config.seq_length)
    bad_input("--{} has no effect on a recommender, whose values keep their type: leave it out",
              config.dtype ? "dtype" : "seq-length");
  const ConvertConfig plain;
  const std::pair<const char*, bool> unused[] = {
      {"max-file-size", config.max_file_size != plain.max_file_size},
      {"max-memory", config.max_memory != plain.max_memory}};
  for (const auto& [option, changed] : unused)
    if (changed)
      bad_input("--{} has no effect on a recommender, which becomes one file: leave it out", option);
  if (config.changed_since && config.names != WeightNames::Trifold)
    bad_input("--changed-since {}: TorchRec has no names for rows of tables: use --names trifold",
              *config.changed_since);
  return TensorExport(from, stored_recommender(from), config).write();
}

}  // namespace trifold
