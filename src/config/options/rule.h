// Rule: a condition on the other options of a command, as data next to the option:
//
//   table.add("moe-router-topk", &model.moe_router_topk, "Experts per token.")
//       .range(1, 1 << 16)
//       .only_with("num-experts")
//       .compares(Relation::AtMost, "num-experts");
//
// Problems::check_rules evaluates the rules of a table and writes their messages: the option with its value, the other
// option with its value, the reason if the rule has one, and the remedy. A rule is skipped in a command that lacks the
// other option. All broken rules of an option are reported, up to the first by which it has no effect. Conditions that
// no rule can express are code in the same file (Problems::about).
//
// A broken rule is an error. A rule is marked as a note (Option::as_note) if the option would only say how often, how
// fast or where something is done that this run does not do: results and files are the same without the option.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "config/options/problem.h"

namespace trifold {

// The values of an option from `number` on.
struct AtLeast {
  double number;
};

inline constexpr AtLeast kAboveZero{std::numeric_limits<double>::min()};

// A statement about options of a command. It holds if one of its terms holds: an option is given, that is, its value is
// neither the default nor, where Option::when_absent names another option, the value of that option; an option has one
// of some values; or an option's value is large enough.
class When {
 public:
  struct Term {
    std::string_view option;
    std::string_view values;  // separated by '|'
    double least = -std::numeric_limits<double>::infinity();
  };

  When() = default;                                               // never holds
  When(const char* option) : When(option, std::string_view()) {}  // NOLINT: given
  When(std::string_view option, std::string_view values) { add({option, values}); }
  When(std::string_view option, AtLeast least) { add({option, {}, least.number}); }

  When& or_when(std::string_view option, std::string_view values = {}) { return add({option, values}); }
  When& or_when(std::string_view option, AtLeast least) { return add({option, {}, least.number}); }

  const Term* begin() const { return terms_.data(); }
  const Term* end() const { return terms_.data() + size_; }

 private:
  When& add(Term term) {
    terms_.at(size_++) = term;
    return *this;
  }
  std::array<Term, 4> terms_{};
  uint32_t size_ = 0;
};

// A relation between the values of two options. Options without a value are not compared.
enum class Relation : uint8_t { AtMost, AtLeast, Above, Divides, MultipleOf };

struct Rule {
  enum class Kind : uint8_t {
    Needs,         // "--fp8 needs --bf16"
    Excludes,      // "--fp8 is not possible with --num-experts 8"
    OnlyWith,      // "--save-interval 5 has no effect without --save DIR"
    NoEffectWith,  // "--gelu erf has no effect with --swiglu"
    Compares       // "--moe-router-topk 5 is more than --num-experts 4"
  };
  Kind kind;
  Relation relation = Relation::AtMost;  // for Compares
  When other;
  std::string_view because = {};        // ends the message, after a comma: "because experts have no biases"
  std::string_view remedy = {};         // replaces the usual remedy
  std::string_view values = {};         // values of the option with this rule, separated by '|'; empty: all
  When provided = {};                   // the rule applies only if this holds, ...
  When unless = {};                     // ... and not if this holds
  Severity severity = Severity::Error;  // Note: only for OnlyWith and NoEffectWith
};

}  // namespace trifold
