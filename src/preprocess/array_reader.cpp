#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "files/npy_file.h"
#include "preprocess/click_reader.h"

namespace trifold {

namespace {

constexpr std::string_view kLabelsEnding = "_labels.npy";
constexpr int64_t kPieceSamples = int64_t{1} << 15;

class ArrayReader final : public ClickReader {
 public:
  ArrayReader(const std::string& labels, const PreprocessOptions& options)
      : options_(options),
        labels_(labels),
        dense_(beside(labels, "_dense.npy")),
        ids_(beside(labels, "_sparse.npy")),
        samples_(labels_.shape().empty() ? 0 : labels_.shape()[0]) {
    if (options.columns)
      bad_input("{}: arrays have no names of columns, which --label would compare: leave it out", labels);
    if (options.format != "auto")
      bad_input("{}: is an array, which --data-format {} does not read: leave it out", labels,
                options.format);
    if (labels_.shape().size() > 2 || (labels_.shape().size() == 2 && labels_.shape()[1] != 1))
      bad_input("{}: its shape is {}, one label for each sample is needed", labels, labels_.shape_text());
    layout_.base = IdBase::Decimal;
    layout_.dense = columns_of(dense_);
    layout_.tables = columns_of(ids_);
    if (layout_.tables == 0) bad_input("{}: has no column of ids", ids_.path());
    for (int t = 0; t < layout_.tables; ++t)
      layout_.columns.push_back({TextColumn::Kind::Id, t, fmt::format("C{}", t + 1)});
  }

  const TextLayout& layout() const override { return layout_; }
  int64_t size() const override { return labels_.bytes() + dense_.bytes() + ids_.bytes(); }
  int64_t first_line() const override { return 0; }
  double share() const override { return static_cast<double>(done_) / static_cast<double>(samples_); }
  bool next(std::span<ClickPiece> pieces, ThreadPool& pool, const DropRule& drop) override {
    if (done_ == samples_) return false;
    pool.run([&](int worker) {
      const int64_t first = std::min(samples_, done_ + worker * kPieceSamples);
      fill(first, std::min(samples_, first + kPieceSamples), drop, pieces[static_cast<size_t>(worker)]);
    });
    done_ = std::min(samples_, done_ + std::ssize(pieces) * kPieceSamples);
    return true;
  }

 private:
  static std::string beside(const std::string& labels, std::string_view ending) {
    return labels.substr(0, labels.size() - kLabelsEnding.size()).append(ending);
  }

  // The columns of an array [samples, columns].
  int columns_of(const NpyFile& array) const {
    if (array.shape().size() != 2 || array.shape()[0] != samples_ || array.shape()[1] > 1 << 20)
      bad_input("{}: its shape is {}, that of {} is {}: a row for each sample is needed", array.path(),
                array.shape_text(), labels_.path(), labels_.shape_text());
    return static_cast<int>(array.shape()[1]);
  }

  void fill(int64_t first, int64_t end, const DropRule& drop, ClickPiece& piece) const {
    PieceBuilder builder(layout_, options_, drop, piece);
    std::vector<uint64_t> ids(static_cast<size_t>(layout_.tables));
    for (int64_t sample = first; sample < end; ++sample) {
      ++piece.lines;
      const double label = labels_.number(sample);
      if (label != 0 && label != 1)
        bad_input("{}: the label of sample {} is {}, not 0 or 1", labels_.path(), sample, label);
      float* const dense = builder.open();
      for (int d = 0; d < layout_.dense; ++d) dense[d] = dense_number(sample, d);
      for (int t = 0; t < layout_.tables; ++t) ids[static_cast<size_t>(t)] = id(sample, t);
      builder.close(static_cast<int>(label), sample, ids, {});
    }
  }

  // NaN stands for a missing number.
  float dense_number(int64_t sample, int column) const {
    const auto x = static_cast<float>(dense_.number(sample * layout_.dense + column));
    if (std::isinf(x))
      bad_input("{}: sample {}, dense feature {} is {}, not a number", dense_.path(), sample, column, x);
    return x;
  }
  uint64_t id(int64_t sample, int table) const {
    const int64_t place = sample * layout_.tables + table;
    const std::optional<uint64_t> id = ids_.whole(place);
    if (!id)
      bad_input("{}: sample {}, table {}: {} is no id, which is a whole number", ids_.path(), sample, table,
                ids_.number(place));
    return *id;
  }

  const PreprocessOptions& options_;
  NpyFile labels_, dense_, ids_;
  int64_t samples_;
  TextLayout layout_;
  int64_t done_ = 0;
};

}  // namespace

bool is_array_input(const std::string& path) { return path.ends_with(".npy"); }

std::unique_ptr<ClickReader> open_array_reader(const std::string& labels, const PreprocessOptions& options) {
  if (!labels.ends_with(kLabelsEnding))
    bad_input(
        "{}: arrays are given by the file of their labels, NAME{}, beside NAME_dense.npy and NAME_sparse.npy",
        labels, kLabelsEnding);
  return std::make_unique<ArrayReader>(labels, options);
}

}  // namespace trifold
