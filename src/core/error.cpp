#include "core/error.h"

namespace trifold {

Error::Error(std::string message, ErrorKind kind) : text_(std::move(message)), kind_(kind) {}

void Error::add_context(const std::string& context) { text_ = context + ": " + text_; }

}  // namespace trifold
