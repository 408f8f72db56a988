#include "tokenize/patterns/ruby_pattern.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "tokenize/patterns/pattern_text.h"
#include "tokenize/patterns/text_pattern.h"
#include "tokenize/unicode/unicode.h"
#include "tokenize/unicode/unicode_tables.h"

namespace trifold {

namespace {

constexpr int kDeepest = 200;  // nesting of groups and sets
constexpr int kMostTimes = 100000;
constexpr std::string_view kQuantifiers = "?*+{";
constexpr const char* kAny = R"([\x{0}-\x{10FFFF}])";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The characters of \w. Outside sets it includes a few numerals of Latin-1.
const CodePointSet& words(bool in_set) { return *class_of_patterns(in_set ? R"([\w])" : R"(\w)"); }

class Translator {
 public:
  Translator(std::string_view pattern, PatternDialect dialect)
      : pattern_(pattern), rust_(dialect == PatternDialect::Rust) {}

  std::string all() {
    std::string out = alternatives();
    if (!done()) refuse("a ) that ends no group");
    return out;
  }

 private:
  // An item of a set: one character, or a nested set.
  struct Item {
    std::optional<char32_t> character;
    std::string set = {};
  };

  bool done() const { return at_ == pattern_.size(); }
  std::string_view rest() const { return pattern_.substr(at_); }
  bool take(std::string_view text) {
    if (!rest().starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  [[noreturn]] void refuse(std::string_view what) const {
    bad_input("it has {} before byte {}, which is not supported or not possible", what, at_);
  }

  char32_t next(std::string_view inside) {
    if (done()) refuse(fmt::format("{} that does not end", inside));
    return next_character(pattern_, at_);
  }

  // Translates everything up to the ) of the group, or the end.
  std::string alternatives() {
    if (++depth_ > kDeepest) refuse(fmt::format("more than {} groups or sets in one another", kDeepest));
    const bool any = dot_is_any_;
    const bool folds = folds_;
    std::string out;
    while (!done() && rest()[0] != ')') out += take("|") ? "|" : quantified();
    dot_is_any_ = any;
    folds_ = folds;
    --depth_;
    return out;
  }

  std::string quantified() {
    if (folds_ && !rust_)
      if (std::optional<std::string> sequence = literal_sequence()) return *sequence;
    std::string out = atom();
    for (bool first = true;; first = false) {
      const std::string times = quantifier();
      if (times.empty()) return out;
      if (!first) out = fmt::format("(?:{})", out);
      out += times;
    }
  }

  // Literals without a quantifier that are case-equivalent to one character.
  std::optional<std::string> literal_sequence() {
    constexpr std::string_view kSigns = "()[]{}.^$?*+|\\";
    const size_t begin = at_;
    for (const size_t length : {3, 2}) {
      std::u32string sequence;
      while (!done() && sequence.size() < length && kSigns.find(rest()[0]) == std::string_view::npos)
        sequence += next("a pattern");
      const bool whole =
          sequence.size() == length && (done() || kQuantifiers.find(rest()[0]) == std::string_view::npos);
      if (std::optional<std::string> made = whole ? folded_sequence(sequence) : std::nullopt) return made;
      at_ = begin;
    }
    return std::nullopt;
  }

  std::string quantifier() {
    for (const std::string_view sign : {"?", "*", "+"}) {
      if (!take(sign)) continue;
      return std::string(sign) + (take("?") ? "?" : take("+") ? "+" : "");
    }
    return interval();
  }

  // "{2}", "{2,}", "{,3}" or "{2,3}", the last three with or without a '?'; else empty, and '{' is literal.
  std::string interval() {
    const size_t begin = at_;
    if (!take("{")) return "";
    const std::optional<int> least = number();
    const bool range = take(",");
    const std::optional<int> most = range ? number() : least;
    if (rust_ && (!least || !rest().starts_with("}"))) refuse("a { that is not {2}, {2,} or {2,3}");
    if ((!least && !most) || !take("}")) {
      at_ = begin;
      return "";
    }
    if (least.value_or(0) > kMostTimes || most.value_or(0) > kMostTimes ||
        (most && *most < least.value_or(0)))
      refuse("a { } whose numbers are too large or in the wrong order");
    const std::string upper = most ? fmt::format("{}", *most) : "";
    const bool lazy = (range || rust_) && take("?");
    const bool keeps = rust_ && !lazy && take("+");
    return fmt::format("{{{},{}}}{}", least.value_or(0), upper, lazy ? "?" : keeps ? "+" : "");
  }

  std::optional<int> number() {
    std::optional<int> value;
    for (; !done() && is_digit(rest()[0]); ++at_)
      value = std::min(10 * value.value_or(0) + (rest()[0] - '0'), kMostTimes + 1);
    return value;
  }

  std::string atom() {
    const char32_t c = next("a pattern");
    switch (c) {
      case '(':
        return group();
      case '[':
        return set();
      case '.':
        return dot_is_any_ ? kAny : ".";
      case '^':
        return rust_ ? R"(\A)" : "^";
      case '$':
        return rust_ ? R"(\z)" : "$";
      case '?':
      case '*':
      case '+':
        refuse("a quantifier of nothing");
      case '\\':
        break;
      default:
        return literal(c);
    }
    if (take("A")) return R"(\A)";
    if (take("z")) return R"(\z)";
    if (rust_)
      for (const std::string_view name : {"Z", "R", "h", "H", "0"})
        if (rest().starts_with(name)) refuse(fmt::format("\\{}", name));
    if (take("Z")) return R"((?=\n?\z))";
    if (take("R")) return R"((?>\r\n|[\n-\r\x{85}\x{2028}\x{2029}]))";
    const auto word = [] { return pattern_of("", words(false)); };
    if (take("b")) return fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word());
    if (take("B")) return fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word());
    if (take("w")) return word();
    if (take("W")) return pattern_of("^", words(false));
    const Item item = escape();
    return item.character ? literal(*item.character) : item.set;
  }

  std::string literal(char32_t c) const {
    if (!folds_) return pattern_of(c);
    return rust_ ? "[" + folded_items(c) + "]" : folded_atom(c);
  }

  std::string group() {
    if (take("*")) refuse("a call, (*");
    if (!take("?")) return closed("(?:");
    for (const std::string_view kind : {":", "=", "!", ">", "<=", "<!"})
      if (take(kind)) return closed("(?" + std::string(kind));
    if (take("<")) {
      const size_t end = rest().find('>');
      if (end == std::string_view::npos || end == 0) refuse("a group whose name does not end");
      at_ += end + 1;
      return closed("(?:");
    }
    return options();
  }

  std::string closed(const std::string& open) {
    const std::string inside = alternatives();
    if (!take(")")) refuse("a group that does not end");
    return open + inside + ")";
  }

  // Translates "(?im-im:...)", or "(?im-im)" for the rest of the enclosing group. The effect of "m" is spelled out,
  // because ICU's counterpart treats \r\n as one character.
  std::string options() {
    const bool any = dot_is_any_;
    const bool folds = folds_;
    bool on = true;
    for (; !done() && rest()[0] != ':' && rest()[0] != ')'; ++at_) {
      const char sign = rest()[0];
      if (sign != 'i' && (sign != 'm' || rust_) && (sign != '-' || !on))
        refuse("a group that is neither (?: nor (?= (?! (?> (?<= (?<! (?<name> (?i (?m");
      if (sign == '-') on = false;
      if (sign == 'i') folds_ = on;
      if (sign == 'm') dot_is_any_ = on;
    }
    const std::string open = "(?:";  // the effect of "i" is spelled out too
    const bool rest_of_group = take(")");
    if (!rest_of_group && !take(":")) refuse("a group that does not end");
    std::string out = rest_of_group ? open + alternatives() + ")" : closed(open);
    dot_is_any_ = any;
    folds_ = folds;
    return out;
  }

  // Translates the text after a '\'. Constructs that exist only outside sets are handled elsewhere.
  Item escape() {
    const char32_t c = next("an escape");
    switch (c) {
      case 'a':
        return {U'\a'};
      case 'e':
        return {0x1B};
      case 'f':
        return {U'\f'};
      case 'n':
        return {U'\n'};
      case 'r':
        return {U'\r'};
      case 't':
        return {U'\t'};
      case 'v':
        return {U'\v'};
      case 's':
        return {std::nullopt, pattern_of("", *class_of_patterns(R"(\s)"))};
      case 'S':
        return {std::nullopt, pattern_of("^", *class_of_patterns(R"(\s)"))};
      case 'd':
        return {std::nullopt, pattern_of("", *class_of_patterns(R"(\d)"))};
      case 'D':
        return {std::nullopt, pattern_of("^", *class_of_patterns(R"(\d)"))};
      case 'w':
        return {std::nullopt, pattern_of("", words(true))};
      case 'W':
        return {std::nullopt, pattern_of("^", words(true))};
      case 'h':
        return {std::nullopt, "[0-9a-fA-F]"};
      case 'H':
        return {std::nullopt, "[^0-9a-fA-F]"};
      case 'p':
      case 'P':
        return {std::nullopt, property(c == 'P')};
      case 'x':
        return {take("{") ? code(16, 8, "}") : code(16, 2, "")};
      case 'u':
        return {code(16, 4, "")};
      case '0':
        return {code(8, 2, "")};
      default:
        break;
    }
    if (c < 0x80 && (is_letter(static_cast<char>(c)) || is_digit(static_cast<char>(c))))
      refuse(fmt::format("\\{}", static_cast<char>(c)));
    return {c};
  }

  // A character by its code of up to `most` digits, followed by `close`.
  char32_t code(int base, int most, std::string_view close) {
    static const std::string kDigits = "0123456789abcdef";
    char32_t value = 0;
    int digits = 0;
    for (; digits < most && !done(); ++digits, ++at_) {
      const char sign = rest()[0];
      const size_t digit = kDigits.find(is_letter(sign) ? static_cast<char>(sign | 0x20) : sign);
      if (digit >= static_cast<size_t>(base)) break;
      value = value * static_cast<char32_t>(base) + static_cast<char32_t>(digit);
    }
    // "\x80" and above are bytes there, not characters.
    const bool byte = base == 16 && most == 2;
    if ((digits == 0 && base == 16) || !take(close) || value > (byte ? 0x7F : 0x10FFFF) ||
        (most == 4 && digits < 4))
      refuse("a number that is no character");
    return value;
  }

  // Translates the text after \p or \P.
  std::string property(bool no) {
    if (!take("{")) refuse("a \\p without {");
    if (take("^")) no = !no;
    const size_t end = rest().find('}');
    if (end == std::string_view::npos) refuse("a \\p{ that does not end");
    std::string out = named(rest().substr(0, end), no, false);
    at_ += end + 1;
    return out;
  }

  // `bracket`: written "[:name:]", where two names denote a different set.
  std::string named(std::string_view written_name, bool no, bool bracket) const {
    if (folds_) refuse("a property inside of (?i");  // it might match several characters there
    std::string name;
    for (const char c : written_name)
      if (c != ' ' && c != '-' && c != '_') name += is_letter(c) ? static_cast<char>(c | 0x20) : c;
    const CodePointSet* found = class_of_patterns(bracket ? fmt::format("[:{}:]", name) : name);
    if (found == nullptr) refuse(fmt::format("the property \"{}\"", written_name));
    return pattern_of(no ? "^" : "", *found);
  }

  // Translates the text after a '[', up to its ']'. Each operand of && becomes a nested set.
  std::string set() {
    if (++depth_ > kDeepest) refuse(fmt::format("more than {} groups or sets in one another", kDeepest));
    const std::string open = take("^") ? "[^" : "[";
    std::string out;
    std::string operand;
    while (operand.empty() || !take("]")) {
      if (rest().starts_with("]")) refuse("a set of nothing");
      if (!take("&&")) {
        operand += range();
        continue;
      }
      if (operand.empty()) refuse("a && without a left side");
      out += "[" + operand + "]&&";
      operand.clear();
    }
    --depth_;
    return open + (out.empty() ? operand : out + "[" + operand + "]") + "]";
  }

  // One item of a set, or two with a '-' between them.
  std::string range() {
    const Item low = item();
    if (!low.character) return low.set;
    const auto one = [&] { return folds_ ? folded_items(*low.character) : pattern_of(*low.character); };
    if (!rest().starts_with("-") || rest().starts_with("-]")) return one();
    const size_t begin = at_++;
    const Item high = item();
    if (!high.character) {  // "[a-\d]": the '-' is literal
      at_ = begin;
      return one();
    }
    if (*high.character < *low.character) refuse("a range that is empty");
    std::string out = pattern_of(*low.character) + "-" + pattern_of(*high.character);
    if (folds_)  // all ASCII, as item() ensures
      for (char32_t c = *low.character; c <= *high.character; ++c) out += folded_items(c);
    return out;
  }

  Item item() {
    if (rust_ && (rest().starts_with("[:") || rest().starts_with("--") || rest().starts_with("~~")))
      refuse(fmt::format("{} in a set", rest().substr(0, 2)));
    if (take("[:")) {
      const size_t begin = at_;
      const bool no = take("^");
      const size_t end = rest().find_first_not_of("abcdefghijklmnopqrstuvwxyz");
      if (end != std::string_view::npos && rest().substr(end).starts_with(":]")) {
        std::string out = named(rest().substr(0, end), no, true);
        at_ += end + 2;
        return {std::nullopt, std::move(out)};
      }
      at_ = begin - 1;
      return {std::nullopt, set()};
    }
    if (take("[")) return {std::nullopt, set()};
    const char32_t c = next("a set");
    if (folds_ && c >= 0x80)
      refuse("a character beyond ASCII in a set inside of (?i");  // for the same reason
    if (c != '\\') return {c};
    if (take("b")) return {U'\b'};
    return escape();
  }

  std::string_view pattern_;
  bool rust_;
  size_t at_ = 0;
  int depth_ = 0;
  bool dot_is_any_ = false;  // inside (?m
  bool folds_ = false;       // inside (?i
};

}  // namespace

std::string icu_pattern_of_ruby(std::string_view pattern) {
  return Translator(pattern, PatternDialect::Ruby).all();
}

std::string icu_pattern_of_rust(std::string_view pattern) {
  return Translator(pattern, PatternDialect::Rust).all();
}

}  // namespace trifold
