#include "clicks/click_columns.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"

namespace trifold {

namespace {

// Files are little-endian, like all supported machines; nothing in them is aligned.
template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

void check_rules(const ClickRules& rules) {
  if (rules.transform == DenseTransform::LogMin)
    bad_input("the dense transform logmin needs the minimum over all samples: preprocess the data with it");
}

float checked_dense(float x, const std::string& path, int64_t sample, int64_t feature) {
  if (!std::isfinite(x)) [[unlikely]]
    bad_input("{}: sample {}, dense feature {} is {}, not a number", path, sample, feature, x);
  return x;
}

}  // namespace

RecordClicks::RecordClicks(const std::string& path, const ClickSchema& schema, const RecordLayout& layout,
                           const ClickRules& rules)
    : file_(path), schema_(schema), layout_(layout), rules_(rules), words_(1 + schema.dense) {
  check_schema(schema);
  check_rules(rules);
  schema_.dense_transform = name_of(rules.transform);
  for (ClickTable& table : schema_.tables) {
    table.mapping = mapping_of(rules.policy);
    words_ += table.max_ids;
  }
  for (size_t x = 0; x < small_.size(); ++x)
    small_[x] = transform_dense(rules.transform, static_cast<float>(x));
  const int64_t bytes = 4 * words_;
  if (file_.size() == 0) bad_input("{}: the file is empty", path);
  if (file_.size() % bytes != 0)
    bad_input(
        "{}: {} bytes are not a whole number of samples of {} bytes (a label, {} dense numbers, {} ids): {} "
        "bytes are left over; the file is truncated, or has another schema",
        path, file_.size(), bytes, schema.dense, words_ - 1 - schema.dense, file_.size() % bytes);
  samples_ = file_.size() / bytes;
}

const std::byte* RecordClicks::record(int64_t sample) const {
  return file_.bytes().data() + 4 * words_ * sample;
}

void RecordClicks::fill(std::span<const int64_t> positions, ClickPart& out) const {
  constexpr size_t kAhead = 8;
  for (size_t i = 0; i < positions.size(); ++i) {
    if (i + kAhead < positions.size()) __builtin_prefetch(record(positions[i + kAhead]));
    const auto slot = static_cast<int64_t>(i);
    const int64_t sample = positions[i];
    const std::byte* at = record(sample);
    const double number = layout_.float_label ? static_cast<double>(load<float>(at)) : load<int32_t>(at);
    if (number == 0 || number == 1)
      out.label(slot) = static_cast<float>(number);
    else if (rules_.need == LabelNeed::Irrelevant)
      out.leave_out(slot, 0);
    else
      bad_input("{}: the label of sample {} is {}, not 0 or 1", file_.path(), sample, number);
    at += 4;
    float* dense = out.dense(slot);
    for (int d = 0; d < schema_.dense; ++d, at += 4) {
      if (layout_.dense == RecordDense::F32) {
        dense[d] = transform_dense(rules_.transform, checked_dense(load<float>(at), file_.path(), sample, d));
      } else if (const auto bits = load<uint32_t>(at); bits < small_.size()) {
        dense[d] = small_[bits];
      } else {
        dense[d] = transform_dense(rules_.transform, layout_.dense == RecordDense::I32
                                                         ? static_cast<float>(static_cast<int32_t>(bits))
                                                         : static_cast<float>(bits));
      }
    }
    const IdLocation place{file_.path(), "sample", sample};
    for (int t = 0; t < schema_.table_count(); ++t) {
      const ClickTable& table = schema_.table(t);
      int32_t* ids = out.bag(t, slot, table.max_ids);
      for (int k = 0; k < table.max_ids; ++k, at += 4)
        ids[k] = bounded_id(load<uint32_t>(at), table, rules_.policy, place);
    }
  }
}

ColumnClicks::ColumnClicks(const ColumnFiles& files, const ClickSchema& schema, const ClickRules& rules)
    : schema_(schema), rules_(rules), labels_(files.labels), dense_type_(files.dense_type) {
  check_schema(schema);
  check_rules(rules);
  check(files.ids.size() == schema.tables.size(), "there are {} columns of ids, but {} tables",
        files.ids.size(), schema.tables.size());
  if (labels_.size() == 0) bad_input("{}: the file is empty", files.labels);
  if (labels_.size() % schema.label_count() != 0)
    bad_input("{}: {} bytes are not a whole number of samples of {} labels: the file is truncated",
              files.labels, labels_.size(), schema.label_count());
  samples_ = labels_.size() / schema.label_count();
  const auto check_size = [&](const MappedFile& file, int64_t bytes) {
    if (file.size() != samples_ * bytes)
      bad_input(
          "{} has {} bytes; {} samples of {} bytes need {} ({} has {} labels): one of the files is "
          "truncated, or they do not belong together",
          file.path(), file.size(), samples_, bytes, samples_ * bytes, files.labels, samples_);
  };
  if (schema.dense > 0) {
    dense_ = std::make_unique<MappedFile>(files.dense);
    check_size(*dense_, schema.dense * static_cast<int64_t>(size_of(dense_type_)));
  }
  if (schema.sample_weights) {
    sample_weights_ = std::make_unique<MappedFile>(files.sample_weights);
    check_size(*sample_weights_, sizeof(float));
  }
  for (const KeptColumn& column : files.kept) {
    kept_.push_back({column.name, MappedFile(column.path), MappedFile(column.ends)});
    check_size(kept_.back().ends, sizeof(uint64_t));
  }
  for (size_t t = 0; t < files.ids.size(); ++t) {
    const IdColumn& column = files.ids[t];
    ids_.emplace_back(column.path);
    id_bytes_.push_back(column.bytes);
    ends_.emplace_back(column.ends.empty() ? nullptr : std::make_unique<MappedFile>(column.ends));
    weights_.emplace_back(column.weights.empty() ? nullptr : std::make_unique<MappedFile>(column.weights));
    unknown_.emplace_back(column.unknown.empty() ? nullptr : std::make_unique<MappedFile>(column.unknown));
    if (ends_.back()) {
      check_size(*ends_.back(), sizeof(uint64_t));
      check_last_end(t);
      continue;
    }
    if (schema.tables[t].max_ids != 1)
      bad_input("{}: a column has one id a sample, table {} has {}", column.path, schema.tables[t].name,
                schema.tables[t].max_ids);
    check_size(ids_.back(), id_bytes_.back());
  }
}

// Detects a file of ids that is truncated or too long before training reaches the sample.
void ColumnClicks::check_last_end(size_t table) const {
  const MappedFile& ends = *ends_[table];
  const MappedFile& ids = ids_[table];
  const auto last = load<uint64_t>(ends.bytes().data() + ends.size() - sizeof(uint64_t));
  const int64_t bytes = id_bytes_[table];
  if (ids.size() % bytes != 0 || static_cast<uint64_t>(ids.size() / bytes) != last)
    bad_input(
        "{} has {} bytes; the last bag in {} ends at id {}, and an id has {} byte{}: one of the files is "
        "truncated, or they do not belong together",
        ids.path(), ids.size(), ends.path(), last, bytes, bytes == 1 ? "" : "s");
  if (const auto& weights = weights_[table];
      weights && weights->size() != ids.size() / bytes * int64_t{sizeof(float)})
    bad_input(
        "{} has {} bytes; the {} ids of {} need {}: one of the files is truncated, "
        "or they do not belong together",
        weights->path(), weights->size(), last, ids.path(), last * sizeof(float));
}

// Column by column: the loads of one column are independent, so many are in flight at a time.
void ColumnClicks::fill(std::span<const int64_t> positions, ClickPart& out) const {
  fill_labels(positions, out);
  if (sample_weights_) fill_sample_weights(positions, out);
  if (dense_) {
    if (dense_type_ == DType::F16) {
      fill_dense<Float16>(positions, out);
    } else {
      fill_dense<float>(positions, out);
    }
  }
  for (int t = 0; t < schema_.table_count(); ++t) fill_ids(t, positions, out);
}

void ColumnClicks::fill_labels(std::span<const int64_t> positions, ClickPart& out) const {
  const int64_t count = schema_.label_count();
  for (size_t i = 0; i < positions.size(); ++i)
    for (int64_t l = 0; l < count; ++l) {
      const auto at = static_cast<size_t>(positions[i] * count + l);
      const auto label = static_cast<uint8_t>(labels_.bytes()[at]);
      if (label <= 1)
        out.label(static_cast<int64_t>(i), l) = label;
      else if (label == kNoLabel && rules_.missing_negative && count == 1)
        out.label(static_cast<int64_t>(i)) = 0;
      else if (label == kNoLabel && (count > 1 || rules_.need != LabelNeed::Required))
        out.leave_out(static_cast<int64_t>(i), l);
      else
        bad_input("{}: the label of sample {} is {}, not 0 or 1", labels_.path(), positions[i], label);
    }
}

void ColumnClicks::fill_sample_weights(std::span<const int64_t> positions, ClickPart& out) const {
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto weight =
        load<float>(sample_weights_->bytes().data() + positions[i] * static_cast<int64_t>(sizeof(float)));
    if (!(weight >= 0) || !std::isfinite(weight)) [[unlikely]]
      bad_input("{}: the weight of sample {} is {}, not a number of 0 or more", sample_weights_->path(),
                positions[i], weight);
    out.weigh(static_cast<int64_t>(i), weight);
  }
}

std::vector<int64_t> ColumnClicks::unlabelled() const {
  const int64_t count = schema_.label_count();
  std::vector<int64_t> without;
  if (!schema_.labeled || rules_.need == LabelNeed::Required || (rules_.missing_negative && count == 1))
    return without;
  for (int64_t sample = 0; sample < samples_; ++sample) {
    const auto labels =
        labels_.bytes().subspan(static_cast<size_t>(sample * count), static_cast<size_t>(count));
    if (std::all_of(labels.begin(), labels.end(),
                    [](std::byte label) { return label == std::byte{kNoLabel}; }))
      without.push_back(sample);
  }
  return without;
}

std::vector<std::string> ColumnClicks::kept_columns() const {
  std::vector<std::string> names;
  for (const Kept& column : kept_) names.push_back(column.name);
  return names;
}

std::string ColumnClicks::kept(int64_t sample, int column) const {
  const Kept& of = kept_[static_cast<size_t>(column)];
  const std::byte* at = of.ends.bytes().data() + sample * static_cast<int64_t>(sizeof(uint64_t));
  const uint64_t first = sample == 0 ? 0 : load<uint64_t>(at - sizeof(uint64_t));
  const auto end = load<uint64_t>(at);
  if (first > end || end > static_cast<uint64_t>(of.texts.size()))
    bad_input("{}: the text of sample {} is bytes {} to {} of {}: the file is damaged", of.ends.path(),
              sample, first, end, of.texts.size());
  return std::string(of.texts.text().substr(first, end - first));
}

template <class T>
void ColumnClicks::fill_dense(std::span<const int64_t> positions, ClickPart& out) const {
  const std::byte* data = dense_->bytes().data();
  for (size_t i = 0; i < positions.size(); ++i) {
    const std::byte* at = data + positions[i] * schema_.dense * static_cast<int64_t>(sizeof(T));
    float* row = out.dense(static_cast<int64_t>(i));
    for (int d = 0; d < schema_.dense; ++d, at += sizeof(T)) {
      const float x = checked_dense(static_cast<float>(load<T>(at)), dense_->path(), positions[i], d);
      row[d] = transform_dense(rules_.transform, x);
    }
  }
}

ColumnClicks::Bag ColumnClicks::bag_of(int table, int64_t sample) const {
  const auto t = static_cast<size_t>(table);
  if (!ends_[t]) return {sample, 1};
  const std::byte* at = ends_[t]->bytes().data() + sample * static_cast<int64_t>(sizeof(uint64_t));
  const uint64_t first = sample == 0 ? 0 : load<uint64_t>(at - sizeof(uint64_t));
  const auto end = load<uint64_t>(at);
  const auto most = static_cast<uint64_t>(schema_.table(table).max_ids);
  const auto all = static_cast<uint64_t>(ids_[t].size() / id_bytes_[t]);
  if (first > end || end > all || end - first > most) [[unlikely]]
    bad_input("{}: sample {} has the ids from {} to {} of {}, and at most {}: the file is damaged",
              ends_[t]->path(), sample, first, end, all, most);
  return {static_cast<int64_t>(first), static_cast<int>(end - first)};
}

void ColumnClicks::fill_weights(int table, int64_t sample, const Bag& bag, ClickPart& out) const {
  if (bag.count == 0) return;
  float* to = out.bag_weights(table, bag.count);
  const auto& file = weights_[static_cast<size_t>(table)];
  if (!file) {
    std::fill_n(to, bag.count, 1.0F);
    return;
  }
  std::memcpy(to, file->bytes().data() + bag.first * int64_t{sizeof(float)},
              static_cast<size_t>(bag.count) * sizeof(float));
  for (int k = 0; k < bag.count; ++k)
    if (!std::isfinite(to[k])) [[unlikely]]
      bad_input("{}: the weight of id {} of sample {} is {}, not a number", file->path(), k, sample, to[k]);
}

std::optional<int64_t> ColumnClicks::longest_bag(int table) const {
  if (!ends_[static_cast<size_t>(table)]) return std::nullopt;
  int64_t longest = 0;
  int most = 0;
  for (int64_t sample = 0; sample < samples_; ++sample) {
    const int count = bag_of(table, sample).count;
    if (count <= most) continue;
    most = count;
    longest = sample;
  }
  return longest;
}

uint64_t ColumnClicks::id_at(size_t table, int64_t place) const {
  const std::byte* at = ids_[table].bytes().data() + place * id_bytes_[table];
  switch (id_bytes_[table]) {
    case 1:
      return load<uint8_t>(at);
    case 2:
      return load<uint16_t>(at);
    case 4:
      return load<uint32_t>(at);
    default:
      return load<uint64_t>(at);
  }
}

ClickValues ColumnClicks::first_values(int table) const {
  constexpr uint64_t kHash = uint64_t{1} << 63;  // apart from ids
  const ClickTable& spec = schema_.table(table);
  if (!spec.has_other_row()) return ClickSource::first_values(table);
  const auto t = static_cast<size_t>(table);
  const MappedFile* const unknown = unknown_[t].get();
  const int64_t hashes = unknown == nullptr ? 0 : unknown->size() / int64_t{sizeof(uint64_t)};
  ClickValues values;
  values.of_samples.reserve(static_cast<size_t>(samples_));
  int64_t next = 0;  // hash of an unknown value
  for (int64_t sample = 0; sample < samples_; ++sample) {
    const Bag bag = bag_of(table, sample);
    uint64_t first = 0;
    for (int k = 0; k < bag.count; ++k) {
      uint64_t value = id_at(t, bag.first + k);
      if (value == ClickTable::kOtherRow && !spec.keyed()) {
        if (unknown != nullptr && next >= hashes)
          bad_input("{} has {} hashes, and {} has more values with id 1: they do not belong together",
                    unknown->path(), hashes, ids_[t].path());
        const std::byte* const at = unknown == nullptr ? nullptr : unknown->bytes().data() + next++ * 8;
        value = at == nullptr ? 0 : load<uint64_t>(at) | kHash;
        values.unknown += k == 0 && value == 0 ? 1 : 0;
      }
      if (k == 0) first = value;
    }
    values.of_samples.push_back(first);
  }
  return values;
}

void ColumnClicks::add_keys(int table, std::span<const int64_t> positions, std::vector<uint64_t>& out) const {
  const auto t = static_cast<size_t>(table);
  check(schema_.table(table).keyed(), "the ids of table {} are not keys", schema_.table(table).name);
  const std::byte* data = ids_[t].bytes().data();
  const int64_t bytes = id_bytes_[t];
  for (const int64_t position : positions) {
    const Bag bag = bag_of(table, position);
    const std::byte* at = data + bag.first * bytes;
    for (int k = 0; k < bag.count; ++k, at += bytes)
      out.push_back(bytes == 8 ? load<uint64_t>(at) : load<uint32_t>(at));
  }
}

void ColumnClicks::fill_ids(int table, std::span<const int64_t> positions, ClickPart& out) const {
  const auto t = static_cast<size_t>(table);
  const ClickTable& spec = schema_.table(table);
  const std::byte* data = ids_[t].bytes().data();
  const KeyRows* const keys = spec.keyed() ? &out.keys() : nullptr;
  const auto each = [&]<class T>(T) {
    for (size_t i = 0; i < positions.size(); ++i) {
      const Bag bag = bag_of(table, positions[i]);
      const std::byte* at = data + bag.first * static_cast<int64_t>(sizeof(T));
      const IdLocation place{ids_[t].path(), "sample", positions[i]};
      int32_t* ids = out.bag(table, static_cast<int64_t>(i), bag.count);
      for (int k = 0; k < bag.count; ++k, at += sizeof(T))
        ids[k] = keys != nullptr ? keys->row_of(table, load<T>(at))
                                 : bounded_id(load<T>(at), spec, rules_.policy, place);
      if (schema_.weighted) fill_weights(table, positions[i], bag, out);
    }
  };
  switch (id_bytes_[t]) {
    case 1:
      return each(uint8_t{});
    case 2:
      return each(uint16_t{});
    case 4:
      return each(uint32_t{});
    case 8:
      return each(uint64_t{});
    default:
      fail("ids of {} bytes", id_bytes_[t]);
  }
}

}  // namespace trifold
