#include "checkpoint/crc32.h"

#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trifold {

namespace {

uint32_t by_table(uint32_t crc, const unsigned char* data, size_t bytes) {
  return static_cast<uint32_t>(crc32_z(crc, data, bytes));
}

#if defined(__x86_64__)

// Folding (Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ", Intel, 2009). A
// message is a polynomial over GF(2), and its checksum is that polynomial modulo P. Of 16 bytes A that stand
// n bits before other 16 bytes B, A x^n + B has the same remainder as (high half of A) (x^(n+64) mod P) +
// (low half of A) (x^n mod P) + B, so two multiplications without carries take A out of the message. Four
// such registers advance 64 bytes at a time, n = 512; then they are folded into one, n = 128, whose 16 bytes
// are all that is left. Bits are reflected, as the checksum's are, which is where the odd powers come from.
struct Factors {
  uint64_t first, second;  // x^(n+32) and x^(n-32) mod P, reflected, shifted by one
};
constexpr Factors kBy512{0x154442bd4, 0x1c6e41596};
constexpr Factors kBy128{0x1751997d0, 0x0ccaa009e};
constexpr size_t kStride = 64;

#define TRIFOLD_CLMUL __attribute__((target("pclmul,sse4.1")))

TRIFOLD_CLMUL inline __m128i load(const unsigned char* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

TRIFOLD_CLMUL inline __m128i factors(const Factors& f) {
  return _mm_set_epi64x(static_cast<int64_t>(f.second), static_cast<int64_t>(f.first));
}

TRIFOLD_CLMUL inline __m128i fold(__m128i a, __m128i by, __m128i b) {
  const __m128i low = _mm_clmulepi64_si128(a, by, 0x00);
  const __m128i high = _mm_clmulepi64_si128(a, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), b);
}

// At least kStride bytes.
TRIFOLD_CLMUL uint32_t by_folding(uint32_t crc, const unsigned char* data, size_t bytes) {
  __m128i a = load(data), b = load(data + 16), c = load(data + 32), d = load(data + 48);
  // What came before acts as a difference of the first four bytes. The checksum is kept inverted.
  a = _mm_xor_si128(a, _mm_cvtsi32_si128(static_cast<int>(~crc)));
  const __m128i by_512 = factors(kBy512), by_128 = factors(kBy128);
  for (data += kStride, bytes -= kStride; bytes >= kStride; data += kStride, bytes -= kStride) {
    a = fold(a, by_512, load(data));
    b = fold(b, by_512, load(data + 16));
    c = fold(c, by_512, load(data + 32));
    d = fold(d, by_512, load(data + 48));
  }
  d = fold(fold(fold(a, by_128, b), by_128, c), by_128, d);
  alignas(16) unsigned char left[16];
  _mm_store_si128(reinterpret_cast<__m128i*>(left), d);
  constexpr uint32_t kNothingBefore = ~uint32_t{0};  // inverted: no difference of the first bytes
  return by_table(by_table(kNothingBefore, left, sizeof(left)), data, bytes);
}

#undef TRIFOLD_CLMUL

bool can_fold() {
  static const bool kCan = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
  return kCan;
}

#endif

}  // namespace

uint32_t crc32_of(uint32_t crc, const void* data, size_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  if (bytes >= kStride && can_fold()) return by_folding(crc, from, bytes);
#endif
  return by_table(crc, from, bytes);
}

}  // namespace trifold
