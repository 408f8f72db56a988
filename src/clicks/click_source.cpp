#include "clicks/click_source.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "data/permutation.h"

namespace trifold {

void ClickSource::read(int64_t first, int64_t count, ClickBatchBuffer& out, int64_t batch_samples) const {
  check(0 <= first && 0 <= count && first + count <= samples(),
        "samples [{}, {}) were asked for, the data has {}", first, first + count, samples());
  out.fill(first, batch_samples < 0 ? count : batch_samples, count, [&](ClickPart& part) {
    std::vector<int64_t> positions(static_cast<size_t>(part.samples()));
    std::iota(positions.begin(), positions.end(), first + part.first());
    fill(positions, part);
  });
}

ClickValues ClickSource::first_values(int table) const {
  constexpr int64_t kAtOnce = 4096;
  const auto t = static_cast<size_t>(table);
  ClickBatchBuffer buffer(schema(), kAtOnce);
  ClickValues values;
  values.of_samples.reserve(static_cast<size_t>(samples()));
  for (int64_t first = 0; first < samples(); first += kAtOnce) {
    read(first, std::min(kAtOnce, samples() - first), buffer);
    const ClickBatch& batch = buffer.batch();
    const auto* length = batch.lengths[t].as<int32_t>();
    const auto* id = batch.ids[t].as<int32_t>();
    for (int64_t i = 0; i < batch.real; id += length[i++])
      values.of_samples.push_back(length[i] == 0 ? 0 : static_cast<uint64_t>(int64_t{*id} + 1));
  }
  return values;
}

ClickSlice::ClickSlice(const ClickSource& whole, int64_t begin, int64_t end)
    : whole_(whole), begin_(begin), end_(end) {
  check(0 <= begin && begin <= end && end <= whole.samples(), "samples [{}, {}) of a data set that has {}",
        begin, end, whole.samples());
}

void ClickSource::add_keys(int table, std::span<const int64_t>, std::vector<uint64_t>&) const {
  fail("the ids of table {} are not keys", schema().table(table).name);
}

std::string ClickSource::kept(int64_t, int column) const {
  fail("the samples have no column {} of texts", column);
}

ClickSelection::ClickSelection(const ClickSource& whole, std::vector<int64_t> samples)
    : whole_(whole), samples_(std::move(samples)) {}

std::vector<int64_t> ClickSelection::in_whole(std::span<const int64_t> positions) const {
  std::vector<int64_t> there;
  for (const int64_t position : positions) there.push_back(samples_[static_cast<size_t>(position)]);
  return there;
}

void ClickSelection::fill(std::span<const int64_t> positions, ClickPart& out) const {
  whole_.fill(in_whole(positions), out);
}

void ClickSelection::add_keys(int table, std::span<const int64_t> positions,
                              std::vector<uint64_t>& out) const {
  whole_.add_keys(table, in_whole(positions), out);
}

ClickValues ClickSelection::first_values(int table) const {
  ClickValues values = whole_.first_values(table);
  std::vector<uint64_t> here;
  for (const int64_t sample : samples_) here.push_back(values.of_samples[static_cast<size_t>(sample)]);
  values.of_samples = std::move(here);
  return values;
}

ClickSelection labelled_samples(const ClickSource& whole, const std::vector<int64_t>& without) {
  std::vector<int64_t> samples;
  for (int64_t sample = 0; sample < whole.samples(); ++sample)
    if (!std::binary_search(without.begin(), without.end(), sample)) samples.push_back(sample);
  return {whole, std::move(samples)};
}

std::vector<int64_t> ClickSlice::in_whole(std::span<const int64_t> positions) const {
  std::vector<int64_t> shifted(positions.begin(), positions.end());
  for (int64_t& position : shifted) position += begin_;
  return shifted;
}

void ClickSlice::fill(std::span<const int64_t> positions, ClickPart& out) const {
  whole_.fill(in_whole(positions), out);
}

void ClickSlice::add_keys(int table, std::span<const int64_t> positions, std::vector<uint64_t>& out) const {
  whole_.add_keys(table, in_whole(positions), out);
}

ClickOrder::ClickOrder(int64_t samples, std::optional<uint64_t> seed, int64_t block, int64_t window)
    : samples_(samples), seed_(seed), block_(block), window_(window) {
  check(
      samples >= 0 && block >= 1 && window >= 1,
      "an order of {} samples in blocks of {} and windows of {}: samples must be at least 0, the others at least 1",
      samples, block, window);
}

// All blocks have `block_` samples except the last, which may have fewer. `gap_place` is its position in the
// permutation of the blocks: later positions begin earlier by the missing samples.
void ClickOrder::positions(int64_t epoch, int64_t first, std::span<int64_t> positions) const {
  check(0 <= first && first + std::ssize(positions) <= samples_,
        "samples [{}, {}) were asked for, an epoch has {}", first, first + std::ssize(positions), samples_);
  if (!seed_) {
    std::iota(positions.begin(), positions.end(), first);
    return;
  }
  if (positions.empty()) return;
  const int64_t blocks = (samples_ + block_ - 1) / block_;
  const int64_t missing = blocks * block_ - samples_;
  const Permutation block_order(philox_key(*seed_, fmt::format("click blocks, epoch {}", epoch)), blocks);
  const int64_t gap_place = block_order.inverse(blocks - 1);
  const auto start_of = [&](int64_t place) {  // the first sample of the epoch in the place-th block
    return place >= blocks ? samples_ : place * block_ - (place > gap_place ? missing : 0);
  };
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_place = 0;
  std::optional<Permutation> inside;
  // The blocks at the window's places, as they are met.
  std::vector<int64_t> found(static_cast<size_t>(window_), -1);
  for (size_t i = 0; i < positions.size(); ++i) {
    const int64_t k = first + static_cast<int64_t>(i);
    if (!inside || k >= end) {
      int64_t number = k / (window_ * block_);
      if (k >= start_of((number + 1) * window_)) ++number;
      first_place = number * window_;
      begin = start_of(first_place);
      end = start_of(first_place + window_);
      std::fill(found.begin(), found.end(), -1);
      inside.emplace(philox_key(*seed_, fmt::format("clicks of window {}, epoch {}", number, epoch)),
                     end - begin);
    }
    const int64_t within = begin + (*inside)(k - begin);  // a sample of the epoch before windows are shuffled
    int64_t place = within / block_;
    if (within >= start_of(place + 1)) ++place;
    int64_t& block = found[static_cast<size_t>(place - first_place)];
    if (block < 0) block = block_order(place);
    positions[i] = block * block_ + within - start_of(place);
  }
}

ClickFeed::ClickFeed(const ClickSource& source, std::optional<uint64_t> seed, int64_t global_batch,
                     bool drop_last)
    : source_(source),
      order_(source.samples(), seed),
      global_(global_batch),
      batches_((source.samples() + (drop_last ? 0 : global_batch - 1)) / global_batch) {}

int64_t ClickFeed::real_samples(int64_t step) const {
  const int64_t first = step % batches_per_epoch() * global_;
  return std::min(global_, source_.samples() - first);
}

void ClickFeed::positions(int64_t step, std::vector<int64_t>& out) const {
  out.resize(static_cast<size_t>(real_samples(step)));
  order_.positions(step / batches_per_epoch(), step % batches_per_epoch() * global_, out);
}

void ClickFeed::keys(std::span<const int64_t> positions, int table, std::vector<uint64_t>& out) const {
  out.clear();
  source_.add_keys(table, positions, out);
}

void ClickFeed::read(int64_t step, int rank, int64_t share, ClickBatchBuffer& out) const {
  const ClickSchema& schema = source_.schema();
  check(schema.dense == out.schema().dense && schema.tables.size() == out.schema().tables.size(),
        "clicks have {} dense features and {} tables, but the batch has {} and {}", schema.dense,
        schema.tables.size(), out.schema().dense, out.schema().tables.size());
  const int64_t epoch = step / batches_per_epoch();
  const int64_t first = step % batches_per_epoch() * global_ + rank * share;
  const int64_t real = std::clamp<int64_t>(real_samples(step) - rank * share, 0, share);
  out.fill(first, share, real, [&](ClickPart& part) {
    std::vector<int64_t> positions(static_cast<size_t>(part.samples()));
    order_.positions(epoch, first + part.first(), positions);
    source_.fill(positions, part);
  });
}

}  // namespace trifold
