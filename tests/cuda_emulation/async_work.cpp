#include "cuda_emulation/async_work.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"

namespace trifold::cuda::emulation {

void begin_copy(void* to, const void* from, size_t bytes) {
  const void* code = __builtin_return_address(0);
  see(to, kCopiedBytes, AccessKind::Write, code);
  std::memset(to, 0xff, kCopiedBytes);
  AsyncWork& work = work_of_current();
  work.copies.push_back({to, from, bytes, code, work.copy_group});
}

void commit_copies() { ++work_of_current().copy_group; }

void await_copies(unsigned pending) {
  AsyncWork& work = work_of_current();
  size_t done = 0;
  for (const Copy& copy : work.copies) {
    if (copy.group + pending >= work.copy_group) break;
    see(copy.to, kCopiedBytes, AccessKind::Write, copy.code);
    std::memset(copy.to, 0, kCopiedBytes);
    std::memcpy(copy.to, copy.from, copy.bytes);
    ++done;
  }
  work.copies.erase(work.copies.begin(), work.copies.begin() + static_cast<std::ptrdiff_t>(done));
}

namespace {

constexpr unsigned kLanes = 32;
constexpr unsigned kDepth = 16;       // of the summed index
constexpr unsigned kRowNumbers = 64;  // of a row in shared memory
constexpr uintptr_t kRowBytes = 128;

// The address of number `other` at place k of the summed index: as the rows lie, with bits 4 to 6 changed by bits 7 to 9.
uintptr_t address_in(const SharedMatrix& matrix, unsigned other, unsigned k) {
  const uintptr_t linear = matrix.along
                               ? matrix.address + other * kRowBytes + k * 2
                               : matrix.address + other / kRowNumbers * static_cast<unsigned>(matrix.slab) +
                                     k * kRowBytes + other % kRowNumbers * 2;
  return linear ^ (linear >> 7 & 7) << 4;
}

std::array<float, kDepth> numbers_of(const SharedMatrix& matrix, unsigned other, float (*wide)(uint16_t)) {
  std::array<float, kDepth> numbers;
  for (unsigned k = 0; k < kDepth; ++k) {
    uint16_t bits = 0;
    std::memcpy(&bits, std::bit_cast<const void*>(address_in(matrix, other, k)), sizeof bits);
    numbers[k] = wide(bits);
  }
  return numbers;
}

// The 128 sums of thread `me` of a warpgroup, "Register fragments for wgmma.m64n256k16": as those of mma.m16n8k16 for each
// eight columns; a warp has 16 rows.
std::array<float, 128> product_of(const Product& product, unsigned me) {
  std::array<float, 128> result{};
  const unsigned g = me % kLanes / 4, t = me % 4;
  for (unsigned below = 0; below < 2; ++below) {
    const auto row = numbers_of(product.left, me / kLanes * 16 + g + below * 8, product.wide);
    for (unsigned eight = 0; eight < 32; ++eight)
      for (unsigned next = 0; next < 2; ++next) {
        const auto column = numbers_of(product.right, eight * 8 + t * 2 + next, product.wide);
        float& sum = result[eight * 4 + below * 2 + next];
        for (unsigned k = 0; k < kDepth; ++k) sum += row[k] * column[k];
      }
  }
  return result;
}

// Every thread reports some of the chunks that the warpgroup reads.
void see_reads(const SharedMatrix& matrix, unsigned extent, unsigned me, const void* code) {
  for (unsigned chunk = me; chunk < extent * kDepth / 8; chunk += 128) {
    const uintptr_t at = matrix.along ? address_in(matrix, chunk / 2, chunk % 2 * 8)
                                      : address_in(matrix, chunk / kDepth * 8, chunk % kDepth);
    see(std::bit_cast<const void*>(at), kCopiedBytes, AccessKind::Read, code);
  }
}

}  // namespace

void begin_product(float* d, const SharedMatrix& left, const SharedMatrix& right, float (*wide)(uint16_t)) {
  const unsigned me = current_thread() % 128;
  const void* code = __builtin_return_address(0);
  see_reads(left, 64, me, code);
  see_reads(right, 256, me, code);
  AsyncWork& work = work_of_current();
  work.products.push_back({d, left, right, wide, {}, work.product_group, code});
  work.products.back().result = product_of(work.products.back(), me);
}

void commit_products() { ++work_of_current().product_group; }

void await_products(unsigned pending) {
  AsyncWork& work = work_of_current();
  size_t done = 0;
  for (const Product& product : work.products) {
    if (product.group + pending >= work.product_group) break;
    const unsigned me = current_thread() % 128;
    const auto again = product_of(product, me);
    see_reads(product.left, 64, me, product.code);  // the operands are read until now
    see_reads(product.right, 256, me, product.code);
    for (size_t i = 0; i < again.size(); ++i)
      product.d[i] += again[i] == product.result[i] ? again[i] : std::numeric_limits<float>::quiet_NaN();
    ++done;
  }
  work.products.erase(work.products.begin(), work.products.begin() + static_cast<std::ptrdiff_t>(done));
}

// ---- boxes of tensors ----

namespace {

// The place in shared memory of 16 bytes: bits 4 to 6 of the address are changed by bits 7 to 9.
unsigned char* place_of_chunk(const unsigned char* box, int row, int chunk) {
  const auto linear =
      reinterpret_cast<uintptr_t>(box) + static_cast<uintptr_t>(row * kBoxRowBytes + chunk * 16);
  return std::bit_cast<unsigned char*>(linear ^ (linear >> 7 & 7) << 4);
}

// The address in global memory of the first element of a chunk; null outside the tensor.
unsigned char* global_chunk(const TensorMap& map, const BoxCorner& corner, int row, int chunk) {
  const int64_t column = corner.at[0] + chunk * 16 / map.element_bytes;
  const int64_t at = corner.at[1] + row;
  if (column < 0 || column >= map.extents[0] || at < 0 || at >= map.extents[1] || corner.at[2] < 0 ||
      corner.at[2] >= map.extents[2])
    return nullptr;
  return static_cast<unsigned char*>(map.data) +
         ((corner.at[2] * map.extents[1] + at) * map.extents[0] + column) * map.element_bytes;
}

template <class Body>
void each_chunk(const TensorMap& map, const BoxCorner& corner, const unsigned char* box, const Body& body) {
  for (int row = 0; row < map.box[1]; ++row)
    for (int chunk = 0; chunk < kBoxRowBytes / 16; ++chunk)
      body(global_chunk(map, corner, row, chunk), place_of_chunk(box, row, chunk));
}

// What the hardware asks for; of extents only what these copies need: a row is whole chunks.
void check_box(const TensorMap& map, const void* shared) {
  check(reinterpret_cast<uintptr_t>(map.data) % 16 == 0 && map.extents[0] * map.element_bytes % 16 == 0,
        "a tensor map's address and rows are not multiples of 16 bytes");
  check(map.extents[0] > 0 && map.extents[1] > 0 && map.extents[2] > 0, "a tensor map has an extent of 0");
  check(map.box[0] * map.element_bytes == kBoxRowBytes && map.box[1] <= kMostBoxRows && map.box[2] == 1,
        "a box of {} x {} x {} elements", map.box[0], map.box[1], map.box[2]);
  check(reinterpret_cast<uintptr_t>(shared) % kBoxRowBytes == 0,
        "a box is not at a multiple of 128 in shared memory");
}

float without_subnormal(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
}

}  // namespace

void ArrivingBox::arrive() const {
  each_chunk(map, corner, to, [](const unsigned char* global, unsigned char* shared) {
    if (global != nullptr)
      std::memcpy(shared, global, 16);
    else
      std::memset(shared, 0, 16);
  });
}

void LeavingBox::leave() const {
  const bool is_changed = std::memcmp(from, bytes.data(), bytes.size()) != 0;
  each_chunk(map, corner, from, [&](unsigned char* global, const unsigned char* shared) {
    if (global == nullptr) return;
    if (is_changed) {
      std::memset(global, 0xff, 16);
    } else if (!add) {
      std::memcpy(global, shared, 16);
    } else {
      for (size_t i = 0; i < 16; i += sizeof(float)) {
        float sum = 0, more = 0;
        std::memcpy(&sum, global + i, sizeof sum);
        std::memcpy(&more, shared + i, sizeof more);
        sum = without_subnormal(without_subnormal(sum) + without_subnormal(more));
        std::memcpy(global + i, &sum, sizeof sum);
      }
    }
  });
}

void begin_box(void* to, const TensorMap& map, const BoxCorner& corner, const uint64_t* barrier) {
  const void* code = __builtin_return_address(0);
  check_box(map, to);
  const ArrivingBox box{static_cast<unsigned char*>(to), map, corner, barrier};
  each_chunk(map, corner, box.to, [&](const unsigned char* global, const unsigned char*) {
    if (global != nullptr) see(global, 16, AccessKind::Read, code);
  });
  std::memset(to, 0xff, static_cast<size_t>(box.bytes()));
  add_arriving(box, code);
}

void write_box(const TensorMap& map, const BoxCorner& corner, const void* from, bool add) {
  const void* code = __builtin_return_address(0);
  check_box(map, from);
  check(!add || map.element_bytes == sizeof(float), "boxes of f32 alone are added");
  const auto* bytes = static_cast<const unsigned char*>(from);
  AsyncWork& work = work_of_current();
  each_chunk(map, corner, bytes, [&](const unsigned char* global, const unsigned char* shared) {
    see(shared, 16, AccessKind::Read, code);
    if (global != nullptr) see(global, 16, AccessKind::Write, code);
  });
  work.boxes.push_back({map, corner, bytes, add, {bytes, bytes + kBoxRowBytes * map.box[1]}, work.box_group});
}

void commit_boxes() { ++work_of_current().box_group; }

void await_boxes(unsigned pending) {
  AsyncWork& work = work_of_current();
  size_t done = 0;
  for (const LeavingBox& box : work.boxes) {
    if (box.group + pending >= work.box_group) break;
    box.leave();
    ++done;
  }
  work.boxes.erase(work.boxes.begin(), work.boxes.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace trifold::cuda::emulation
