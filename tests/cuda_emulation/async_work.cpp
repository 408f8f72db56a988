#include "cuda_emulation/async_work.h"

#include <bit>
#include <cstring>
#include <limits>

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
  work.products.push_back({d, left, right, wide, {}, work.product_group});
  work.products.back().result = product_of(work.products.back(), me);
}

void commit_products() { ++work_of_current().product_group; }

void await_products(unsigned pending) {
  AsyncWork& work = work_of_current();
  size_t done = 0;
  for (const Product& product : work.products) {
    if (product.group + pending >= work.product_group) break;
    const auto again = product_of(product, current_thread() % 128);
    for (size_t i = 0; i < again.size(); ++i)
      product.d[i] += again[i] == product.result[i] ? again[i] : std::numeric_limits<float>::quiet_NaN();
    ++done;
  }
  work.products.erase(work.products.begin(), work.products.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace trifold::cuda::emulation
