#include "preprocess/parse_clicks.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/random.h"

namespace trifold {

namespace {

// Most dense numbers are small integers; their transforms are looked up.
constexpr int kTransformedNumbers = 4096;

// The least number of all samples is not known yet: LogMin takes a separate pass.
DenseTransform transform_of(const PreprocessOptions& options) {
  return options.transform == DenseTransform::LogMin ? DenseTransform::None : options.transform;
}

}  // namespace

void ClickPiece::add_problem(LineProblem problem) {
  ++malformed;
  ++kinds[problem.kind];
  if (std::ssize(problems) < TextReport::kShown) problems.emplace_back(lines, std::move(problem));
}

PieceBuilder::PieceBuilder(const TextLayout& layout, const PreprocessOptions& options, const DropRule& drop,
                           ClickPiece& piece)
    : drop_(drop),
      piece_(piece),
      labeled_(layout.labeled && layout.labels > 0),
      unlabelled_(options.unlabelled),
      notes_left_out_(options.note_left_out),
      sample_weights_(layout.sample_weights),
      times_(layout.times),
      dense_(static_cast<size_t>(layout.dense)),
      first_bag_(static_cast<size_t>(layout.tables - layout.bags)),
      range_(static_cast<uint64_t>(options.max_ind_range)),
      most_ids_(static_cast<size_t>(options.max_bag.value_or(std::numeric_limits<int64_t>::max()))),
      transform_(transform_of(options)) {
  for (int i = 0; i < kTransformedNumbers; ++i)
    transformed_.push_back(transform_dense(transform_, static_cast<float>(i)));
  piece.too_long.reset();
  piece.lines = piece.blank = piece.malformed = piece.unlabelled = 0;
  piece.kinds.clear();
  piece.left_out.clear();
  piece.problems.clear();
  piece.label_count = static_cast<size_t>(std::max(layout.labels, 1));
  piece.labels.clear();
  piece.dense.clear();
  piece.keys.resize(static_cast<size_t>(layout.tables));
  for (auto& column : piece.keys) column.clear();
  piece.lengths.resize(static_cast<size_t>(layout.bags));
  for (auto& column : piece.lengths) column.clear();
  piece.weights.resize(static_cast<size_t>(layout.bags));
  for (auto& column : piece.weights) column.clear();
  piece.cut_bags.assign(static_cast<size_t>(layout.bags), 0);
  piece.sample_weights.clear();
  piece.times.clear();
  piece.kept.assign(static_cast<size_t>(layout.kept), {});
  piece.least = std::numeric_limits<float>::infinity();
}

float* PieceBuilder::open() {
  piece_.dense.resize(piece_.dense.size() + dense_);
  return piece_.dense.data() + piece_.dense.size() - dense_;
}

void PieceBuilder::leave_out() {
  piece_.dense.resize(piece_.dense.size() - dense_);
  if (notes_left_out_) piece_.left_out.push_back(piece_.lines - piece_.blank);
  ++piece_.lines;
}

void PieceBuilder::reject(LineProblem problem) {
  piece_.add_problem(std::move(problem));
  leave_out();
}

void PieceBuilder::transform_row() {
  for (float& x : std::span(piece_.dense).last(dense_)) {
    const auto index = x >= 0 && x < kTransformedNumbers ? static_cast<int>(x) : -1;
    x = index >= 0 && static_cast<float>(index) == x ? transformed_[static_cast<size_t>(index)]
                                                     : transform_dense(transform_, x);
    piece_.least = std::min(piece_.least, x);
  }
}

bool PieceBuilder::is_in_part(int64_t at, double time) const {
  const double place = times_ ? time : philox_word(drop_.rows_key, static_cast<uint64_t>(at)) / 4294967296.0;
  return drop_.rows->first <= place && place < drop_.rows->end;
}

// Whether a row that is not malformed becomes no sample.
bool PieceBuilder::is_left_out(ClickRow& row, int64_t at) {
  if (drop_.rows && !is_in_part(at, row.time)) return true;
  const auto has = [&](auto wanted) { return std::any_of(row.labels.begin(), row.labels.end(), wanted); };
  if (labeled_ && !has([](uint8_t label) { return label != kNoLabel; })) {
    ++piece_.unlabelled;
    if (unlabelled_ == Unlabelled::Keep) return false;
    if (unlabelled_ == Unlabelled::Skip) return true;
    std::fill(row.labels.begin(), row.labels.end(), uint8_t{0});
  }
  return drop_.share > 0 && !has([](uint8_t label) { return label == 1; }) &&
         philox_word(drop_.key, static_cast<uint64_t>(at)) < drop_.share * 4294967296.0;
}

void PieceBuilder::close(ClickRow& row, int64_t at) {
  if (is_left_out(row, at)) return leave_out();
  transform_row();
  piece_.labels.insert(piece_.labels.end(), row.labels.begin(), row.labels.end());
  add_ids(row);
  if (sample_weights_) piece_.sample_weights.push_back(row.weight);
  if (times_) piece_.times.push_back(row.time);
  for (size_t k = 0; k < row.kept.size(); ++k) {
    piece_.kept[k].bytes += row.kept[k];
    piece_.kept[k].lengths.push_back(static_cast<uint32_t>(row.kept[k].size()));
  }
  ++piece_.lines;
}

void PieceBuilder::add_ids(const ClickRow& row) {
  const auto key_of = [this](uint64_t hash) { return range_ == 0 ? hash : hash % range_; };
  for (size_t t = 0; t < first_bag_; ++t) piece_.keys[t].push_back(key_of(row.ids[t]));
  for (size_t b = 0; b < row.bags.size(); ++b) {
    const auto& [all_ids, all_weights] = row.bags[b];
    const size_t kept = std::min(all_ids.size(), most_ids_);
    if (kept < all_ids.size()) ++piece_.cut_bags[b];
    piece_.lengths[b].push_back(static_cast<uint32_t>(kept));
    for (const uint64_t hash : std::span(all_ids).first(kept))
      piece_.keys[first_bag_ + b].push_back(key_of(hash));
    const auto weights = std::span(all_weights).first(std::min(kept, all_weights.size()));
    piece_.weights[b].insert(piece_.weights[b].end(), weights.begin(), weights.end());
  }
}

void parse_piece(const TextLayout& layout, std::string_view text, int64_t first_byte,
                 const PreprocessOptions& options, const DropRule& drop, ClickPiece& piece) {
  const char* const begin = text.data();
  ClickRow row(layout);
  PieceBuilder builder(layout, options, drop, piece);
  while (!text.empty()) {
    const int64_t at = first_byte + (text.data() - begin);
    const std::optional<std::string_view> line = take_line(text);
    if (!line) {
      piece.too_long = piece.lines;
      return;
    }
    if (is_blank_line(*line, layout.separator)) {
      ++piece.lines;
      ++piece.blank;
      continue;
    }
    row.begin(builder.open());
    if (parse_line(layout, *line, row))
      builder.close(row, at);
    else
      builder.reject(explain_line(layout, *line));
  }
}

ClickColumnWriter::ClickColumnWriter(const std::string& folder, const TextLayout& layout, int key_bytes,
                                     const ClickFolder& clicks)
    : folder_(folder),
      label_count_(std::max(layout.labels, 1)),
      dense_count_(layout.dense),
      key_bytes_(key_bytes),
      labels_(ClickFolder::labels_file(folder), RawFile::Mode::Create),
      dense_(ClickFolder::dense_file(folder), RawFile::Mode::Create),
      keys_written_(static_cast<size_t>(layout.tables)),
      kept_written_(clicks.kept.size()) {
  if (clicks.sample_weights)
    sample_weights_.emplace(ClickFolder::sample_weights_file(folder), RawFile::Mode::Create);
  for (const std::string& column : clicks.kept) {
    kept_.emplace_back(ClickFolder::kept_file(folder, column), RawFile::Mode::Create);
    kept_ends_.emplace_back(ClickFolder::kept_ends_file(folder, column), RawFile::Mode::Create);
  }
  for (int t = 0; t < layout.tables; ++t) keys_.emplace_back(key_file(t), RawFile::Mode::Create);
  for (int t = layout.tables - layout.bags; t < layout.tables; ++t) {
    ends_.emplace_back(clicks.ends_file(folder, t), RawFile::Mode::Create);
    weights_.emplace_back();
    if (clicks.tables[static_cast<size_t>(t)].weighted)
      weights_.back().emplace(clicks.weights_file(folder, t), RawFile::Mode::Create);
  }
}

std::string ClickColumnWriter::key_file(int table) const { return fmt::format("{}/keys{}", folder_, table); }

ClickColumnWriter::Place ClickColumnWriter::take_place(const ClickPiece& piece) {
  Place place{samples_, keys_written_, kept_written_};
  samples_ += piece.samples();
  for (size_t k = 0; k < kept_.size(); ++k) kept_written_[k] += std::ssize(piece.kept[k].bytes);
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

void ClickColumnWriter::write_weights(size_t bag, std::span<const float> weights, const Place& place) {
  if (weights_[bag]) weights_[bag]->write_all(weights, place.keys[keys_.size() - ends_.size() + bag]);
}

void ClickColumnWriter::write_kept(size_t column, const ClickPiece::Texts& texts, const Place& place) {
  auto end = static_cast<uint64_t>(place.kept[column]);
  kept_[column].write_all(std::span(texts.bytes), place.kept[column]);
  std::vector<uint64_t> ends;
  for (const uint32_t length : texts.lengths) ends.push_back(end += length);
  kept_ends_[column].write_all(std::span<const uint64_t>(ends), place.sample);
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
      labels_.write_all(std::span(piece.labels), place.sample * label_count_);
      dense_.write_all(std::span(piece.dense), place.sample * dense_count_);
      if (sample_weights_) sample_weights_->write_all(std::span(piece.sample_weights), place.sample);
      for (size_t k = 0; k < kept_.size(); ++k) write_kept(k, piece.kept[k], place);
      for (size_t t = 0; t < keys_.size(); ++t) write_keys(t, piece.keys[t], place.keys[t]);
      for (size_t b = 0; b < ends_.size(); ++b) {
        write_ends(b, piece.lengths[b], place);
        write_weights(b, piece.weights[b], place);
      }
    }
  });
}

}  // namespace trifold
