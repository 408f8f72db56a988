#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "clicks/cells/field_values.h"
#include "clicks/click_format.h"
#include "core/error.h"
#include "core/suffix.h"
#include "files/npy_file.h"
#include "files/npz_file.h"
#include "preprocess/click_reader.h"

namespace trifold {

namespace {

constexpr std::string_view kLabelsEnding = "_labels.npy";
constexpr std::string_view kDenseEnding = "_dense.npy";
constexpr std::string_view kIdsEnding = "_sparse.npy";
constexpr std::string_view kBagsEnding = "_sparse_multi_hot.npz";
constexpr int64_t kMostPieceSamples = int64_t{1} << 15;
constexpr int64_t kArrayPieceBytes = int64_t{32} << 20;
constexpr int64_t kMostColumns = 1 << 20;

// The arrays of an input, each of which is read from its first sample to its last.
struct ClickArrays {
  std::unique_ptr<NpyRows> labels;             // [n] or [n, 1]; null where the input has none
  std::unique_ptr<NpyRows> dense;              // [n, d]
  std::unique_ptr<NpyRows> ids;                // [n, tables]: one id in each table, or
  std::vector<std::unique_ptr<NpyRows>> bags;  // per table [n, ids of a bag]
  std::vector<std::unique_ptr<NpzFile>> archives;
  int64_t bytes = 0;  // on the disk
};

// dlrm's: kaggleAdDisplayChallenge_processed.npz, day_0_reordered.npz.
ClickArrays arrays_of_npz(const std::string& path, bool needs_labels) {
  ClickArrays arrays;
  const NpzFile& file = *arrays.archives.emplace_back(std::make_unique<NpzFile>(path));
  if (!file.has("X_cat") && file.has("X_cat_t"))
    bad_input(
        "{} has X_cat_t with one row for each table, from dlrm's first pass: "
        "give the files of its last pass, "
        "NAME_processed.npz or NAME_reordered.npz, which have X_cat",
        path);
  if (needs_labels || file.has("y")) arrays.labels = file.open("y");
  arrays.dense = file.open("X_int");
  arrays.ids = file.open("X_cat");
  arrays.bytes = file.bytes();
  return arrays;
}

// TorchRec's: NAME_labels.npy, NAME_dense.npy, and NAME_sparse.npy or NAME_sparse_multi_hot.npz.
ClickArrays arrays_beside(const std::string& name, bool labeled) {
  ClickArrays arrays;
  const auto beside = [&](std::string_view ending) { return fmt::format("{}{}", name, ending); };
  const auto open = [&](const std::string& path) {
    auto file = std::make_unique<NpyFile>(path);
    arrays.bytes += file->bytes();
    return file;
  };
  if (labeled) arrays.labels = open(beside(kLabelsEnding));
  arrays.dense = open(beside(kDenseEnding));
  std::error_code ignored;
  if (std::filesystem::exists(beside(kIdsEnding), ignored) ||
      !std::filesystem::exists(beside(kBagsEnding), ignored)) {
    arrays.ids = open(beside(kIdsEnding));
    return arrays;
  }
  const NpzFile& file = *arrays.archives.emplace_back(std::make_unique<NpzFile>(beside(kBagsEnding)));
  arrays.bytes += file.bytes();
  for (size_t table = 0; table < file.names().size(); ++table)
    arrays.bags.push_back(file.open(fmt::format("{}", table)));
  return arrays;
}

class ArrayReader final : public ClickReader {
 public:
  ArrayReader(const std::string& path, ClickArrays arrays, const PreprocessOptions& options)
      : path_(path), options_(options), arrays_(std::move(arrays)) {
    refuse_names(options, path);
    if (options.columns)
      bad_input("{}: arrays have no column names, so --label has no effect: leave it out", path);
    if (options.format != "auto")
      bad_input("{} is an array, which --data-format {} does not read: leave it out", path, options.format);
    if (arrays_.labels) check_labels(*arrays_.labels);
    if (first().shape().empty()) bad_input("{} has no row for each sample", first().name());
    samples_ = first().shape()[0];
    layout_.labels = arrays_.labels ? 1 : 0;
    layout_.rules.need = label_need(options.needs_labels, options.unlabelled);
    layout_.base = IdBase::Decimal;
    layout_.dense = columns_of(*arrays_.dense);
    layout_.tables = arrays_.ids ? columns_of(*arrays_.ids) : static_cast<int>(arrays_.bags.size());
    layout_.bags = static_cast<int>(arrays_.bags.size());
    if (layout_.tables == 0) bad_input("{} has no column of ids", arrays_.ids ? arrays_.ids->name() : path);
    for (const auto& bag : arrays_.bags)
      if (const int ids = columns_of(*bag); ids > ClickFolder::kMostBagIds)
        bad_input("{}: its bags have {} ids; one has at most {}", bag->name(), ids, ClickFolder::kMostBagIds);
    for (int t = 0; t < layout_.tables; ++t)
      layout_.columns.push_back({TextColumn::Kind::Id, t, fmt::format("C{}", t + 1)});
    int64_t sample_bytes = arrays_.dense->header().row_bytes();
    if (arrays_.labels) sample_bytes += arrays_.labels->header().row_bytes();
    if (arrays_.ids) sample_bytes += arrays_.ids->header().row_bytes();
    for (const auto& bag : arrays_.bags) sample_bytes += bag->header().row_bytes();
    piece_samples_ =
        std::clamp<int64_t>(kArrayPieceBytes / std::max<int64_t>(1, sample_bytes), 1, kMostPieceSamples);
  }

  const TextLayout& layout() const override { return layout_; }
  int64_t size() const override { return arrays_.bytes; }
  int64_t first_line() const override { return 0; }
  double share() const override { return static_cast<double>(done_) / static_cast<double>(samples_); }
  bool next(std::span<ClickPiece> pieces, ThreadPool& pool, const DropRule& drop) override {
    if (done_ == samples_) return false;
    const int64_t count = std::min(samples_ - done_, std::ssize(pieces) * piece_samples_);
    Window window{done_, {}, part_of(*arrays_.dense, count), {}};
    if (arrays_.labels) window.labels = part_of(*arrays_.labels, count);
    if (arrays_.ids) window.ids.push_back(part_of(*arrays_.ids, count));
    for (const auto& bag : arrays_.bags) window.ids.push_back(part_of(*bag, count));
    pool.run([&](int worker) {
      const int64_t first = std::min(count, worker * piece_samples_);
      fill(window, first, std::min(count, first + piece_samples_), drop, pieces[static_cast<size_t>(worker)]);
    });
    done_ += count;
    return true;
  }

 private:
  // Consecutive rows of an array.
  struct Part {
    const NpyRows* array;
    const std::byte* data;
    int64_t columns;
    const std::byte* at(int64_t row, int64_t column) const {
      return data + (row * columns + column) * array->header().number_bytes();
    }
    Cell cell(int64_t row, int64_t column) const {
      return array->header().visit(at(row, column), []<class T>(T number) -> Cell {
        if constexpr (std::is_same_v<T, uint64_t> || !std::is_integral_v<T>)
          return number;
        else
          return static_cast<int64_t>(number);
      });
    }
  };
  struct Window {
    int64_t first;  // sample
    std::optional<Part> labels;
    Part dense;
    std::vector<Part> ids;
  };
  static Part part_of(NpyRows& array, int64_t count) {
    return {&array, array.next(count).data(), array.shape().size() < 2 ? 1 : array.shape()[1]};
  }

  // The array that says how many samples there are.
  const NpyRows& first() const { return arrays_.labels ? *arrays_.labels : *arrays_.dense; }

  static void check_labels(const NpyRows& labels) {
    if (labels.shape().empty() || labels.shape().size() > 2 ||
        (labels.shape().size() == 2 && labels.shape()[1] != 1))
      bad_input("{}: its shape is {}, one label for each sample is needed", labels.name(),
                labels.shape_text());
  }

  // Of an array [samples, columns].
  int columns_of(const NpyRows& array) const {
    if (array.shape().size() != 2 || array.shape()[0] != samples_ || array.shape()[1] > kMostColumns)
      bad_input("{}: its shape is {}, that of {} is {}: a row for each sample is needed", array.name(),
                array.shape_text(), first().name(), first().shape_text());
    return static_cast<int>(array.shape()[1]);
  }

  // Rows [first, end) of the window.
  void fill(const Window& window, int64_t first, int64_t end, const DropRule& drop, ClickPiece& piece) const {
    PieceBuilder builder(layout_, options_, drop, piece);
    ClickRow out(layout_);
    for (int64_t row = first; row < end; ++row) {
      out.begin(builder.open());
      std::optional<LineProblem> problem;
      if (window.labels) problem = take_label(*window.labels, row, out.labels[0]);
      for (int d = 0; d < layout_.dense && !problem; ++d) problem = take_dense(window, row, d, out.dense[d]);
      if (!problem) problem = take_ids(window, row, out);
      if (problem)
        builder.reject(std::move(*problem));
      else
        builder.close(out, window.first + row);
    }
  }

  // What is wrong with a number of an array.
  static LineProblem wrong(const Part& part, std::string_view column, const Cell& cell,
                           std::string_view wanted) {
    return {fmt::format("{} is not {}", column, wanted),
            fmt::format("{}: {} is {}, not {}", part.array->name(), column, shown_text(cell), wanted)};
  }
  std::optional<LineProblem> take_label(const Part& labels, int64_t row, uint8_t& label) const {
    const Cell cell = labels.cell(row, 0);
    const std::optional<uint8_t> found = label_in(layout_.rules, 0, cell);
    if (!found) return wrong(labels, "the label", cell, "0 or 1");
    label = *found;
    return std::nullopt;
  }
  std::optional<LineProblem> take_dense(const Window& window, int64_t row, int column, float& number) const {
    const Cell cell = window.dense.cell(row, column);
    const std::optional<float> found = dense_in(layout_.rules, cell);
    if (!found) return wrong(window.dense, fmt::format("dense feature {}", column), cell, "a number");
    number = *found;
    return std::nullopt;
  }
  std::optional<LineProblem> take_ids(const Window& window, int64_t row, ClickRow& out) const {
    std::vector<ClickBag>& bags = out.bags;
    for (size_t array = 0; array < window.ids.size(); ++array) {
      const Part& part = window.ids[array];
      for (int64_t column = 0; column < part.columns; ++column) {
        const Cell cell = part.cell(row, column);
        const std::optional<uint64_t> id = id_in(layout_.rules, layout_.base, cell);
        if (!id)
          return wrong(part, fmt::format("{} {}", bags.empty() ? "table" : "place", column), cell,
                       "an id, a whole number");
        if (bags.empty())
          out.ids[static_cast<size_t>(column)] = *id;
        else
          bags[array].ids.push_back(*id);
      }
    }
    return std::nullopt;
  }

  std::string path_;
  const PreprocessOptions& options_;
  ClickArrays arrays_;
  int64_t samples_ = 0;
  TextLayout layout_;
  int64_t piece_samples_ = 0;
  int64_t done_ = 0;
};

}  // namespace

bool is_array_input(const std::string& path) { return has_suffix(path, ".npy") || has_suffix(path, ".npz"); }

std::unique_ptr<ClickReader> open_array_reader(const std::string& path, const PreprocessOptions& options) {
  if (path.ends_with(kBagsEnding))
    bad_input("{}: name the file of the labels, NAME{}, next to it, to give bags", path, kLabelsEnding);
  if (has_suffix(path, ".npz"))
    return std::make_unique<ArrayReader>(path, arrays_of_npz(path, options.needs_labels), options);
  for (const std::string_view ending : {kLabelsEnding, kDenseEnding}) {
    const bool labeled = ending == kLabelsEnding;
    if (path.ends_with(ending) && (labeled || !options.needs_labels))
      return std::make_unique<ArrayReader>(
          path, arrays_beside(path.substr(0, path.size() - ending.size()), labeled), options);
  }
  bad_input(
      "{}: name the file of the labels, NAME{}, next to NAME_dense.npy and NAME_sparse.npy, to give arrays; samples "
      "without labels are named by NAME_dense.npy when they are scored",
      path, kLabelsEnding);
}

}  // namespace trifold
