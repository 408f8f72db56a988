// Counts the operations that a fake device was asked to compute, and the bytes of their tensors. A tensor that
// is read and written counts twice, as memory traffic without caches.
//
// In counting-only mode large operations and copies are skipped, so that a step of a model of any size can be counted
// within seconds. Its numbers are then meaningless.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace trifold::test {

class Counts {
 public:
  // The instance of this process.
  static Counts& instance();

  // One operation: `signature` names its type, that of its entry among others (entry_of).
  class Operation {
   public:
    explicit Operation(std::string_view signature);
    // Of these tensors; `adds`: a product or a sum over rows adds to its result. Returns whether it is to be
    // done.
    bool call(std::span<const Tensor> tensors, bool adds);
    const std::string& name() const { return name_; }

   private:
    friend class Counts;
    std::string name_;
    unsigned twice_ = 0;    // a bit for each tensor that is read and written,
    unsigned adding_ = 0;   // and for each that is where the call adds to its results
    bool by_rows_ = false;  // its second tensor, a table, is touched where ids say
    bool small_is_done_ = false;
    std::atomic<int64_t> calls_ = 0;
    std::atomic<size_t> bytes_ = 0;
  };

  void count_alone(bool alone) { alone_ = alone; }
  // Whether an operation on so many bytes is skipped.
  bool leaves_out(size_t bytes) const { return alone_.load() && bytes > kSmall; }
  // Calls and bytes since the last call, as lines "name calls bytes"; resets both.
  std::string take();

 private:
  static constexpr size_t kSmall = size_t{1} << 20;

  std::mutex mutex_;
  std::vector<Operation*> operations_;
  std::atomic<bool> alone_ = false;
};

}  // namespace trifold::test
