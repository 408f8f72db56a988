// ClickSource: an indexed list of click samples in stored order; ClickOrder: the training order; ClickFeed: both
// combined, from which a training loop reads its batches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "clicks/click_batch.h"

namespace trifold {

// The first value of each sample's bag in a table, as a number: equal for equal values, 0 for none.
struct ClickValues {
  std::vector<uint64_t> of_samples;
  int64_t unknown =
      0;  // samples with 0 because all that is known of their value is that a dictionary lacks it
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

  // The first sample with the most ids in a table whose bags differ; nothing where they do not, or no one knows without
  // reading all of them. For messages: it may read a file.
  virtual std::optional<int64_t> longest_bag(int /*table*/) const { return std::nullopt; }

  // The keys of stored samples in a table whose ids are keys, bag after bag, appended to `out`.
  virtual void add_keys(int table, std::span<const int64_t> positions, std::vector<uint64_t>& out) const;

  // The first values of all stored samples in a table. By default an id stands for its value.
  virtual ClickValues first_values(int table) const;

  // The stored samples without any label, ascending. It may read a file.
  virtual std::vector<int64_t> unlabelled() const { return {}; }

  // The columns of the input whose texts go with the samples, and a sample's text in one of them.
  virtual std::vector<std::string> kept_columns() const { return {}; }
  virtual std::string kept(int64_t sample, int column) const;

  // Stored samples [first, first + count), and padding up to `batch_samples` (default: none).
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

// Some samples of another source, which must outlive it, in this order.
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

// The samples of `whole` that have a label, if `without`, ascending, are those that have none.
ClickSelection labelled_samples(const ClickSource& whole, const std::vector<int64_t>& without);

// Maps sample k of epoch e to a stored sample: a pure function of (seed, e, k), so resuming needs one number.
//
// The stored samples are cut into blocks of neighbours. Each epoch has its own permutation of the blocks;
// then windows of consecutive blocks are shuffled sample by sample. So a mapped file is read a block at a time (some
// 160 KB of Criteo) and a window (some 160 MB) is in memory, whereas a uniform permutation would read a page for every
// sample. A data set that fits into one window is shuffled uniformly.
class ClickOrder {
 public:
  static constexpr int64_t kBlock = 1024;   // samples
  static constexpr int64_t kWindow = 1024;  // blocks

  // Without a seed: the stored order, every epoch.
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

// The global batches of an endless run over a source: epoch after epoch, each in its own order. The last batch of an
// epoch may be short; it is trained like any other, or dropped.
class ClickFeed {
 public:
  // Without a seed the stored order. `source` must outlive it.
  ClickFeed(const ClickSource& source, std::optional<uint64_t> seed, int64_t global_batch,
            bool drop_last = false);

  int64_t batches_per_epoch() const { return batches_; }
  // Samples of the last batch of an epoch if they are fewer than those of the others, dropped or not; else 0.
  int64_t short_batch() const { return source_.samples() % global_; }
  // Samples of global batch `step` (counted from 0) over all ranks.
  int64_t real_samples(int64_t step) const;
  // The stored positions of all samples of global batch `step`, in place of those in `out`; and the keys in a table of
  // the samples at such positions.
  void positions(int64_t step, std::vector<int64_t>& out) const;
  void keys(std::span<const int64_t> positions, int table, std::vector<uint64_t>& out) const;
  // Fills `out` with samples [rank * share, (rank + 1) * share) of global batch `step`; those beyond its end
  // are padding.
  void read(int64_t step, int rank, int64_t share, ClickBatchBuffer& out) const;

 private:
  const ClickSource& source_;
  ClickOrder order_;
  int64_t global_;
  int64_t batches_;  // of an epoch
};

}  // namespace trifold
