// Rule: what an option demands of the other options of its command, as data next to the option:
//
//   table.add("moe-router-topk", &model.moe_router_topk, "Experts per token.")
//       .range(1, 1 << 16)
//       .only_with("num-experts")
//       .compares(Relation::AtMost, "num-experts");
//
// Problems::check_rules evaluates the rules of a table and writes their messages: the option with its value, the other
// option with its value, the reason if the rule has one, and what would be right. A rule is skipped in a command that
// does not have the other option. All broken rules of an option are reported, up to the first by which it has no
// effect. What no rule can say is code in the same file (Problems::about).
//
// A broken rule is an error. If an option without effect would only say how often, how fast or where something is done that
// this run does not do, its rule is marked as a note (Option::as_note): results and files are the same without the option.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "config/options/problem.h"

namespace trifold {

// A whole number or more, as the value of an option.
struct AtLeast {
  double number;
};

inline constexpr AtLeast kAboveZero{std::numeric_limits<double>::min()};

// A statement about options of a command, which holds if one of its terms does: an option is given, which means that
// its value is not the default; it has one of some values; or its number is large enough.
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

// A number compared with that of another option. Options without a value are not compared.
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
  Relation relation = Relation::AtMost;  // of Compares
  When other;
  std::string_view because = {};  // ends what is wrong, after a comma: "because experts have no biases"
  std::string_view remedy = {};   // instead of the usual one
  std::string_view values =
      {};              // of the option, for which alone the rule applies, separated by '|'; empty: if given
  When provided = {};  // it applies only if this holds, ...
  When unless = {};    // ... and not if this does
  Severity severity = Severity::Error;  // Note: of OnlyWith and NoEffectWith alone
};

}  // namespace trifold
