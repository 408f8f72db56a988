#include "core/error.h"

namespace trifold {

Error::Error(std::string message, ErrorKind kind) : text_(std::move(message)), kind_(kind) {}

void Error::add_context(const std::string& context) { text_ = context + ": " + text_; }

void rethrow_copy(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& held) {
    throw Error(held);
  }
}

}  // namespace trifold
