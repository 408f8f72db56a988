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
// A missing hash becomes hash 0 (in a bag it is left out), a missing number NaN (see clicks/click_transform.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/recommend_choices.h"

namespace trifold {

struct TextColumn {
  enum class Kind { Label, Dense, Id, Ignored };
  Kind kind;
  int index = 0;  // among those of its kind
  std::string name;
  char bag = '\0';        // for ids: the separator within a bag; '\0': one id
  bool weighted = false;  // for a bag: each text is followed by its weight, as in comedy:0.5
};

// How ids are written; Text: any text, which is hashed.
enum class IdBase : uint8_t { Text = 0, Decimal = 10, Hexadecimal = 16 };

std::string_view name_of(IdBase base);  // "text", "decimal", "hexadecimal"

// How to read the fields of a file whose columns are named by options.
struct FieldRules {
  std::vector<LabelRule> labels;
  std::vector<std::string> missing;  // texts that mean a missing value, in addition to an empty field
  uint64_t hash_seed = 0;            // of ids
};

struct TextLayout {
  char separator = '\t';
  IdBase base = IdBase::Hexadecimal;
  bool header = false;
  int labels = 1;       // columns of labels
  bool labeled = true;  // else the file has none of them, and every label is 0
  int dense = 13;
  int tables = 26;
  int bags = 0;              // number of tables with bags, the last ones
  size_t least_fields = 14;  // a line with fewer is malformed, not merely short
  std::vector<TextColumn> columns;
  std::optional<FieldRules> rules;  // base is Text; fields may be quoted whatever the separator
};

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

// One line's values; the arrays have room for all columns of the layout.
struct ClickLine {
  uint8_t* labels;           // 0, 1 or kNoLabel
  float* dense;              // NaN where missing
  uint64_t* ids;             // of a table of bags: not used
  ClickBag* bags = nullptr;  // for each table of bags
};

// Parses a line (without its line end). False when it is malformed; explain_line then says why.
bool parse_line(const TextLayout& layout, std::string_view line, ClickLine& out);
// "column C3: 'xy' is not a hash: up to 8 hexadecimal digits"
std::string explain_line(const TextLayout& layout, std::string_view line);
// The values that a column of labels may have, for messages.
std::string wanted_label(const LabelRule& rule);
// The id of a table as written in a valid line: "77", or "'4d' (hexadecimal, 77 in decimal)".
std::string shown_id(const TextLayout& layout, std::string_view line, int table);

// A field of a line. `text` is without enclosing quotes; if `quoted`, quotes inside it are doubled.
struct TextField {
  std::string_view text;
  bool quoted = false;
  // It begins with an unclosed quote, which is part of the text.
  bool open = false;
};

// The fields between the separators, which may be quoted if `quotes` is set.
std::vector<TextField> fields_of(std::string_view line, char separator, bool quotes);

// The malformed lines of a text.
struct TextReport {
  static constexpr int64_t kShown = 10;
  int64_t lines = 0;               // total, without the header
  int64_t malformed = 0;           // of these, skipped
  std::vector<std::string> shown;  // of the first ten: "file:line: column ...: what is wrong"

  void add(const std::string& file, int64_t line_number, const std::string& problem);
  // Appends the report of a later piece of text.
  void append(const TextReport& other);
  // "3 of 1000 lines are malformed and left out:\n  file:17: ..."; empty if there are none.
  std::string text() const;
};

// Most bytes of a line; Criteo's lines have about 250. A file without line ends is rejected before much of it is read.
constexpr size_t kLongestClickLine = size_t{1} << 20;

// Cuts the next line off `text` and returns it without its line end. Returns nullopt and leaves `text` unchanged if the
// line is longer than kLongestClickLine.
std::optional<std::string_view> take_line(std::string_view& text);
// Throws BadInput about such a line.
[[noreturn]] void refuse_long_line(const std::string& file, int64_t line_number);

}  // namespace trifold
