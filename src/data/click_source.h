// ClickSource: a numbered list of click samples in the order they are stored in; ClickOrder: the order they
// are trained in; ClickReader: both together, which is what a training loop asks for batches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "data/click_batch.h"

namespace trifold {

// All functions are const and may be called from several threads at a time.
class ClickSource {
 public:
  virtual ~ClickSource() = default;
  virtual const ClickSchema& schema() const = 0;
  virtual int64_t samples() const = 0;
  // Fills real sample i of `out`, between its begin() and finish(), with stored sample positions[i]; there
  // are `real` of them. Positions must be in [0, samples()). BadInput, naming file, sample or line, column
  // and limit, for an id outside its table.
  virtual void fill(std::span<const int64_t> positions, ClickBatchBuffer& out) const = 0;

  // Stored samples [first, first + count), and padding up to `batch_samples` (default: none).
  void read(int64_t first, int64_t count, ClickBatchBuffer& out, int64_t batch_samples = -1) const;
};

// Samples [begin, end) of another source, which must outlive it.
class ClickSlice final : public ClickSource {
 public:
  ClickSlice(const ClickSource& whole, int64_t begin, int64_t end);
  const ClickSchema& schema() const override { return whole_.schema(); }
  int64_t samples() const override { return end_ - begin_; }
  void fill(std::span<const int64_t> positions, ClickBatchBuffer& out) const override;

 private:
  const ClickSource& whole_;
  int64_t begin_;
  int64_t end_;
};

// Which stored sample is the k-th of epoch e: a pure function of (seed, e, k), so resume needs one number.
//
// The stored samples are cut into blocks of neighbours. Each epoch has its own permutation of the blocks;
// then windows of consecutive blocks are shuffled sample by sample. A mapped file is so read in pieces of a
// block (some 160 KB of Criteo), of which a window (some 160 MB) is in memory at a time, where a uniform
// permutation would read a page for every sample. A set that fits one window is shuffled uniformly.
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

// Batches of a source in an order. `source` must outlive it.
class ClickReader {
 public:
  ClickReader(const ClickSource& source, std::optional<uint64_t> shuffle_seed);

  const ClickSchema& schema() const { return source_.schema(); }
  int64_t samples() const { return source_.samples(); }  // of an epoch
  // `samples` samples from the `first` of the epoch on; those beyond its end are padding. Where a global
  // batch of B samples is shared by ranks, rank r of n reads B / n of them from step * B + r * B / n on, so
  // the last batch of an epoch, which may be partial, is trained like any other.
  void read(int64_t epoch, int64_t first, int64_t samples, ClickBatchBuffer& out) const;

 private:
  const ClickSource& source_;
  ClickOrder order_;
};

}  // namespace trifold
