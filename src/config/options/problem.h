// Problem: a mistake in the values of a configuration, in three parts: the options concerned, what is wrong, and what
// would be right; or a note about an option without effect. Only text_of formats it, as one line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trifold {

// An error ends the command. A note does not: neither results nor files depend on the option.
enum class Severity : uint8_t { Error, Note };

struct Problem {
  // The names, without "--", of the options whose values conflict, beginning with the one to change, if there is one.
  // Empty only for words that belong to no option.
  std::vector<std::string> options;
  std::string wrong;     // with the value seen: "--ranks 8 is not divisible by --ranks-per-node 3"
  std::string right;     // "6 and 9 are"; "leave it out"; empty: a note
  bool missing = false;  // a required number is 0, which usually means it was not given
  Severity severity = Severity::Error;

  friend bool operator==(const Problem&, const Problem&) = default;
};

// What a check of a whole configuration finds.
struct Findings {
  std::vector<Problem> errors, notes;
};

// "--ranks 8 is not divisible by --ranks-per-node 3: 6 and 9 are"; "--save-interval 5 has no effect without --save DIR"
std::string text_of(const Problem& problem);
std::vector<std::string> texts_of(std::span<const Problem> problems);

// "128 and 132 are", "4 is": the multiples of `unit` nearest to `value`, which must not be a multiple.
std::string multiples_around(int64_t value, int64_t unit);

// Throws Error(BadInput) unless `list` is empty: one problem unchanged, several as a list of lines.
void throw_problems(const std::vector<std::string>& list);
void throw_problems(const std::vector<Problem>& list);

}  // namespace trifold
