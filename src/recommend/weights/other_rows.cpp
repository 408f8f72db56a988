#include "recommend/weights/other_rows.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/stored_rows.h"
#include "checkpoint/tensor_kind.h"
#include "core/read_json.h"
#include "run/ranks.h"

namespace trifold {

namespace {

constexpr const char* kStarts = "table_starts";
constexpr int64_t kOther = ClickTable::kOtherRow;
constexpr int64_t kFirst = kOther + 1;    // first row of a value
constexpr int64_t kRowsAtOnce = 1 << 12;  // rows read at a time

std::string tensor_of(const EmbeddingTable& table) {
  return fmt::format("{}/{}", kWeightKind, weight_name(table));
}

// Whether row 1 of a table is that of values without a row.
bool has_other_row(const ClickSchema& schema, const EmbeddingTable& table) {
  return std::any_of(schema.tables.begin(), schema.tables.end(),
                     [&](const ClickTable& of) { return of.name == table.name && of.has_other_row(); });
}

int64_t end_of_mean(const EmbeddingTable& table) { return std::min(table.rows, kFirst + kMostMeanRows); }

// Reads rows of a rectangle, counted from its first one.
using ReadRows = std::function<void(int64_t first, int64_t count, std::byte* to)>;

// Rows [first, end) of a table that are in a rectangle, counted from its first one.
std::pair<int64_t, int64_t> inside(const Rect& rect, int64_t first, int64_t end) {
  const int64_t begin = std::clamp<int64_t>(first - rect.offset[0], 0, rect.extent[0]);
  return {begin, std::max(begin, std::min(end - rect.offset[0], rect.extent[0]))};
}

template <class Body>  // body(row, values)
void for_each_row(const ReadRows& read, size_t row_bytes, std::pair<int64_t, int64_t> rows, Body body) {
  std::vector<std::byte> chunk(static_cast<size_t>(kRowsAtOnce) * row_bytes);
  for (int64_t first = rows.first; first < rows.second; first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, rows.second - first);
    read(first, count, chunk.data());
    for (int64_t r = 0; r < count; ++r) body(first + r, chunk.data() + static_cast<size_t>(r) * row_bytes);
  }
}

}  // namespace

// The sums over the trained rows of a table, then their number.
class MeanOfRows {
 public:
  explicit MeanOfRows(const EmbeddingTable& table) : sums_(static_cast<size_t>(table.width) + 1) {}

  void add(const std::byte* values, const Rect& rect, DType dtype) {
    dispatch_wide_float(dtype, [&]<class T>(T) {
      for (int64_t c = 0; c < rect.extent[1]; ++c) {
        T value;
        std::memcpy(&value, values + static_cast<size_t>(c) * sizeof(T), sizeof(T));
        sums_[static_cast<size_t>(rect.offset[1] + c)] += static_cast<double>(value);
      }
    });
    if (rect.offset[1] == 0) ++sums_.back();
  }
  std::span<double> sums() { return sums_; }
  // Columns [begin, begin + count); empty if no row was trained.
  std::vector<std::byte> values(int64_t begin, int64_t count, DType dtype) const {
    std::vector<std::byte> row;
    if (sums_.back() == 0) return row;
    row.resize(static_cast<size_t>(count) * size_of(dtype));
    dispatch_wide_float(dtype, [&]<class T>(T) {
      for (int64_t c = 0; c < count; ++c) {
        const T value = static_cast<T>(sums_[static_cast<size_t>(begin + c)] / sums_.back());
        std::memcpy(row.data() + static_cast<size_t>(c) * sizeof(T), &value, sizeof(T));
      }
    });
    return row;
  }

 private:
  std::vector<double> sums_;
};

namespace {

// Rows [first, first + count) of the rectangle of a box that is not in a file.
Tensor rows_of(const NamedTensor& box, int64_t first, int64_t count) {
  const int64_t width = box.spec.local.extent[1];
  return box.data.flat(first * width, (first + count) * width);
}

void copy_rows(Recommender& model, const NamedTensor& box, const Tensor& to, const Tensor& from) {
  if (box.on_host || model.ops().device == nullptr) {
    std::memcpy(to.data, from.data, to.bytes());
    return;
  }
  model.ops().copy(model.compute(), to, from);
  model.compute().synchronize();
}

void read_box(Recommender& model, const NamedTensor& box, int64_t first, int64_t count, std::byte* to) {
  if (box.stored != nullptr) return box.stored->read(first, count, to);
  const Tensor from = rows_of(box, first, count);
  copy_rows(model, box, {to, from.dtype, from.shape}, from);
}

void write_row(Recommender& model, const NamedTensor& box, std::vector<std::byte> values) {
  const int64_t row = kOther - box.spec.local.offset[0];
  if (box.stored != nullptr) return box.stored->write(row, 1, values.data());
  const Tensor to = rows_of(box, row, 1);
  copy_rows(model, box, to, {values.data(), to.dtype, to.shape});
}

std::vector<NamedTensor> boxes_of(const EmbeddingTable& table, const std::vector<NamedTensor>& boxes) {
  std::vector<NamedTensor> found;
  for (const NamedTensor& box : boxes)
    if (box.spec.name == tensor_of(table)) found.push_back(box);
  return found;
}

// Calls body(box, row, values, is_trained) for rows [first, end) of a table that are here.
template <class Body>
void for_each_row_here(Recommender& model, const std::vector<NamedTensor>& boxes, int64_t first, int64_t end,
                       Body body) {
  for (const NamedTensor& box : boxes)
    for_each_row([&](int64_t from, int64_t count, std::byte* to) { read_box(model, box, from, count, to); },
                 box.row_bytes(), inside(box.spec.local, first, end),
                 [&](int64_t row, const std::byte* values) { body(box, row, values); });
}

// Marks rows [first, end) of a table that were trained. Their columns may be on several ranks.
std::vector<int64_t> trained_rows(Communicator& world, Recommender& model, int table, int64_t first,
                                  int64_t end, const std::vector<NamedTensor>& boxes,
                                  const std::vector<TableStart>& starts) {
  const EmbeddingTable& of = model.placement().tables()[static_cast<size_t>(table)];
  std::vector<int64_t> marks(static_cast<size_t>(end - first));
  for (const NamedTensor& box : boxes) {
    TrainedRows trained(of, box.spec.local, box.data.dtype, starts);
    for_each_row_here(model, {box}, first, end,
                      [&](const NamedTensor&, int64_t row, const std::byte* values) {
                        const int64_t at = box.spec.local.offset[0] + row - first;
                        if (trained.is_trained(row, values)) ++marks[static_cast<size_t>(at)];
                      });
  }
  if (model.placement().cut_by_columns(table) || end - first == 1) {
    Stream host = model.compute().host();
    world.all_reduce({marks.data(), DType::I64, {std::ssize(marks)}}, Reduce::Sum, host);
    host.synchronize();
  }
  return marks;
}

MeanOfRows mean_of(Communicator& world, Recommender& model, int table, const std::vector<NamedTensor>& boxes,
                   const std::vector<TableStart>& starts) {
  const EmbeddingTable& of = model.placement().tables()[static_cast<size_t>(table)];
  const int64_t end = end_of_mean(of);
  const std::vector<int64_t> marks = trained_rows(world, model, table, kFirst, end, boxes, starts);
  MeanOfRows mean(of);
  for_each_row_here(model, boxes, kFirst, end,
                    [&](const NamedTensor& box, int64_t row, const std::byte* values) {
                      const Rect& rect = box.spec.local;
                      if (marks[static_cast<size_t>(rect.offset[0] + row - kFirst)] > 0)
                        mean.add(values, rect, box.data.dtype);
                    });
  Stream host = model.compute().host();
  const std::span<double> sums = mean.sums();
  world.all_reduce({sums.data(), DType::F64, {std::ssize(sums)}}, Reduce::Sum, host);
  host.synchronize();
  return mean;
}

}  // namespace

void note_starts(const std::vector<TableStart>& starts, nlohmann::json& state) {
  for (const TableStart& start : starts)
    if (!start.rows.empty())
      state[kStarts].push_back({{"seed", start.seed}, {"init_range", start.range}, {"rows", start.rows}});
}

TableStart start_of(const RecommenderSetup& setup) {
  TableStart start{setup.seed, setup.init_range, {}};
  for (const EmbeddingTable& table : setup.uses().tables)
    if (has_other_row(setup.schema, table)) start.rows[table.name] = table.rows;
  return start;
}

std::vector<TableStart> starts_of(const CheckpointReader& reader) {
  const std::string name = reader.directory().string();
  const JsonView state(reader.meta().state, name), model(reader.meta().model, name);
  std::vector<TableStart> starts;
  if (state.has(kStarts)) {
    state.at(kStarts).each([&](const JsonView& one) {
      TableStart& start = starts.emplace_back();
      start.seed = one.at("seed").whole_number();
      start.range = one.at("init_range").number();
      model.at("tables").each([&](const JsonView& table) {
        const std::string of = table.at("name").text();
        if (one.at("rows").has(of.c_str()))
          start.rows[of] = one.at("rows").at(of.c_str()).integer(1, ClickTable::kMaxRows);
      });
    });
    return starts;
  }
  if (!state.has("seed")) return starts;
  TableStart start{state.at("seed").whole_number(), 0, {}};
  if (const JsonView config(reader.meta().config, name); config.has("embedding_init_range"))
    start.range = config.at("embedding_init_range").number();
  model.at("tables").each([&](const JsonView& table) {
    start.rows[table.at("name").text()] = table.at("rows").integer(1, ClickTable::kMaxRows);
  });
  return {start};
}

std::map<std::string, std::vector<std::byte>> other_rows(CheckpointReader& reader,
                                                         const RecommenderSetup& setup) {
  const std::vector<TableStart> starts = starts_of(reader);
  std::map<std::string, std::vector<std::byte>> means;
  for (const EmbeddingTable& table : setup.uses().tables) {
    if (!has_other_row(setup.schema, table)) continue;
    const TensorInfo& stored = *reader.find(tensor_of(table));
    const Rect whole = Rect::whole(stored.global);
    const auto read = [&](int64_t first, int64_t count, std::byte* to) {
      ShardSpec spec;
      spec.name = stored.name;
      spec.global = stored.global;
      spec.local = whole;
      spec.local.offset[0] = first;
      spec.local.extent[0] = count;
      const NamedTensor box{spec, {to, stored.dtype, spec.local.extent}};
      reader.load({&box, 1});
    };
    TrainedRows trained(table, whole, stored.dtype, starts);
    MeanOfRows mean(table);
    bool has_row = false;
    const size_t row_bytes = static_cast<size_t>(table.width) * size_of(stored.dtype);
    for_each_row(read, row_bytes, {kOther, kFirst},
                 [&](int64_t row, const std::byte* values) { has_row = trained.is_trained(row, values); });
    if (has_row) continue;
    for_each_row(read, row_bytes, {kFirst, end_of_mean(table)}, [&](int64_t row, const std::byte* values) {
      if (trained.is_trained(row, values)) mean.add(values, whole, stored.dtype);
    });
    if (auto values = mean.values(0, table.width, stored.dtype); !values.empty())
      means[table.name] = std::move(values);
  }
  return means;
}

OtherRows::OtherRows(Communicator& world, Recommender& model, const std::vector<TableStart>& starts)
    : model_(model) {
  const std::span<const EmbeddingTable> tables = model.placement().tables();
  if (starts.empty()) return;
  model.settle();
  const std::vector<NamedTensor> mine = model.checkpoint_tensors(false),
                                 held = model.checkpoint_tensors(true);
  for (size_t t = 0; t < tables.size(); ++t) {
    if (!has_other_row(model.setup().schema, tables[t])) continue;
    const std::vector<NamedTensor> boxes = boxes_of(tables[t], mine);
    const auto table = static_cast<int>(t);
    if (trained_rows(world, model, table, kOther, kFirst, boxes, starts)[0] > 0) continue;
    replace(mean_of(world, model, table, boxes, starts), boxes_of(tables[t], held));
  }
  write(after_);
}

void OtherRows::replace(const MeanOfRows& mean, const std::vector<NamedTensor>& boxes) {
  for (const NamedTensor& box : boxes) {
    const Rect& rect = box.spec.local;
    if (const auto [begin, end] = inside(rect, kOther, kFirst); begin == end) continue;
    std::vector<std::byte> values = mean.values(rect.offset[1], rect.extent[1], box.data.dtype);
    if (values.empty()) continue;
    before_.push_back({box, std::vector<std::byte>(box.row_bytes())});
    read_box(model_, box, kOther - rect.offset[0], 1, before_.back().values.data());
    after_.push_back({box, std::move(values)});
  }
}

void OtherRows::write(const std::vector<Row>& rows) {
  for (const Row& row : rows) write_row(model_, row.box, row.values);
  if (!rows.empty()) model_.reload_tables();
}

}  // namespace trifold
