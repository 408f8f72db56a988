// Error: what went wrong, where, and what would be right, with a chain of contexts added on the way up.
//
// Everything under src/ reports failure by throwing Error; nothing there prints, exits or aborts. A catch
// site that knows more (the rank, the step, the action, the tensor) adds it with `add_context` and rethrows.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

namespace trifold {

// The kind of failure; the command line maps it to its exit status.
enum class ErrorKind {
  Failure,   // something broke while running: exit status 1
  BadInput,  // the configuration, a file or a value given by the user is wrong: exit status 2
  Aborted,   // another rank failed, and its error is the one to report: exit status 1
  Agreed,    // all ranks detected it together: each throws it with the same text; exit status 1
};

class Error : public std::exception {
 public:
  explicit Error(std::string message, ErrorKind kind = ErrorKind::Failure);

  const char* what() const noexcept override { return text_.c_str(); }
  ErrorKind kind() const noexcept { return kind_; }

  // Adds one outer context ("step 12", "rank dp1"): the text becomes "<context>: <text so far>".
  void add_context(const std::string& context);

 private:
  std::string text_;
  ErrorKind kind_;
};

// Rethrows `error`, an Error as a copy. std::rethrow_exception throws the stored object itself, so if several
// threads rethrow one exception, or one thread does so twice, `add_context` would also change what the others
// see.
[[noreturn]] void rethrow_copy(const std::exception_ptr& error);

// Throws Error(Failure) with a formatted message.
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

// Throws Error(BadInput) with a formatted message: for user input, never for a broken invariant.
template <class... Args>
[[noreturn]] void bad_input(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), ErrorKind::BadInput);
}

// Throws Error(Failure) unless `condition` holds.
template <class... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    throw Error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace trifold
