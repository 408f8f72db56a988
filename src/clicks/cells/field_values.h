// The meaning of a cell in the role of its column: a label, a dense number, an id, or an element of a bag. Readers of all
// formats take it from here.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "clicks/cells/cell.h"
#include "clicks/cells/field_rules.h"

namespace trifold {

// How ids are written; Text: any text, which is hashed.
enum class IdBase : uint8_t { Text = 0, Decimal = 10, Hexadecimal = 16 };

std::string_view name_of(IdBase base);  // "text", "decimal", "hexadecimal"

// The ids of a bag, and their weights where the column has any.
struct ClickBag {
  std::vector<uint64_t> ids;
  std::vector<float> weights;

  void clear() {
    ids.clear();
    weights.clear();
  }
};

// Stands for a label that a sample lacks. Only where there are several, of which a sample has at least one.
constexpr uint8_t kNoLabel = 255;

// 1, 0 or kNoLabel; nullopt if the cell is no label. `label` counts the labels of a sample.
std::optional<uint8_t> label_in(const FieldRules& rules, int label, const Cell& cell);
// Whether a label counts as clicked; nullopt if the cell is not one.
std::optional<bool> label_of(const LabelRule& rule, const Cell& cell);

// A finite number, or NaN for a missing one; nullopt if the cell is neither.
std::optional<float> dense_in(const FieldRules& rules, const Cell& cell);

// The hash of a text's spelling, or a whole number; 0 for a missing value. nullopt if the cell is no id.
std::optional<uint64_t> id_in(const FieldRules& rules, IdBase base, const Cell& cell);

// Appends the id of an element and, where `weighted`, its weight, which follows the last colon of the text. Skips
// missing elements. False if the cell is neither.
bool add_to_bag(const FieldRules& rules, IdBase base, bool weighted, const Cell& element, ClickBag& bag);
// The same for all elements of a text between separators.
bool add_texts_to_bag(const FieldRules& rules, char separator, bool weighted, std::string_view texts,
                      ClickBag& bag);

// The hash of a text that is not missing: 64 bits, and not 0.
uint64_t hash_of_text(std::string_view text, uint64_t seed);

// The id that a whole number stands for. A negative number is an unsigned hash that was stored as signed: of 32 bits if
// it fits, otherwise of 64. So -1 is the same id in arrays of any type.
uint64_t id_of_whole(int64_t number);

// Cuts a text with a weight, as in comedy:0.5, at its last colon. Returns nullopt unless a finite number follows it.
std::optional<float> take_weight(std::string_view& text);

}  // namespace trifold
