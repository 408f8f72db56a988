// Bytes written as text of base64 (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trifold {

// The bytes that `text` stands for; absent if it has another character or length, or does not end in the '=' it needs.
std::optional<std::string> bytes_of_base64(std::string_view text);

}  // namespace trifold
