// Parser for text files of clicks, one per line, and the meaning of their columns.
//
// Criteo's files (Kaggle's train.txt, day_0 ... day_23 of the terabyte set): 40 fields separated by tabs: the label, 13
// integers, 26 unsigned 32-bit hashes in hexadecimal. An empty field is a missing value; missing fields at the end of a
// line may be left out. Kaggle's test.txt has no label: 39 fields. CSV files have a header line that names the columns
// in any order: label (or click, clicked), I1, I2 ... or dense_0 ..., C1, C2 ... or cat_0 ...; other columns are not
// used. Their ids are decimal numbers of up to 64 bits ("csv"), or hexadecimal like Criteo's ("csv-hex"). A field may
// be double-quoted. Lines end in LF or CRLF; a UTF-8 byte order mark before the first is skipped.
//
// The columns of a CSV file with any other header are named by options (ColumnNames): ids are 64-bit hashes of any
// text, labels, numbers and missing values may be written in more ways, and fields may hold bags of ids.
//
// Blank lines are skipped. A field is a cell (clicks/cells/cell.h), without its quotes. A missing hash becomes hash 0,
// or is left out of a bag; a missing number becomes NaN (see clicks/click_transform.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "clicks/cells/field_values.h"
#include "clicks/cells/malformed.h"

namespace trifold {

// The role of a column. A column may have several roles, say a dense feature and an id; `also` has all but the first.
struct TextColumn {
  enum class Kind {
    Label,
    Dense,
    Id,
    BagWeights,  // weights of the bag of table `index`, one for each of its elements
    Weight,      // weight of the sample
    Time,        // time of the sample
    Kept,        // text that is kept with the sample as it is (ClickSource::kept)
    Ignored
  };
  Kind kind;
  int index = 0;  // among the columns of this kind
  std::string name;
  char bag = '\0';        // for ids: the separator within a bag; '\0': a single id
  bool weighted = false;  // for a bag: each element has a weight, which follows it as in comedy:0.5,
  bool paired = false;    //   or is in another column
  std::optional<TimePart> part = {};  // use this part of the date or time in the column, not the value itself
  std::vector<TextColumn> also = {};
};

// Calls body(role) for each role of a column until it returns false; returns whether it never did.
template <class Body>
bool for_each_role(const TextColumn& column, Body body) {
  if (!body(column)) return false;
  for (const TextColumn& other : column.also)
    if (!body(other)) return false;
  return true;
}

struct TextLayout {
  char separator = '\t';
  IdBase base = IdBase::Hexadecimal;
  bool header = false;
  int labels = 1;               // columns of labels
  bool labeled = true;          // false: the file has no labels, and every label is 0
  bool sample_weights = false;  // a column has the weights of samples
  bool times = false;           // a column has the times of samples
  bool paired_bags = false;     // weights of a bag are in another column
  int kept = 0;                 // columns whose texts are kept
  int dense = 13;
  int tables = 26;
  int bags = 0;              // tables with bags; they are the last tables
  size_t least_fields = 14;  // a line with fewer is malformed, not merely short
  std::vector<TextColumn> columns;
  bool named = false;      // options name the columns; base is Text
  bool quotes = false;     // fields may be quoted
  int64_t first_line = 1;  // first line with a sample, after blank lines and the header
  FieldRules rules;
};

// The values of a row.
struct ClickRow {
  explicit ClickRow(const TextLayout& layout);
  // Clears the row. `memory`, owned by the caller, gets the dense values.
  void begin(float* memory);

  std::vector<uint8_t> labels;  // 0, 1 or kNoLabel; 0 if the file has no labels
  float* dense = nullptr;       // NaN where missing
  std::vector<uint64_t> ids;    // one per table; unused for tables of bags
  std::vector<ClickBag> bags;   // for each table of bags
  float weight = 1;
  double time = 0;
  std::vector<std::string> kept;  // for each column that is kept

 private:
  uint8_t absent_label_;
};

// Puts a cell into the row, in a role of its column other than one of bags. False if it is malformed.
bool put_cell(const TextLayout& layout, const TextColumn& role, const Cell& cell, ClickRow& row);
// To be called after the last cell of a row. False if a bag and its weights in another column have different sizes.
bool finish_bags(const TextLayout& layout, ClickRow& row);
// The problem of a row for which finish_bags returned false.
inline const LineProblem kUnequalBag{"a bag and its weights differ in size",
                                     "a bag has another number of values than of weights"};
// Whether the row has a label, or needs none.
bool is_labelled(const TextLayout& layout, const ClickRow& row);

// Parses a line (without its line end). False when it is malformed; explain_line then says why.
bool parse_line(const TextLayout& layout, std::string_view line, ClickRow& row);
// What is wrong with a malformed line: "column C3: 'xy' is not a hash: up to 8 hexadecimal digits".
LineProblem explain_line(const TextLayout& layout, std::string_view line);
// The values of a column, for counts of problems: "a label", "a number", "an id", "a list of weighted texts".
std::string kind_name(const TextColumn& role);
// The values that a role accepts, for messages: "a label: 0, 1, false or true". Empty for ids and bags, whose values
// depend on the format.
std::string wanted_value(const TextLayout& layout, const TextColumn& role);
// The id of a table as written in a valid line: "77", or "'4d' (hexadecimal, 77 in decimal)".
std::string shown_id(const TextLayout& layout, std::string_view line, int table);

// A field of a line. `text` is without enclosing quotes; if `quoted`, quotes inside it are doubled.
struct TextField {
  std::string_view text;
  bool quoted = false;
  // The text begins with a quote that is never closed and is part of the text.
  bool open = false;
};

// The text of a field with doubled quotes reduced to single ones. The view refers to the field, or to `room`.
std::string_view plain_text(const TextField& field, std::string& room);

// The fields between the separators, which may be quoted if `quotes` is set.
std::vector<TextField> fields_of(std::string_view line, char separator, bool quotes);

// Most bytes of a line; Criteo's lines have about 250. A file without line ends is rejected before much of it is read.
constexpr size_t kLongestClickLine = size_t{1} << 20;

// Cuts the next line off `text` and returns it without its line end. Returns nullopt and leaves `text` unchanged if the
// line is longer than kLongestClickLine.
std::optional<std::string_view> take_line(std::string_view& text);
// Throws BadInput about a line that is too long for take_line.
[[noreturn]] void refuse_long_line(const std::string& file, int64_t line_number);

// Whether a line holds no sample: it is empty, or has only blanks that are not separators.
bool is_blank_line(std::string_view line, char separator);

}  // namespace trifold
