// kSanitized: whether a sanitizer watches this program. Tests that do the same thing for thousands of numbers do it for
// some of them then: the code that runs is the same, and it runs several times as long.
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
