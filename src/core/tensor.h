// Shape, Tensor (a view of memory), Buffer (an owner of memory) and Arena (a bump allocator).
//
// A Tensor is a typed, shaped, contiguous, row-major view of memory that something else owns. It has no
// strides, no broadcasting and no reference count; transposes are GEMM flags. Copying a Tensor copies the
// view.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/dtype.h"

namespace trifold {

// The extents of a tensor, slowest dim first. At most kMaxRank dims; a Shape of rank 0 has one element.
// Asking a shape with a negative extent, or with more than kMaxElements elements, for its number of elements
// is an Error, so sizes in bytes never overflow.
class Shape {
 public:
  static constexpr int kMaxRank = 4;
  static constexpr int64_t kMaxElements = int64_t{1} << 56;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents);
  explicit Shape(std::span<const int64_t> extents);

  int rank() const { return rank_; }
  int64_t operator[](int dim) const {
    assert(0 <= dim && dim < rank_);
    return extents_[static_cast<size_t>(dim)];
  }
  int64_t& operator[](int dim) {
    assert(0 <= dim && dim < rank_);
    return extents_[static_cast<size_t>(dim)];
  }
  int64_t elements() const { return product(rank_); }
  // The product of the first `dims` extents: the number of elements that these dims index.
  int64_t product(int dims) const {
    int64_t count = 1;
    bool fits = true;
    for (int dim = 0; dim < dims; ++dim) {
      const int64_t extent = extents_[static_cast<size_t>(dim)];
      fits = fits && extent >= 0 && !__builtin_mul_overflow(count, extent, &count);
    }
    if (!fits || count > kMaxElements) [[unlikely]]
      cannot_exist();
    return count;
  }
  std::span<const int64_t> extents() const { return {extents_.data(), static_cast<size_t>(rank_)}; }
  bool operator==(const Shape& other) const = default;

 private:
  [[noreturn]] void cannot_exist() const;

  int rank_ = 0;
  std::array<int64_t, kMaxRank> extents_{};
};

// "[4, 256, 768]"
std::string to_string(const Shape& shape);

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::F32;
  Shape shape;

  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(dtype); }
  int rank() const { return shape.rank(); }
  int64_t dim(int i) const { return shape[i]; }
  // The product of all dims but the last: a tensor is also viewed as a matrix [row_count, last dim].
  int64_t row_count() const {
    if (rank() == 0) [[unlikely]]
      scalar_has_no_rows();
    return last_dim() == 0 ? 0 : shape.product(rank() - 1);
  }
  int64_t last_dim() const { return shape[shape.rank() - 1]; }

  // The elements as T; throws if T is not the dtype.
  template <class T>
  T* as() const {
    if (TypeOf<T>::kValue != dtype) [[unlikely]]
      wrong_type(TypeOf<T>::kValue);
    return static_cast<T*>(data);
  }

  // A view of the same memory in another shape with the same number of elements.
  Tensor reshape(const Shape& other) const;
  // Indices [begin, end) of the first dim.
  Tensor rows(int64_t begin, int64_t end) const;
  // Elements [begin, end) in memory order, as a tensor of one dim.
  Tensor flat(int64_t begin, int64_t end) const;
  // All elements in memory order, as a tensor of one dim.
  Tensor flat() const { return reshape({elements()}); }

 private:
  [[noreturn]] void wrong_type(DType wanted) const;
  [[noreturn]] void scalar_has_no_rows() const;
};

class Device;

// Owns one aligned, zero-initialised block of memory, on the host (large blocks ask for huge pages) or on a
// device.
class Buffer {
 public:
  Buffer() = default;
  // On `device`, which must outlive the buffer; null is the host.
  explicit Buffer(size_t bytes, Device* device = nullptr);
  // Host memory that `device` can read and write too: for results that the host reads after each step.
  static Buffer shared(size_t bytes, Device* device);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  Device* device() const { return device_; }
  size_t bytes() const { return bytes_; }
  // A view of the first elements; throws if the buffer is too small.
  Tensor tensor(DType dtype, const Shape& shape) const;

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Device* device_ = nullptr;
  bool shared_ = false;
};

// A bump allocator over one Buffer. `take` never frees; `release(mark)` returns everything taken since
// `mark`. Addresses repeat whenever the sequence of calls repeats, so a step uses the same memory every time.
//
// A *measuring* arena owns no memory: its tensors have null data and it only records how much would be
// needed. A walk of a plan with measuring arenas and a Dry Stream computes the memory of a step before anything is
// allocated.
class Arena {
 public:
  using Mark = size_t;

  explicit Arena(size_t capacity, Device* device = nullptr) : buffer_(capacity, device) {}
  static Arena measuring();

  // The content of the returned tensor is unspecified. Throws if the capacity is exceeded.
  Tensor take(DType dtype, const Shape& shape);
  Mark mark() const { return used_; }
  void release(Mark mark) {
    check(mark <= used_, "an arena with {} bytes in use cannot be released to mark {}", used_, mark);
    used_ = mark;
  }
  void reset() { used_ = 0; }
  // Restores a fill level that an earlier, identical sequence of `take` calls reached. Used when a captured
  // graph stands in for those calls: their tensors are still in place.
  void restore(Mark mark) {
    check(mark <= capacity(), "an arena of {} bytes cannot be filled to mark {}", capacity(), mark);
    used_ = mark;
  }

  size_t used() const { return used_; }
  size_t peak() const { return peak_; }
  size_t capacity() const { return buffer_.bytes(); }

 private:
  Buffer buffer_;
  bool measuring_ = false;
  size_t used_ = 0;
  size_t peak_ = 0;
};

}  // namespace trifold
