// The meaning of values in the columns that options name (clicks/click_layout.h), whether they come as text or, from
// files that have types, as numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "clicks/click_text.h"

namespace trifold {

// Whether a label counts as clicked; nullopt if the text or number is not a label.
std::optional<bool> label_of(const LabelRule& rule, std::string_view text);
std::optional<bool> label_of(const LabelRule& rule, double number);

// Parses a number, or 1 and 0 for true and false. Returns false if the text is neither.
bool parse_number_or_flag(std::string_view text, float& value);

// The hash of a text that is not missing: 64 bits, and not 0.
uint64_t hash_of_text(std::string_view text, uint64_t seed);
// The same for a field of text; between quotes, the quotes in it are doubled.
uint64_t hash_of_field(std::string_view text, bool quoted, uint64_t seed);

// The id that a whole number stands for. A negative number is an unsigned hash that was stored as signed: of 32 bits if
// it fits, otherwise of 64. So -1 is the same id in arrays of any type.
uint64_t id_of_whole(int64_t number);

bool is_missing(const FieldRules& rules, std::string_view text);

std::string_view without_blanks(std::string_view text);

// Cuts a text with a weight, as in comedy:0.5, at its last colon. Returns nullopt unless a finite number follows it.
std::optional<float> take_weight(std::string_view& text);

// Appends the hashes of the texts between the separators that are not missing, and their weights where the column has
// any. Returns false if a weight is missing or not a number.
bool parse_bag(const FieldRules& rules, const TextColumn& column, std::string_view texts, bool quoted,
               ClickBag& bag);

}  // namespace trifold
