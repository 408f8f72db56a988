// TokenType: the type in which the .bin file of an indexed data set stores a token. The values are the codes of the
// .idx file.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace trifold {

enum class TokenType : uint8_t { U8 = 1, I8 = 2, I16 = 3, I32 = 4, I64 = 5, U16 = 8 };

// The token type with this .idx code; nullopt for codes that are unknown or name a floating-point type (6 f64, 7 f32).
constexpr std::optional<TokenType> token_type_of_code(uint8_t code) {
  if ((code >= 1 && code <= 5) || code == 8) return static_cast<TokenType>(code);
  return std::nullopt;
}

constexpr int64_t size_of(TokenType type) {
  switch (type) {
    case TokenType::U8:
    case TokenType::I8:
      return 1;
    case TokenType::I16:
    case TokenType::U16:
      return 2;
    case TokenType::I32:
      return 4;
    case TokenType::I64:
      return 8;
  }
  return 0;
}

constexpr std::string_view name_of(TokenType type) {
  switch (type) {
    case TokenType::U8:
      return "u8";
    case TokenType::I8:
      return "i8";
    case TokenType::I16:
      return "i16";
    case TokenType::U16:
      return "u16";
    case TokenType::I32:
      return "i32";
    case TokenType::I64:
      return "i64";
  }
  return "?";
}

// The largest token id the type can hold.
constexpr int64_t max_token(TokenType type) {
  switch (type) {
    case TokenType::U8:
      return std::numeric_limits<uint8_t>::max();
    case TokenType::I8:
      return std::numeric_limits<int8_t>::max();
    case TokenType::I16:
      return std::numeric_limits<int16_t>::max();
    case TokenType::U16:
      return std::numeric_limits<uint16_t>::max();
    case TokenType::I32:
      return std::numeric_limits<int32_t>::max();
    case TokenType::I64:
      return std::numeric_limits<int64_t>::max();
  }
  return 0;
}

// Whether the type can store negative ids, which are never valid and must be checked for.
constexpr bool is_signed(TokenType type) { return type != TokenType::U8 && type != TokenType::U16; }

// The choice of Megatron-LM's preprocessing: two bytes if the vocabulary is small enough, four otherwise.
constexpr TokenType token_type_for_vocabulary(int64_t vocab_size) {
  return vocab_size < 65500 ? TokenType::U16 : TokenType::I32;
}

}  // namespace trifold
