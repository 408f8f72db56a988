// A Cell is one value of a raw input as its file holds it, before the role of its column gives it a meaning
// (clicks/cells/field_values.h). Readers of all formats (text, Parquet, arrays) make cells, so that a table has the
// same meaning in any format: the meaning of the CSV file that pandas writes for it.
//
//   number    the value of its shortest decimal digits: the float32 nearest to 3.1 equals 3.1
//   text      has no blanks around it. It is also a number if the whole text is one: 3, +3, -0.5, 1e5, nan, True (1)
//   spelling  the text whose hash is an id. All forms of a whole number have one spelling: 2, +2, 2.0 and 2e0 are "2";
//             scientific notation is written out: 1.5e-07 is "0.00000015"; flags are "True" and "False". Every other
//             text is unchanged, also with leading zeros or more digits: 007 and 1.10 are distinct values
//
// A date or time has its own kind of cell (Moment) in files with such a type, and is a text in other files; its
// spelling is that text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "clicks/cells/moment.h"
#include "core/float16.h"

namespace trifold {

// digits / 10^scale. It may have more digits than a double holds.
struct DecimalNumber {
  __int128 digits = 0;
  int scale = 0;

  double number() const;     // the nearest double
  std::string text() const;  // "-0.25", all digits
};

// monostate: no value, as in an empty field.
using Cell = std::variant<std::monostate, bool, int64_t, uint64_t, Float16, float, double, DecimalNumber,
                          Moment, std::string_view>;

std::string_view without_blanks(std::string_view text);

// NaN for one that is not a number; nullopt for nothing, a date or time, and a text that is none.
std::optional<double> number_of(const Cell& cell);

// The spelling of a cell, a view of the cell or of `room`. Empty for an empty cell.
std::string_view spelling_of(const Cell& cell, std::string& room);

// The text of a cell as its file would show it, for messages: "null" for nothing.
std::string shown_text(const Cell& cell);

}  // namespace trifold
