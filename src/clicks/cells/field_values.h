// Interprets cells by the role of their column: as a label, a dense value, an id, or an element of a bag. Readers of
// all formats use these functions.
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

// Stands for a label that a sample lacks: one of several, or, unless LabelNeed is Required, all of them.
constexpr uint8_t kNoLabel = 255;

// 1, 0 or kNoLabel; nullopt if the cell is no label. `label` counts the labels of a sample.
std::optional<uint8_t> label_in(const FieldRules& rules, int label, const Cell& cell);
// Whether a label counts as clicked; nullopt if the cell is not one.
std::optional<bool> label_of(const LabelRule& rule, const Cell& cell);

// A finite number, or NaN for a missing one; nullopt if the cell is neither.
std::optional<float> dense_in(const FieldRules& rules, const Cell& cell);

// The weight of a sample: a finite number of 0 or more; nullopt if the cell is none.
std::optional<float> weight_in(const Cell& cell);

// A time to order rows by: a number as it is, or a date or time in seconds since 1970; nullopt if the cell is neither.
std::optional<double> time_in(const Cell& cell);

// The part of a date or time (clicks/cells/moment.h), a number; nothing for a missing value. nullopt if the cell is
// neither.
std::optional<Cell> part_in(const FieldRules& rules, const Cell& cell, TimePart part);

// The hash of a text's spelling, or a whole number; 0 for a missing value. nullopt if the cell is no id.
std::optional<uint64_t> id_in(const FieldRules& rules, IdBase base, const Cell& cell);

// Appends the id of an element and, where `weighted`, its weight, which follows the last colon of the text. Skips
// missing elements. False if the cell is neither.
bool add_to_bag(const FieldRules& rules, IdBase base, bool weighted, const Cell& element, ClickBag& bag);
// add_to_bag for all elements of a text between separators.
bool add_texts_to_bag(const FieldRules& rules, char separator, bool weighted, std::string_view texts,
                      ClickBag& bag);

// For a bag whose weights are in another column: appends an element, as id 0 if it is missing, or a weight. False for a
// cell that is no id, or a weight that is not a finite number.
bool add_paired_to_bag(const FieldRules& rules, IdBase base, const Cell& element, ClickBag& bag);
bool add_weight_to_bag(const Cell& cell, ClickBag& bag);
// add_paired_to_bag and add_weight_to_bag for all elements of a text between separators; an empty text has none.
bool add_paired_texts_to_bag(const FieldRules& rules, char separator, std::string_view texts, ClickBag& bag);
bool add_weights_to_bag(char separator, std::string_view texts, ClickBag& bag);
// Removes missing elements and their weights. False if there are not as many weights as elements.
bool finish_paired_bag(ClickBag& bag);

// The hash of a text that is not missing: 64 bits, and not 0.
uint64_t hash_of_text(std::string_view text, uint64_t seed);

// The id that a whole number stands for. A negative number is an unsigned hash that was stored as signed: of 32 bits if
// it fits, otherwise of 64. So -1 is the same id in arrays of any type.
uint64_t id_of_whole(int64_t number);

// Cuts a text with a weight, as in comedy:0.5, at its last colon. Returns nullopt unless a finite number follows it.
std::optional<float> take_weight(std::string_view& text);

}  // namespace trifold
