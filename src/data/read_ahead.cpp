#include "data/read_ahead.h"

#include <algorithm>

#include "core/error.h"

namespace trifold {

BatchBuffer::BatchBuffer(int64_t samples, int64_t seq_length)
    : memory_(4 * static_cast<size_t>(samples * seq_length) * sizeof(int32_t)) {
  const Shape shape{samples, seq_length};
  const int64_t each = samples * seq_length;
  const auto part = [&](int64_t index, DType dtype) {
    return Tensor{memory_.data() + index * each * static_cast<int64_t>(sizeof(int32_t)), dtype, shape};
  };
  batch_.tokens = part(0, DType::I32);
  batch_.labels = part(1, DType::I32);
  batch_.positions = part(2, DType::I32);
  batch_.loss_weight = part(3, DType::F32);
}

ReadAhead::ReadAhead(const DataSource& source, const ReadOrder& order, int held, int ahead)
    : source_(source), order_(order), held_(held) {
  check(held >= 1 && ahead >= 1, "read-ahead needs at least one batch held and one ahead, not {} and {}",
        held, ahead);
  check(order.micro_batch_size >= 1 && order.count >= 0, "read-ahead of {} batches of {} samples",
        order.count, order.micro_batch_size);
  slots_.reserve(static_cast<size_t>(held + ahead));
  for (int i = 0; i < held + ahead; ++i) slots_.emplace_back(order.micro_batch_size, source.seq_length());
  thread_ = std::thread([this] { read_loop(); });
}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

int64_t ReadAhead::first_sample(int64_t index) const {
  const auto step = static_cast<int64_t>(order_.permutation.size());
  const int64_t micro =
      step == 0 ? index : index / step * step + order_.permutation[static_cast<size_t>(index % step)];
  return order_.first_sample + micro * order_.stride;
}

// Batch i may overwrite its slot once batch i - slots has been given back: when `held` batches after it were
// taken.
void ReadAhead::read_loop() {
  for (int64_t i = 0; i < order_.count; ++i) {
    {
      std::unique_lock lock(mutex_);
      const int64_t free_from = i - static_cast<int64_t>(slots_.size()) + 1 + held_;
      // The thread belongs to this object, whose destructor ends the wait: it cannot hang by itself.
      changed_.wait(lock, [&] { return stopping_ || taken_ >= free_from; });
      if (stopping_) return;
    }
    std::exception_ptr error;
    try {
      read_padded(source_, slot(i), first_sample(i), order_.end);
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      if (error) {
        error_ = error;
      } else {
        ++read_;
      }
    }
    changed_.notify_all();
    if (error) return;
  }
}

const Batch& ReadAhead::get(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  check(taken_ < order_.count, "all {} micro-batches have been read already", order_.count);
  const bool came = changed_.wait_for(lock, timeout, [&] { return read_ > taken_ || error_; });
  check(came, "reading samples from {} on takes longer than {} ms", first_sample(taken_), timeout.count());
  if (read_ == taken_) std::rethrow_exception(error_);
  const int64_t index = taken_++;
  lock.unlock();
  changed_.notify_all();
  return slot(index);
}

}  // namespace trifold
