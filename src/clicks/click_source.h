// ClickSource is an indexed list of click samples in their stored order. ClickOrder shuffles them for training.
// ClickFeed combines both into the global batches that a training loop reads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "clicks/click_batch.h"

namespace trifold {

// Identifies the first value of each sample's bag in a table: equal integers for equal values, 0 for an empty bag.
struct ClickValues {
  std::vector<uint64_t> of_samples;
  int64_t unknown = 0;  // samples that have 0 because their value is not in the dictionary and was not stored
};

// All functions are const and may be called from several threads at a time.
class ClickSource {
 public:
  virtual ~ClickSource() = default;
  virtual const ClickSchema& schema() const = 0;
  virtual int64_t samples() const = 0;
  // Fills each sample i of `out` with stored sample positions[i]. Positions must be in [0, samples()). BadInput, naming
  // file, sample or line, column and limit, for an id outside its table.
  virtual void fill(std::span<const int64_t> positions, ClickPart& out) const = 0;

  // The first sample with the largest bag of a table, for messages; it may read a file. nullopt if all bags have the
  // same size, or if the source would have to read all samples to know.
  virtual std::optional<int64_t> longest_bag(int /*table*/) const { return std::nullopt; }

  // Appends to `out` the keys of stored samples in a table whose ids are keys, bag after bag.
  virtual void add_keys(int table, std::span<const int64_t> positions, std::vector<uint64_t>& out) const;

  // The first values of all stored samples in a table. By default values are identified by their ids.
  virtual ClickValues first_values(int table) const;

  // The stored samples without any label, ascending. It may read a file.
  virtual std::vector<int64_t> unlabelled() const { return {}; }

  // The columns of the input whose texts are kept with the samples, and the text of a sample in one of them.
  virtual std::vector<std::string> kept_columns() const { return {}; }
  virtual std::string kept(int64_t sample, int column) const;

  // Fills a batch with stored samples [first, first + count), and padding up to `batch_samples` samples (-1: none).
  void read(int64_t first, int64_t count, ClickBatchBuffer& out, int64_t batch_samples = -1) const;
};

// Samples [begin, end) of another source, which must outlive it.
class ClickSlice final : public ClickSource {
 public:
  ClickSlice(const ClickSource& whole, int64_t begin, int64_t end);
  const ClickSchema& schema() const override { return whole_.schema(); }
  int64_t samples() const override { return end_ - begin_; }
  void fill(std::span<const int64_t> positions, ClickPart& out) const override;
  void add_keys(int table, std::span<const int64_t> positions, std::vector<uint64_t>& out) const override;

 private:
  std::vector<int64_t> in_whole(std::span<const int64_t> positions) const;

  const ClickSource& whole_;
  int64_t begin_;
  int64_t end_;
};

// A selection of samples of another source, which must outlive it, in the given order.
class ClickSelection final : public ClickSource {
 public:
  ClickSelection(const ClickSource& whole, std::vector<int64_t> samples);
  const ClickSchema& schema() const override { return whole_.schema(); }
  int64_t samples() const override { return std::ssize(samples_); }
  void fill(std::span<const int64_t> positions, ClickPart& out) const override;
  void add_keys(int table, std::span<const int64_t> positions, std::vector<uint64_t>& out) const override;
  ClickValues first_values(int table) const override;

 private:
  std::vector<int64_t> in_whole(std::span<const int64_t> positions) const;

  const ClickSource& whole_;
  std::vector<int64_t> samples_;
};

// All samples of `whole` except `without`, an ascending list of the samples that have no label.
ClickSelection labelled_samples(const ClickSource& whole, const std::vector<int64_t>& without);

// Maps sample k of epoch e to a stored sample: a pure function of (seed, e, k), so resuming needs one number.
//
// The stored samples are cut into blocks of consecutive samples. Each epoch permutes the blocks; then the samples of
// each window of blocks are permuted. So a mapped file is read a block at a time (about 160 KB of Criteo) with a window
// (about 160 MB) in memory, whereas a uniform permutation would read a page for every sample. A data set that fits into
// one window is shuffled uniformly.
class ClickOrder {
 public:
  static constexpr int64_t kBlock = 1024;   // samples
  static constexpr int64_t kWindow = 1024;  // blocks

  // Without a seed every epoch has the stored order.
  ClickOrder(int64_t samples, std::optional<uint64_t> seed, int64_t block = kBlock, int64_t window = kWindow);

  int64_t samples() const { return samples_; }
  // The stored positions of samples [first, first + positions.size()) of the epoch.
  void positions(int64_t epoch, int64_t first, std::span<int64_t> positions) const;

 private:
  int64_t samples_;
  std::optional<uint64_t> seed_;
  int64_t block_;
  int64_t window_;
};

// The global batches of an endless sequence of epochs over a source, each epoch in its own order. The last batch of an
// epoch may be short; it is used like any other, or dropped (`drop_last`).
class ClickFeed {
 public:
  // Without a seed epochs have the stored order. `source` must outlive the feed.
  ClickFeed(const ClickSource& source, std::optional<uint64_t> seed, int64_t global_batch,
            bool drop_last = false);

  int64_t batches_per_epoch() const { return batches_; }
  // Samples of the short last batch of an epoch, dropped or not; 0 if all batches are full.
  int64_t short_batch() const { return source_.samples() % global_; }
  // Samples of global batch `step` (counted from 0), padding excluded.
  int64_t real_samples(int64_t step) const;
  // Sets `out` to the stored positions of all samples of global batch `step`, or to the keys that the samples at such
  // positions have in a table.
  void positions(int64_t step, std::vector<int64_t>& out) const;
  void keys(std::span<const int64_t> positions, int table, std::vector<uint64_t>& out) const;
  // Fills `out` with samples [rank * share, (rank + 1) * share) of global batch `step`; those beyond its end
  // are padding.
  void read(int64_t step, int rank, int64_t share, ClickBatchBuffer& out) const;

 private:
  const ClickSource& source_;
  ClickOrder order_;
  int64_t global_;
  int64_t batches_;  // per epoch
};

}  // namespace trifold
