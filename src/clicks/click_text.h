// Lines of text, one click a line: what the columns of a file mean, and a parser for them.
//
// Criteo's files (Kaggle's train.txt, day_0 ... day_23 of the terabyte set): 40 fields between tabs, the
// label, 13 whole numbers, 26 hexadecimal hashes of 32 bits, unsigned. An empty field is a missing value;
// fields that are missing at the end of a line may be left out altogether. Kaggle's test.txt has no label: 39
// fields. CSV files have a header line that names the columns in any order: label (or click, clicked), I1, I2
// ... or dense_0 ..., C1, C2 ... or cat_0 ...; other columns are not used. Their ids are decimal numbers of
// up to 64 bits ("csv"), or hexadecimal as Criteo's ("csv-hex"). A field may stand between double quotes.
// Lines end in LF or CRLF; a byte order mark of UTF-8 before the first is skipped.
//
// Or a CSV file with any header, whose columns are named by options (ColumnNames): ids are hashes of 64
// bits of any text, more stands for labels, numbers and missing values, and fields may hold bags of ids.
//
// A missing hash is taken as hash 0 (of a bag it is left out), a missing number as NaN (clicks/click_transform.h says what becomes of
// it).
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
  char bag = '\0';  // of a column of ids: the character between the texts of a bag; else it holds one
};

// How ids are written; Text: as anything, of which the hash counts.
enum class IdBase : uint8_t { Text = 0, Decimal = 10, Hexadecimal = 16 };

std::string_view name_of(IdBase base);  // "text", "decimal", "hexadecimal"

// How the fields of a file are read whose columns are named by options.
struct FieldRules {
  LabelRule label;
  std::vector<std::string> missing;  // texts that stand for a missing value, besides an empty field
  uint64_t hash_seed = 0;            // of ids
};

struct TextLayout {
  char separator = '\t';
  IdBase base = IdBase::Hexadecimal;
  bool header = false;
  bool labels = true;
  int dense = 13;
  int tables = 26;
  int bags = 0;              // of the tables, the last ones
  size_t least_fields = 14;  // a line with fewer is malformed, not merely short
  std::vector<TextColumn> columns;
  std::optional<FieldRules> rules;  // base is Text; quotes may stand around fields whatever the separator
};

// One line's values; the arrays have room for all columns of the layout.
struct ClickLine {
  int label = 0;                          // 0 or 1
  float* dense;                           // NaN where missing
  uint64_t* ids;                          // of a table of bags: not used
  std::vector<uint64_t>* bags = nullptr;  // of each table of bags: its ids
};

// Parses a line (without its line end). False when it is malformed; explain_line then says why.
bool parse_line(const TextLayout& layout, std::string_view line, ClickLine& out);
// "column C3: 'xy' is not a hash: up to 8 hexadecimal digits"
std::string explain_line(const TextLayout& layout, std::string_view line);
// The id of a table in a good line as it stands there: "77", or "'4d' (hexadecimal, 77 in decimal)".
std::string shown_id(const TextLayout& layout, std::string_view line, int table);

// A field of a line. `text` has no quotes around it; quotes inside it are doubled where `quoted` says so.
struct TextField {
  std::string_view text;
  bool quoted = false;
  // A quote opens it that none closes before the separator or the end of the line: it is part of the text.
  bool open = false;
};

// The fields between the separators, which may stand between quotes where `quotes` says so.
std::vector<TextField> fields_of(std::string_view line, char separator, bool quotes);

// The malformed lines of a text.
struct TextReport {
  static constexpr int64_t kShown = 10;
  int64_t lines = 0;               // in all, without the header
  int64_t malformed = 0;           // of them, left out
  std::vector<std::string> shown;  // of the first ten: "file:line: column ...: what is wrong"

  void add(const std::string& file, int64_t line_number, const std::string& problem);
  // Appends those of a later piece of text.
  void append(const TextReport& other);
  // "3 of 1000 lines are malformed and left out:\n  file:17: ..."; empty without any.
  std::string text() const;
};

// Bytes that a line may have at most; Criteo's lines have about 250. A file without line ends is found to be
// no text before much of it has been read.
constexpr size_t kLongestClickLine = size_t{1} << 20;

// Cuts the next line off `text` and returns it without its line end. Nothing, and `text` stays as it is,
// where the line is longer than kLongestClickLine.
std::optional<std::string_view> take_line(std::string_view& text);
// Throws the BadInput about such a line.
[[noreturn]] void refuse_long_line(const std::string& file, int64_t line_number);

}  // namespace trifold
