// kSanitized: whether this program is built with a sanitizer, which makes it several times slower. Tests that repeat a
// check for thousands of inputs then check fewer, which runs the same code.
#pragma once

namespace trifold::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)  // clang's
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace trifold::test
