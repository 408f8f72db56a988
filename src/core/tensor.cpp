#include "core/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "core/device.h"

namespace trifold {

namespace {

constexpr size_t kAlignment = 128;             // two cache lines: neighbours in an arena never share one
constexpr size_t kHugePage = size_t{1} << 21;  // blocks from this size on ask for huge pages

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Shape::Shape(std::initializer_list<int64_t> extents)
    : Shape(std::span<const int64_t>(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const int64_t> extents) : rank_(static_cast<int>(extents.size())) {
  check(rank_ <= kMaxRank, "a tensor has at most {} dims, not {}", kMaxRank, extents.size());
  std::copy(extents.begin(), extents.end(), extents_.begin());
}

void Shape::cannot_exist() const {
  fail("the shape {} is impossible: a dim is negative, or it has too many elements", to_string(*this));
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape.extents(), ", ")); }

void Tensor::scalar_has_no_rows() const { fail("a scalar has no rows"); }

void Tensor::wrong_type(DType wanted) const {
  fail("tensor {} is {}, not {}", to_string(shape), name_of(dtype), name_of(wanted));
}

Tensor Tensor::reshape(const Shape& other) const {
  if (other.elements() != elements()) fail("{} cannot be viewed as {}", to_string(shape), to_string(other));
  return {data, dtype, other};
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  if (rank() < 1 || begin < 0 || begin > end || end > shape[0])
    fail("rows [{}, {}) of {} do not exist", begin, end, to_string(shape));
  const int64_t row = shape[0] == 0 ? 0 : elements() / shape[0];
  Shape part = shape;
  part[0] = end - begin;
  auto* base = static_cast<std::byte*>(data);
  return {base == nullptr ? nullptr : base + static_cast<size_t>(begin * row) * size_of(dtype), dtype, part};
}

Tensor Tensor::flat(int64_t begin, int64_t end) const { return reshape({elements()}).rows(begin, end); }

Buffer::Buffer(size_t bytes, Device* device) : bytes_(bytes), device_(device) {
  if (bytes == 0) return;
  if (device != nullptr) {
    data_ = static_cast<std::byte*>(device->allocate(bytes));
    return;
  }
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED, "out of memory: {} bytes could not be allocated", bytes);
  if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(memory);
}

Buffer Buffer::shared(size_t bytes, Device* device) {
  if (device == nullptr || bytes == 0) return Buffer(bytes);
  Buffer buffer;
  buffer.data_ = static_cast<std::byte*>(device->allocate_shared(bytes));
  buffer.bytes_ = bytes;
  buffer.device_ = device;
  buffer.shared_ = true;
  return buffer;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  if (device_ == nullptr) {
    munmap(data_, bytes_);
  } else if (shared_) {
    device_->release_shared(data_);
  } else {
    device_->release(data_);
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      device_(std::exchange(other.device_, nullptr)),
      shared_(std::exchange(other.shared_, false)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(device_, other.device_);
  std::swap(shared_, other.shared_);
  return *this;
}

Tensor Buffer::tensor(DType dtype, const Shape& shape) const {
  const Tensor view{data_, dtype, shape};
  if (view.bytes() > bytes_)
    fail("a buffer of {} bytes cannot hold {} {}", bytes_, name_of(dtype), to_string(shape));
  return view;
}

Arena Arena::measuring() {
  Arena arena(0);
  arena.measuring_ = true;
  return arena;
}

Tensor Arena::take(DType dtype, const Shape& shape) {
  const size_t need = round_up(static_cast<size_t>(shape.elements()) * size_of(dtype), kAlignment);
  const size_t begin = used_;
  if (!measuring_ && begin + need > buffer_.bytes())
    fail("an arena of {} bytes is too small: {} are in use and {} {} needs {} more", buffer_.bytes(), begin,
         name_of(dtype), to_string(shape), need);
  used_ += need;
  peak_ = std::max(peak_, used_);
  return {measuring_ ? nullptr : buffer_.data() + begin, dtype, shape};
}

}  // namespace trifold
