#include "preprocess/parse_clicks.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/random.h"

namespace trifold {

namespace {

// The transform of small whole numbers, which most dense numbers are, looked up.
class TransformTable {
 public:
  explicit TransformTable(DenseTransform transform) : transform_(transform) {
    for (int i = 0; i < kSize; ++i)
      values_[static_cast<size_t>(i)] = transform_dense(transform, static_cast<float>(i));
  }
  float operator()(float x) const {
    if (x >= 0 && x < kSize) {
      const auto index = static_cast<int>(x);
      if (static_cast<float>(index) == x) return values_[static_cast<size_t>(index)];
    }
    return transform_dense(transform_, x);
  }

 private:
  static constexpr int kSize = 4096;
  DenseTransform transform_;
  std::array<float, kSize> values_;
};

}  // namespace

void parse_piece(const TextLayout& layout, std::string_view text, int64_t first_byte,
                 const PreprocessOptions& options, const DropRule& drop, ClickPiece& piece) {
  // The least number of all samples is not known yet: LogMin is taken in a pass of its own.
  const bool raw = options.transform == DenseTransform::LogMin;
  const TransformTable transform(raw ? DenseTransform::None : options.transform);
  const auto range = static_cast<uint64_t>(options.max_ind_range);
  const char* const begin = text.data();
  const auto dense = static_cast<size_t>(layout.dense);
  std::vector<uint64_t> keys(static_cast<size_t>(layout.tables));
  piece.too_long.reset();
  piece.lines = piece.malformed = 0;
  piece.problems.clear();
  piece.labels.clear();
  piece.dense.clear();
  piece.keys.resize(keys.size());
  for (auto& column : piece.keys) column.clear();
  piece.least = 0;
  while (!text.empty()) {
    const int64_t at = first_byte + (text.data() - begin);
    const std::optional<std::string_view> taken = take_line(text);
    if (!taken) {
      piece.too_long = piece.lines;
      return;
    }
    const std::string_view line = *taken;
    const size_t row = piece.dense.size();
    piece.dense.resize(row + dense);
    ClickLine out{0, piece.dense.data() + row, keys.data()};
    const bool good = parse_line(layout, line, out);
    if (!good) {
      ++piece.malformed;
      if (std::ssize(piece.problems) < TextReport::kShown)
        piece.problems.emplace_back(piece.lines, explain_line(layout, line));
    }
    ++piece.lines;
    if (!good || (drop.share > 0 && out.label == 0 &&
                  philox_word(drop.key, static_cast<uint64_t>(at)) < drop.share * 4294967296.0)) {
      piece.dense.resize(row);
      continue;
    }
    piece.labels.push_back(static_cast<uint8_t>(out.label));
    for (size_t d = 0; d < dense; ++d) {
      out.dense[d] = transform(out.dense[d]);
      if (raw) piece.least = std::min(piece.least, out.dense[d]);
    }
    for (size_t t = 0; t < keys.size(); ++t) piece.keys[t].push_back(range == 0 ? keys[t] : keys[t] % range);
  }
}

ClickColumnWriter::ClickColumnWriter(const std::string& folder, const TextLayout& layout, int key_bytes)
    : folder_(folder),
      dense_count_(layout.dense),
      key_bytes_(key_bytes),
      labels_(ClickFolder::labels_file(folder), RawFile::Mode::Create),
      dense_(ClickFolder::dense_file(folder), RawFile::Mode::Create) {
  for (int t = 0; t < layout.tables; ++t) keys_.emplace_back(key_file(t), RawFile::Mode::Create);
}

std::string ClickColumnWriter::key_file(int table) const { return fmt::format("{}/keys{}", folder_, table); }

void ClickColumnWriter::write(std::span<const ClickPiece> pieces, ThreadPool& pool) {
  std::vector<int64_t> first;
  for (const ClickPiece& piece : pieces) {
    first.push_back(samples_);
    samples_ += piece.samples();
  }
  pool.run([&](int worker) {
    for (auto p = static_cast<size_t>(worker); p < pieces.size(); p += static_cast<size_t>(pool.size())) {
      const ClickPiece& piece = pieces[p];
      labels_.write_all(std::span(piece.labels), first[p]);
      dense_.write_all(std::span(piece.dense), first[p] * dense_count_);
      std::vector<uint32_t> narrow;
      for (size_t t = 0; t < keys_.size(); ++t) {
        const std::span<const uint64_t> keys(piece.keys[t]);
        if (key_bytes_ == 8) {
          keys_[t].write_all(keys, first[p]);
          continue;
        }
        narrow.resize(keys.size());
        std::transform(keys.begin(), keys.end(), narrow.begin(),
                       [](uint64_t key) { return static_cast<uint32_t>(key); });
        keys_[t].write_all(std::span<const uint32_t>(narrow), first[p]);
      }
    }
  });
}

}  // namespace trifold
