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
  std::vector<std::vector<uint64_t>> bags(static_cast<size_t>(layout.bags));
  const size_t first_bag = keys.size() - bags.size();
  piece.too_long.reset();
  piece.lines = piece.malformed = 0;
  piece.problems.clear();
  piece.labels.clear();
  piece.dense.clear();
  piece.keys.resize(keys.size());
  for (auto& column : piece.keys) column.clear();
  piece.lengths.resize(bags.size());
  for (auto& column : piece.lengths) column.clear();
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
    ClickLine out{0, piece.dense.data() + row, keys.data(), bags.data()};
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
    const auto key_of = [range](uint64_t hash) { return range == 0 ? hash : hash % range; };
    for (size_t t = 0; t < first_bag; ++t) piece.keys[t].push_back(key_of(keys[t]));
    for (size_t b = 0; b < bags.size(); ++b) {
      piece.lengths[b].push_back(static_cast<uint32_t>(bags[b].size()));
      for (const uint64_t hash : bags[b]) piece.keys[first_bag + b].push_back(key_of(hash));
    }
  }
}

ClickColumnWriter::ClickColumnWriter(const std::string& folder, const TextLayout& layout, int key_bytes,
                                     const ClickFolder& clicks)
    : folder_(folder),
      dense_count_(layout.dense),
      key_bytes_(key_bytes),
      labels_(ClickFolder::labels_file(folder), RawFile::Mode::Create),
      dense_(ClickFolder::dense_file(folder), RawFile::Mode::Create),
      keys_written_(static_cast<size_t>(layout.tables)) {
  for (int t = 0; t < layout.tables; ++t) keys_.emplace_back(key_file(t), RawFile::Mode::Create);
  for (int t = layout.tables - layout.bags; t < layout.tables; ++t)
    ends_.emplace_back(clicks.ends_file(folder, t), RawFile::Mode::Create);
}

std::string ClickColumnWriter::key_file(int table) const { return fmt::format("{}/keys{}", folder_, table); }

ClickColumnWriter::Place ClickColumnWriter::take_place(const ClickPiece& piece) {
  Place place{samples_, keys_written_};
  samples_ += piece.samples();
  for (size_t t = 0; t < keys_.size(); ++t) keys_written_[t] += std::ssize(piece.keys[t]);
  return place;
}

void ClickColumnWriter::write_keys(size_t table, std::span<const uint64_t> keys, int64_t first) {
  if (key_bytes_ == 8) return keys_[table].write_all(keys, first);
  std::vector<uint32_t> narrow(keys.size());
  std::transform(keys.begin(), keys.end(), narrow.begin(),
                 [](uint64_t key) { return static_cast<uint32_t>(key); });
  keys_[table].write_all(std::span<const uint32_t>(narrow), first);
}

void ClickColumnWriter::write_ends(size_t bag, std::span<const uint32_t> lengths, const Place& place) {
  auto end = static_cast<uint64_t>(place.keys[keys_.size() - ends_.size() + bag]);
  std::vector<uint64_t> ends;
  for (const uint32_t length : lengths) ends.push_back(end += length);
  ends_[bag].write_all(std::span<const uint64_t>(ends), place.sample);
}

void ClickColumnWriter::write(std::span<const ClickPiece> pieces, ThreadPool& pool) {
  std::vector<Place> places;
  for (const ClickPiece& piece : pieces) places.push_back(take_place(piece));
  pool.run([&](int worker) {
    for (auto p = static_cast<size_t>(worker); p < pieces.size(); p += static_cast<size_t>(pool.size())) {
      const ClickPiece& piece = pieces[p];
      const Place& place = places[p];
      labels_.write_all(std::span(piece.labels), place.sample);
      dense_.write_all(std::span(piece.dense), place.sample * dense_count_);
      for (size_t t = 0; t < keys_.size(); ++t) write_keys(t, piece.keys[t], place.keys[t]);
      for (size_t b = 0; b < ends_.size(); ++b) write_ends(b, piece.lengths[b], place);
    }
  });
}

}  // namespace trifold
